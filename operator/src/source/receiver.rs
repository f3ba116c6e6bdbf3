//! Receives Flagsmith's signed webhooks. A webhook only triggers a fetch: nothing in its body is believed.
//!
//! Each environment with `spec.source.flagsmith.webhook` is a target. The path of a request names one environment, or a
//! namespace for a webhook of a whole organisation. A request that is signed with a target's secret triggers a fetch of
//! the target, at most one in a pause; requests within this time share the next fetch. A replayed request therefore
//! causes no more than that.

pub(crate) mod metrics;
mod signature;
mod targets;

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

pub use self::signature::SigningSecret;
use self::{
    metrics::ReceiverMetrics,
    targets::{Due, Targets},
};
use super::trigger::{Trigger, TriggerSender};
use crate::api::{NamespacedName, Uid};

/// Shortest pause between two fetches of one environment that webhooks trigger. Environments whose fetches cost the
/// server more have longer pauses.
pub const PACE: Duration = Duration::from_secs(1);

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
    /// This replica began to reconcile a moment ago, and does not know the secrets of all environments yet. Flagsmith
    /// repeats the request.
    Starting,
}

/// First reconciliations after a start, which add the targets.
#[derive(Default)]
struct Starting {
    /// Number of [`FirstPass`]es that have not ended.
    passes: usize,
    /// Environments that were reconciled since the start, with or without a usable secret.
    seen: HashSet<NamespacedName>,
}

/// Guard: until it is dropped, some environments may not have been reconciled since the start.
#[must_use = "the pass ends when the guard is dropped"]
pub struct FirstPass(WebhookReceiver);

impl Drop for FirstPass {
    fn drop(&mut self) {
        let mut starting = self.0.0.starting.lock();
        starting.passes -= 1;
        if starting.passes == 0 {
            starting.seen = HashSet::new();
        }
    }
}

impl FirstPass {
    /// True if this environment was reconciled since the start.
    pub fn has_seen(&self, environment: &NamespacedName) -> bool {
        self.0.0.starting.lock().seen.contains(environment)
    }
}

/// Receiver of webhooks. Clones share their targets.
#[derive(Clone, Default)]
pub struct WebhookReceiver(Arc<ReceiverState>);

#[derive(Default)]
struct ReceiverState {
    leads: AtomicBool,
    targets: Mutex<Targets>,
    starting: Mutex<Starting>,
    metrics: ReceiverMetrics,
}

impl WebhookReceiver {
    /// Creates a receiver without targets.
    #[must_use]
    pub fn new(metrics: ReceiverMetrics) -> Self {
        Self(Arc::new(ReceiverState { metrics, ..ReceiverState::default() }))
    }

    /// Records whether this replica reconciles. Only then it knows its targets.
    pub fn set_leading(&self, leads: bool) {
        self.0.leads.store(leads, Ordering::Relaxed);
    }

    /// Begins the first pass over the environments of some namespaces. Until it ends, a webhook that no known secret
    /// signs is not refused for good.
    pub fn first_pass(&self) -> FirstPass {
        self.0.starting.lock().passes += 1;
        FirstPass(self.clone())
    }

    /// Adds or updates the target of an environment, or removes it if `secret` is `None`.
    pub fn set_target(
        &self,
        environment: &NamespacedName,
        uid: &Uid,
        secret: Option<SigningSecret>,
        triggers: &TriggerSender,
    ) {
        let mut targets = self.0.targets.lock();
        match secret {
            Some(secret) => targets.set(environment, uid, secret, triggers),
            None => targets.remove(environment),
        }
        let mut starting = self.0.starting.lock();
        if starting.passes > 0 {
            starting.seen.insert(environment.clone());
        }
    }

    /// Sets the pause between two fetches of a target, at least [`PACE`].
    pub fn pace(&self, environment: &NamespacedName, pause: Duration) {
        self.0.targets.lock().pace(environment, pause.max(PACE));
    }

    /// Removes the targets of this namespace, or of all namespaces, for which `exists` returns false.
    pub fn retain(&self, scope: Option<&str>, exists: impl Fn(&NamespacedName, &Uid) -> bool) {
        self.0.targets.lock().retain(scope, exists);
    }

    /// Checks a webhook, and wakes the environments whose secret signs its body: `name`, or all of the namespace.
    pub fn receive(&self, namespace: &str, name: Option<&str>, signature: Option<&str>, body: &[u8]) -> Verdict {
        let verdict = self.verdict(namespace, name, signature, body);
        self.0.metrics.count_received(verdict);
        verdict
    }

    fn verdict(&self, namespace: &str, name: Option<&str>, signature: Option<&str>, body: &[u8]) -> Verdict {
        if !self.0.leads.load(Ordering::Relaxed) {
            return Verdict::NotLeading;
        }
        let Some(signature) = signature.and_then(signature::parse) else { return Verdict::Refused };
        let secrets = self.0.targets.lock().secrets(namespace, name);
        // The signature is checked without the lock, because the work grows with the body.
        let Some(signing) = secrets.into_iter().find(|secret| secret.signs(body, &signature)) else {
            let is_starting = self.0.starting.lock().passes > 0;
            return if is_starting { Verdict::Starting } else { Verdict::Refused };
        };
        let woken = self.0.targets.lock().wake(namespace, name, &signing);
        for environment in woken {
            tokio::spawn(trigger(Arc::clone(&self.0), environment));
        }
        Verdict::Accepted
    }
}

/// Triggers a fetch of a waiting target now, or at the end of its pause.
async fn trigger(state: Arc<ReceiverState>, environment: NamespacedName) {
    loop {
        // A fetch that ends meanwhile may change the pause.
        let due = state.targets.lock().due(&environment, Instant::now());
        match due {
            Due::Now(triggers) => return triggers.send(&environment, Trigger::FetchWhole).await,
            Due::At(end) => sleep_until(end).await,
            Due::Never => return,
        }
    }
}

#[cfg(test)]
#[path = "receiver/tests.rs"]
mod tests;
