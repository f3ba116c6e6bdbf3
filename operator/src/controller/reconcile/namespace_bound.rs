//! Bounds on what one namespace has at one time, so that its waits leave the rest to other namespaces.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;

/// Largest number of documents of a namespace from the fetch to the compiled snapshot: an eighth of all reconciliations,
/// and half of the requests that all servers get at one time.
pub(super) const DOCUMENTS: usize = 16;

/// Tasks of one kind, of which a namespace has a bounded number at one time.
#[derive(Debug)]
pub(super) struct NamespaceBound {
    limit: usize,
    running: Arc<Mutex<HashMap<String, usize>>>,
}

/// A running task. Dropping it ends the task.
#[derive(Debug)]
pub(super) struct RunningTask {
    all: Arc<Mutex<HashMap<String, usize>>>,
    namespace: String,
}

impl NamespaceBound {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, running: Arc::default() }
    }

    /// Begins a task. `None` if the namespace has as many as it may have.
    pub(super) fn begin(&self, namespace: &str) -> Option<RunningTask> {
        let mut all = self.running.lock();
        let running = all.entry(namespace.to_owned()).or_default();
        if *running >= self.limit {
            return None;
        }
        *running += 1;
        Some(RunningTask { all: Arc::clone(&self.running), namespace: namespace.to_owned() })
    }
}

impl Drop for RunningTask {
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
    fn namespace_has_few_of_all_tasks() {
        let bound = NamespaceBound::new(DOCUMENTS);
        let mut many: Vec<RunningTask> = (0..DOCUMENTS).map(|_| bound.begin("many").unwrap()).collect();
        assert!(bound.begin("many").is_none());
        let other = bound.begin("other").unwrap();
        many.pop();
        many.push(bound.begin("many").unwrap());
        drop((many, other));
        assert!(bound.running.lock().is_empty(), "namespaces are not forgotten");
    }
}
