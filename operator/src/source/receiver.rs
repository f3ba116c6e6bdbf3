//! Receives Flagsmith's signed webhooks. A webhook only triggers a fetch: nothing in its body is believed.
//!
//! Each environment with `spec.source.flagsmith.webhook` is a target. The path of a request names one environment, or a
//! namespace for a webhook of a whole organisation. A request that is signed with a target's secret triggers a fetch of
//! the target, at most one in [`PACE`]; requests within this time share the next fetch. A replayed request therefore
//! causes no more than that.

pub(crate) mod metrics;
mod signature;

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

use self::metrics::ReceiverMetrics;
pub use self::signature::SigningSecret;
use super::trigger::{Trigger, TriggerSender};

/// Minimum time between two fetches of one environment that webhooks trigger.
pub const PACE: Duration = Duration::from_secs(1);
/// Number of different secrets of a namespace that one request is compared with. Further environments of the namespace
/// need a path of their own.
const SECRETS_MAX: usize = 8;

/// Answer to a webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The signature is valid, and a fetch follows.
    Accepted,
    /// No environment at this path has a secret that signs the body. Unknown environments get the same answer, so the
    /// answers do not say which environments exist.
    Refused,
    /// Another replica reconciles. Flagsmith repeats the request.
    NotLeading,
}

/// Receiver of webhooks. Clones share their targets.
#[derive(Clone, Default)]
pub struct Receiver(Arc<Shared>);

#[derive(Default)]
struct Shared {
    leads: AtomicBool,
    targets: Mutex<HashMap<Name, Target>>,
    metrics: ReceiverMetrics,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Name {
    namespace: String,
    name: String,
}

/// Environment that webhooks wake.
struct Target {
    uid: String,
    secret: SigningSecret,
    triggers: TriggerSender,
    /// Time of the last trigger.
    last: Option<Instant>,
    /// True if a trigger is sent at the end of the pause.
    is_waiting: bool,
}

impl Receiver {
    /// Creates a receiver without targets.
    #[must_use]
    pub fn new(metrics: ReceiverMetrics) -> Self {
        Self(Arc::new(Shared { metrics, ..Shared::default() }))
    }

    /// Records whether this replica reconciles. Only then it knows its targets.
    pub fn leads(&self, leads: bool) {
        self.0.leads.store(leads, Ordering::Relaxed);
    }

    /// Adds or updates the target of an environment, or removes it if `secret` is `None`.
    pub fn keep(
        &self,
        namespace: &str,
        name: &str,
        uid: &str,
        secret: Option<SigningSecret>,
        triggers: &TriggerSender,
    ) {
        let key = Name { namespace: namespace.to_owned(), name: name.to_owned() };
        let mut targets = self.0.targets.lock();
        match (secret, targets.get_mut(&key)) {
            (None, _) => {
                targets.remove(&key);
            }
            (Some(secret), Some(target)) if target.uid == uid => target.secret = secret,
            (Some(secret), _) => {
                let (uid, triggers) = (uid.to_owned(), triggers.clone());
                targets.insert(key, Target { uid, secret, triggers, last: None, is_waiting: false });
            }
        }
    }

    /// Removes the targets of this namespace, or of all namespaces, for which `is_there` (namespace, name, UID) returns
    /// false.
    pub fn retain(&self, scope: Option<&str>, is_there: impl Fn(&str, &str, &str) -> bool) {
        let is_outside = |namespace: &str| scope.is_some_and(|scope| scope != namespace);
        let mut targets = self.0.targets.lock();
        targets.retain(|key, target| is_outside(&key.namespace) || is_there(&key.namespace, &key.name, &target.uid));
    }

    /// Checks a webhook, and wakes the environments whose secret signs its body: `name`, or all of the namespace.
    pub fn receive(&self, namespace: &str, name: Option<&str>, signature: Option<&str>, body: &[u8]) -> Verdict {
        let verdict = self.verdict(namespace, name, signature, body);
        self.0.metrics.received(verdict);
        verdict
    }

    fn verdict(&self, namespace: &str, name: Option<&str>, signature: Option<&str>, body: &[u8]) -> Verdict {
        if !self.0.leads.load(Ordering::Relaxed) {
            return Verdict::NotLeading;
        }
        let Some(signature) = signature.and_then(signature::parse) else { return Verdict::Refused };
        let (asked, secrets) = self.asked(namespace, name);
        // The signature is checked without the lock, because the work grows with the body.
        let signing = secrets.into_iter().take(SECRETS_MAX).find(|secret| secret.signs(body, &signature));
        let Some(signing) = signing else { return Verdict::Refused };
        for key in asked {
            self.wake(&key, &signing);
        }
        Verdict::Accepted
    }

    /// Returns the targets that a path names, and their different secrets.
    fn asked(&self, namespace: &str, name: Option<&str>) -> (Vec<Name>, Vec<SigningSecret>) {
        let targets = self.0.targets.lock();
        let is_asked = |key: &Name| key.namespace == namespace && name.is_none_or(|name| key.name == name);
        let (mut asked, mut secrets): (Vec<Name>, Vec<SigningSecret>) = (Vec::new(), Vec::new());
        for (key, target) in targets.iter().filter(|(key, _)| is_asked(key)) {
            asked.push(key.clone());
            if !secrets.contains(&target.secret) {
                secrets.push(target.secret.clone());
            }
        }
        (asked, secrets)
    }

    /// Triggers a fetch of a target now, or at the end of its pause. `signing` is the secret that signs the request.
    fn wake(&self, key: &Name, signing: &SigningSecret) {
        let now = Instant::now();
        let mut targets = self.0.targets.lock();
        let Some(target) = targets.get_mut(key).filter(|target| target.secret == *signing && !target.is_waiting) else {
            return;
        };
        let at = target.last.map_or(now, |last| last + PACE);
        target.is_waiting = true;
        let (shared, key) = (Arc::clone(&self.0), key.clone());
        tokio::spawn(async move {
            sleep_until(at).await;
            let triggers = {
                let mut targets = shared.targets.lock();
                let Some(target) = targets.get_mut(&key) else { return };
                (target.is_waiting, target.last) = (false, Some(Instant::now()));
                target.triggers.clone()
            };
            triggers.send(&key.namespace, &key.name, Trigger::FetchWhole).await;
        });
    }
}

#[cfg(test)]
#[path = "receiver/tests.rs"]
mod tests;
