//! Tasks that run beside the reconciliations, at most one for each environment.

use std::collections::HashMap;

use parking_lot::Mutex;
use tokio_util::task::AbortOnDropHandle;

use crate::api::NamespacedName;

/// Tasks of environments. Each works for a target, and shares its state with the callers. Dropping the set ends them.
pub(crate) struct Tasks<T, S> {
    running: Mutex<HashMap<NamespacedName, Running<T, S>>>,
}

struct Running<T, S> {
    target: T,
    state: S,
    _task: AbortOnDropHandle<()>,
}

impl<T, S> Default for Tasks<T, S> {
    fn default() -> Self {
        Self { running: Mutex::default() }
    }
}

impl<T: PartialEq, S: Clone> Tasks<T, S> {
    /// Returns the state of the environment's task for `target`. Without such a task, a task for another target ends
    /// first, and `start` returns the state of a new one and its work.
    pub(crate) fn ensure<F>(&self, environment: &NamespacedName, target: T, start: impl FnOnce(&T) -> (S, F)) -> S
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut running = self.running.lock();
        if let Some(known) = running.get(environment).filter(|known| known.target == target) {
            return known.state.clone();
        }
        running.remove(environment);
        let (state, work) = start(&target);
        let task = AbortOnDropHandle::new(tokio::spawn(work));
        running.insert(environment.clone(), Running { target, state: state.clone(), _task: task });
        state
    }

    /// Returns the state of the environment's task.
    pub(crate) fn get(&self, environment: &NamespacedName) -> Option<S> {
        self.running.lock().get(environment).map(|known| known.state.clone())
    }

    /// Ends the environment's task.
    pub(crate) fn remove(&self, environment: &NamespacedName) {
        self.running.lock().remove(environment);
    }

    /// Ends the tasks for which `keep` returns false.
    pub(crate) fn retain(&self, keep: impl Fn(&NamespacedName, &T) -> bool) {
        self.running.lock().retain(|environment, known| keep(environment, &known.target));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// Starts a task that never ends and holds the returned value.
    fn endless(_: &u8) -> (Arc<()>, impl Future<Output = ()> + Send + use<>) {
        let state = Arc::new(());
        let held = Arc::clone(&state);
        (state, async move {
            let _held = held;
            std::future::pending::<()>().await;
        })
    }

    /// Waits until only the caller holds the state, so the task has ended.
    async fn ended(state: &Arc<()>) {
        while Arc::strong_count(state) > 1 {
            tokio::task::yield_now().await;
        }
    }

    fn shop(environment: &str) -> NamespacedName {
        NamespacedName::new("shop", environment)
    }

    #[tokio::test]
    async fn same_target_continues_task_and_other_target_replaces_it() {
        let tasks = Tasks::default();
        let first = tasks.ensure(&shop("storefront"), 1, endless);
        assert!(Arc::ptr_eq(&first, &tasks.ensure(&shop("storefront"), 1, endless)));
        let second = tasks.ensure(&shop("storefront"), 2, endless);
        ended(&first).await;
        assert!(Arc::ptr_eq(&second, &tasks.get(&shop("storefront")).unwrap()));
        assert!(tasks.get(&shop("search")).is_none());
    }

    #[tokio::test]
    async fn removed_and_dropped_tasks_end() {
        let tasks = Tasks::default();
        let [one, two, three] = ["one", "two", "three"].map(|name| tasks.ensure(&shop(name), 1, endless));
        tasks.remove(&shop("one"));
        ended(&one).await;
        tasks.retain(|environment, target| (environment, *target) == (&shop("three"), 1));
        ended(&two).await;
        drop(tasks);
        ended(&three).await;
    }
}
