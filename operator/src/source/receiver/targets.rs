//! Environments that webhooks wake, by namespace. Pure: times are passed in.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use tokio::time::Instant;

use super::{PACE, signature::SigningSecret};
use crate::{
    api::{NamespacedName, Uid},
    source::trigger::TriggerSender,
};

/// Number of different secrets of a namespace that one request is compared with: those of the first environments by
/// name. Environments with further secrets need a path of their own.
pub(super) const SECRETS_MAX: usize = 8;

/// Targets of all namespaces.
#[derive(Default)]
pub(super) struct Targets(HashMap<String, Namespace>);

#[derive(Default)]
struct Namespace {
    targets: BTreeMap<String, WebhookTarget>,
    /// Different secrets of the targets, at most [`SECRETS_MAX`]. They are collected when a target changes, so that a
    /// request costs the same however many targets there are.
    secrets: Vec<SigningSecret>,
}

/// Environment that webhooks wake.
struct WebhookTarget {
    uid: Uid,
    secret: SigningSecret,
    triggers: TriggerSender,
    /// Minimum time between two triggers.
    pause: Duration,
    /// Time of the last trigger.
    last: Option<Instant>,
    /// True if a trigger is sent at the end of the pause.
    is_waiting: bool,
}

/// State of a trigger that waits for the end of a pause.
pub(super) enum Due {
    /// The trigger is sent now.
    Now(TriggerSender),
    /// The pause ends at this time.
    At(Instant),
    /// The target was removed, or its trigger was sent.
    Never,
}

impl Targets {
    /// Adds or updates a target. A target of another UID is a new environment of the same name.
    pub(super) fn set(
        &mut self,
        environment: &NamespacedName,
        uid: &Uid,
        secret: SigningSecret,
        triggers: &TriggerSender,
    ) {
        let namespace = self.0.entry(environment.namespace.clone()).or_default();
        match namespace.targets.get_mut(&environment.name).filter(|target| target.uid == *uid) {
            Some(target) if target.secret == secret => return,
            Some(target) => target.secret = secret,
            None => {
                let (uid, triggers) = (uid.clone(), triggers.clone());
                let target = WebhookTarget { uid, secret, triggers, pause: PACE, last: None, is_waiting: false };
                namespace.targets.insert(environment.name.clone(), target);
            }
        }
        namespace.collect_secrets();
    }

    /// Removes a target.
    pub(super) fn remove(&mut self, environment: &NamespacedName) {
        if let Some(namespace) = self.0.get_mut(&environment.namespace)
            && namespace.targets.remove(&environment.name).is_some()
        {
            namespace.collect_secrets();
        }
    }

    /// Sets the minimum time between two triggers of a target.
    pub(super) fn pace(&mut self, environment: &NamespacedName, pause: Duration) {
        if let Some(target) = self.target(environment) {
            target.pause = pause;
        }
    }

    /// Removes the targets of one namespace, or of all, for which `stays` returns false.
    pub(super) fn retain(&mut self, scope: Option<&str>, stays: impl Fn(&NamespacedName, &Uid) -> bool) {
        for (name, namespace) in &mut self.0 {
            if scope.is_some_and(|scope| scope != name) {
                continue;
            }
            let before = namespace.targets.len();
            namespace.targets.retain(|target, known| stays(&NamespacedName::new(name, target), &known.uid));
            if namespace.targets.len() < before {
                namespace.collect_secrets();
            }
        }
        self.0.retain(|_, namespace| !namespace.targets.is_empty());
    }

    /// Returns the secrets that a request is compared with: the one of the environment that its path names, or those of
    /// the namespace.
    pub(super) fn secrets(&self, namespace: &str, name: Option<&str>) -> Vec<SigningSecret> {
        let Some(namespace) = self.0.get(namespace) else { return Vec::new() };
        match name {
            Some(name) => namespace.targets.get(name).map(|target| target.secret.clone()).into_iter().collect(),
            None => namespace.secrets.clone(),
        }
    }

    /// Marks the targets of the path whose secret is `signing` as waiting for a trigger. Returns those that did not wait
    /// already.
    pub(super) fn wake(&mut self, namespace: &str, name: Option<&str>, signing: &SigningSecret) -> Vec<NamespacedName> {
        let targets = self.0.get_mut(namespace).into_iter().flat_map(|known| &mut known.targets);
        let woken = targets.filter(|(known, target)| {
            name.is_none_or(|name| name == *known) && !target.is_waiting && target.secret == *signing
        });
        woken
            .map(|(name, target)| {
                target.is_waiting = true;
                NamespacedName::new(namespace, name)
            })
            .collect()
    }

    /// Returns the trigger of a waiting target if its pause is over.
    pub(super) fn due(&mut self, environment: &NamespacedName, now: Instant) -> Due {
        let Some(target) = self.target(environment).filter(|target| target.is_waiting) else { return Due::Never };
        match target.last.map(|last| last + target.pause) {
            Some(end) if now < end => Due::At(end),
            _ => {
                (target.is_waiting, target.last) = (false, Some(now));
                Due::Now(target.triggers.clone())
            }
        }
    }

    fn target(&mut self, environment: &NamespacedName) -> Option<&mut WebhookTarget> {
        self.0.get_mut(&environment.namespace)?.targets.get_mut(&environment.name)
    }
}

impl Namespace {
    fn collect_secrets(&mut self) {
        self.secrets.clear();
        for target in self.targets.values() {
            if self.secrets.len() == SECRETS_MAX {
                break;
            }
            if !self.secrets.contains(&target.secret) {
                self.secrets.push(target.secret.clone());
            }
        }
    }
}
