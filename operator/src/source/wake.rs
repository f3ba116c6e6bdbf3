//! How parts that work beside the reconciliations have one begin before its time.

use tokio::sync::mpsc;

/// Calls that wait; more make callers wait.
const WAITING: usize = 1024;

/// What a reconciliation is wanted for. Later ones include earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Haste {
    /// There is something to report.
    Look,
    /// The source may have something new.
    Fetch,
    /// The source has something new, whatever a conditional request may tell.
    FetchWhole,
    /// An object that the source refers to has changed: what failed before may work now.
    Mended,
}

/// Which environment, and what for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The namespace of the FeatureEnvironment.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// What for.
    pub haste: Haste,
}

/// Calls.
#[derive(Clone, Debug)]
pub struct Wake(mpsc::Sender<Call>);

impl Wake {
    /// One that calls, and one that hears the calls.
    pub fn new() -> (Self, mpsc::Receiver<Call>) {
        let (sender, receiver) = mpsc::channel(WAITING);
        (Self(sender), receiver)
    }

    /// Has the environment reconciled.
    pub async fn call(&self, namespace: &str, name: &str, haste: Haste) {
        let call = Call { namespace: namespace.to_owned(), name: name.to_owned(), haste };
        // Nobody hears it only when the controller has ended.
        let _ = self.0.send(call).await;
    }
}
