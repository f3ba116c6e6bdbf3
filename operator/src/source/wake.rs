//! Triggers: requests for an early reconciliation, sent by tasks that run beside the reconciliations.

use tokio::sync::mpsc;

/// Capacity of the channel of calls. A sender waits while the channel is full.
const WAITING: usize = 1024;

/// Reason for a reconciliation. A later variant includes the earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Haste {
    /// The status has something to report.
    Look,
    /// The source may have a new document: the controller fetches, conditionally if it can.
    Fetch,
    /// The source has a new document: the controller fetches without a condition, whatever a conditional request would
    /// answer.
    FetchWhole,
    /// An object that the source refers to has changed, so a fetch that failed before may succeed now.
    Mended,
}

/// A request to reconcile one environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Namespace of the FeatureEnvironment.
    pub namespace: String,
    /// Name of the FeatureEnvironment.
    pub name: String,
    /// Reason for the reconciliation.
    pub haste: Haste,
}

/// Sender of calls.
#[derive(Clone, Debug)]
pub struct Wake(mpsc::Sender<Call>);

impl Wake {
    /// Creates a sender and the receiver of its calls.
    pub fn new() -> (Self, mpsc::Receiver<Call>) {
        let (sender, receiver) = mpsc::channel(WAITING);
        (Self(sender), receiver)
    }

    /// Requests a reconciliation of the environment. Waits while the channel of calls is full.
    pub async fn call(&self, namespace: &str, name: &str, haste: Haste) {
        let call = Call { namespace: namespace.to_owned(), name: name.to_owned(), haste };
        // Sending fails only after the controller has ended, and then no reconciliation is left to request.
        let _ = self.0.send(call).await;
    }
}
