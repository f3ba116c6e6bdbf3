//! Triggers: requests for an early reconciliation, sent by tasks that run beside the reconciliations.

use std::collections::BTreeSet;

use tokio::sync::mpsc;

use crate::api::NamespacedName;

/// Capacity of the channel of requests. A sender waits while the channel is full.
const WAITING: usize = 1024;

/// Reason for a reconciliation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trigger {
    /// The status has something to report, or the environment has waited for its turn.
    Report,
    /// The source may have a new document: the controller fetches, conditionally if it can.
    Fetch,
    /// The source has a new document: the controller fetches without a condition, whatever a conditional request would
    /// answer.
    FetchWhole,
    /// An object that the source refers to has changed, so a fetch that failed before may succeed now. Many such changes in a
    /// row have a pace.
    ReferenceChanged,
    /// A person requests a fetch now, whatever the result of the last one was.
    Requested,
}

/// The triggers of one environment since its last reconciliation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Triggers(BTreeSet<Trigger>);

impl Triggers {
    /// Adds a trigger.
    pub fn insert(&mut self, trigger: Trigger) {
        self.0.insert(trigger);
    }

    /// True if one of these is among the triggers.
    pub fn has(&self, any: &[Trigger]) -> bool {
        any.iter().any(|trigger| self.0.contains(trigger))
    }
}

impl From<Trigger> for Triggers {
    fn from(trigger: Trigger) -> Self {
        Self(BTreeSet::from([trigger]))
    }
}

/// A request to reconcile one environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TriggerRequest {
    /// Name of the FeatureEnvironment.
    pub environment: NamespacedName,
    /// Reason for the reconciliation.
    pub trigger: Trigger,
}

/// Sender of trigger requests.
#[derive(Clone, Debug)]
pub struct TriggerSender(mpsc::Sender<TriggerRequest>);

impl TriggerSender {
    /// Creates a sender and the receiver of its requests.
    pub fn new() -> (Self, mpsc::Receiver<TriggerRequest>) {
        let (sender, receiver) = mpsc::channel(WAITING);
        (Self(sender), receiver)
    }

    /// Requests a reconciliation of the environment. Waits while the channel of requests is full.
    pub async fn send(&self, environment: &NamespacedName, trigger: Trigger) {
        let request = TriggerRequest { environment: environment.clone(), trigger };
        // Sending fails only after the controller has ended, and then no reconciliation is left to request.
        let _ = self.0.send(request).await;
    }
}
