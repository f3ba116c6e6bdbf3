//! Environments that are deleted while they are reconciled. A fetch may take minutes, and the reconciliation has the object
//! from before.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use parking_lot::Mutex;

use crate::api::{NamespacedName, Uid};

/// True once an environment is deleted. Clones share the value.
#[derive(Clone, Debug, Default)]
pub(super) struct Deletion(Arc<AtomicBool>);

impl Deletion {
    pub(super) fn is_seen(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Reconciliations under way. Two reconciliations of one object never run at the same time.
#[derive(Clone, Debug, Default)]
pub(super) struct UnderWay(Arc<Mutex<HashMap<Uid, (NamespacedName, Deletion)>>>);

/// A reconciliation under way, until it is dropped.
#[derive(Debug)]
pub(super) struct Reconciling {
    all: UnderWay,
    uid: Uid,
}

impl UnderWay {
    /// Begins the reconciliation of an environment. `deletion` becomes true if the environment is deleted meanwhile.
    pub(super) fn begin(&self, name: &NamespacedName, uid: &Uid, deletion: &Deletion) -> Reconciling {
        self.0.lock().insert(uid.clone(), (name.clone(), deletion.clone()));
        Reconciling { all: self.clone(), uid: uid.clone() }
    }

    /// Marks the reconciliations of the environments for which `exists` returns false as those of deleted ones.
    pub(super) fn mark_deleted(&self, exists: impl Fn(&NamespacedName, &Uid) -> bool) {
        for (uid, (name, deletion)) in &*self.0.lock() {
            if !exists(name, uid) {
                deletion.0.store(true, Ordering::Relaxed);
            }
        }
    }
}

impl Drop for Reconciling {
    fn drop(&mut self) {
        self.all.0.lock().remove(&self.uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_reconciliation_of_deleted_environment_is_marked() {
        let (all, name) = (UnderWay::default(), NamespacedName::new("shop", "storefront"));
        let [before, now] = ["uid-1", "uid-2"].map(Uid::from);
        let [of_before, of_now] = [Deletion::default(), Deletion::default()];
        let running = [all.begin(&name, &before, &of_before), all.begin(&name, &now, &of_now)];
        all.mark_deleted(|_, uid| *uid == now);
        assert!(of_before.is_seen() && !of_now.is_seen());
        drop(running);
        assert!(all.0.lock().is_empty());
    }
}
