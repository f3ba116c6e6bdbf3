//! Environments whose pods are being notified.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;

use crate::api::{NamespacedName, names::EnvironmentName};

/// Number of notifications in progress for each environment that has one. Clones share the numbers.
#[derive(Clone, Debug, Default)]
pub(super) struct InProgress(Arc<Mutex<HashMap<NamespacedName, usize>>>);

/// Notification in progress. It ends when this value is dropped.
#[derive(Debug)]
pub(super) struct Notifying {
    all: InProgress,
    key: NamespacedName,
}

impl InProgress {
    /// Begins a notification of the environment's pods.
    pub(super) fn begin(&self, namespace: &str, environment: &EnvironmentName) -> Notifying {
        let key = NamespacedName::new(namespace, environment.as_str());
        *self.0.lock().entry(key.clone()).or_default() += 1;
        Notifying { all: self.clone(), key }
    }

    /// True if a notification of the environment's pods is in progress.
    pub(super) fn contains(&self, namespace: &str, environment: &EnvironmentName) -> bool {
        self.0.lock().contains_key(&NamespacedName::new(namespace, environment.as_str()))
    }
}

impl Drop for Notifying {
    fn drop(&mut self) {
        let mut counts = self.all.0.lock();
        if let Some(count) = counts.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environment_is_in_progress_until_its_last_notification_ends() {
        let all = InProgress::default();
        let [a, b]: [EnvironmentName; 2] = ["a", "b"].map(|name| name.parse().unwrap());
        let (first, second) = (all.begin("shop", &a), all.begin("shop", &a));
        drop(first);
        assert!(all.contains("shop", &a) && !all.contains("shop", &b) && !all.contains("other", &a));
        drop(second);
        assert!(!all.contains("shop", &a));
        assert!(all.0.lock().is_empty());
    }
}
