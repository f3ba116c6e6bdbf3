//! Reconciliations under way: one namespace has at most a quarter of them, so that its waits delay no other namespace.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;

/// Number of reconciliations at one time; most of them wait for a server.
pub(super) const CONCURRENCY: u16 = 128;
/// Largest number of them in one namespace.
const PER_NAMESPACE: usize = CONCURRENCY as usize / 4;
/// Least time after which an environment of a namespace that has all of them tries again.
const AGAIN: Duration = Duration::from_millis(500);

/// Number of reconciliations under way, by namespace.
#[derive(Debug, Default)]
pub(super) struct UnderWay(Arc<Mutex<HashMap<String, usize>>>);

/// One reconciliation under way. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Running {
    all: Arc<Mutex<HashMap<String, usize>>>,
    namespace: String,
}

impl UnderWay {
    /// Begins a reconciliation in this namespace.
    ///
    /// # Errors
    /// The namespace has [`PER_NAMESPACE`] of them. The error holds the time after which to try again.
    pub(super) fn begin(&self, namespace: &str) -> Result<Running, Duration> {
        let mut all = self.0.lock();
        let running = all.entry(namespace.to_owned()).or_default();
        if *running >= PER_NAMESPACE {
            return Err(AGAIN.mul_f64(1.0 + fastrand::f64()));
        }
        *running += 1;
        Ok(Running { all: Arc::clone(&self.0), namespace: namespace.to_owned() })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut all = self.all.lock();
        if let Some(running) = all.get_mut(&self.namespace) {
            *running -= 1;
            if *running == 0 {
                all.remove(&self.namespace);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespace_has_quarter_of_all_reconciliations() {
        let under_way = UnderWay::default();
        let mut many: Vec<Running> = (0..PER_NAMESPACE).map(|_| under_way.begin("many").unwrap()).collect();
        assert!(under_way.begin("many").unwrap_err() >= AGAIN);
        let other = under_way.begin("other").unwrap();
        many.pop();
        many.push(under_way.begin("many").unwrap());
        drop((many, other));
        assert!(under_way.0.lock().is_empty(), "namespaces are not forgotten");
    }
}
