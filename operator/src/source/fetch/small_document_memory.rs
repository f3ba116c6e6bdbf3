//! Memory for small documents while larger ones take all of the budget. A server that sends as slowly as it may holds
//! the budget for minutes, and other namespaces do not wait for it.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;

/// Memory for small documents. A namespace has at most as much of it as stays free: one half, a second one a quarter, a
/// third one an eighth. Clones share the memory.
#[derive(Clone, Debug)]
pub(super) struct SmallDocumentMemory(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    /// Free units.
    free: usize,
    /// Reserved units by namespace.
    namespaces: HashMap<String, usize>,
}

/// A reservation. Dropping it releases its units.
#[derive(Debug)]
pub(super) struct SmallDocumentPermit {
    memory: SmallDocumentMemory,
    namespace: String,
    units: usize,
}

impl SmallDocumentMemory {
    pub(super) fn new(units: usize) -> Self {
        Self(Arc::new(Mutex::new(State { free: units, namespaces: HashMap::new() })))
    }

    /// Reserves units. `None` if so many are not free for the namespace.
    pub(super) fn reserve(&self, namespace: &str, units: usize) -> Option<SmallDocumentPermit> {
        let mut permit = SmallDocumentPermit { memory: self.clone(), namespace: namespace.to_owned(), units: 0 };
        permit.grow(units).then_some(permit)
    }
}

impl SmallDocumentPermit {
    /// Number of reserved units.
    pub(super) fn units(&self) -> usize {
        self.units
    }

    /// Reserves more units. Returns false, and reserves none, if so many are not free for the namespace.
    pub(super) fn grow(&mut self, more: usize) -> bool {
        let State { free, namespaces } = &mut *self.memory.0.lock();
        let own = namespaces.get(&self.namespace).copied().unwrap_or_default();
        let Some(stays_free) = free.checked_sub(more).filter(|stays_free| own + more <= *stays_free) else {
            return false;
        };
        *free = stays_free;
        *namespaces.entry(self.namespace.clone()).or_default() += more;
        self.units += more;
        true
    }

    /// Releases units.
    pub(super) fn shrink(&mut self, less: usize) {
        let State { free, namespaces } = &mut *self.memory.0.lock();
        let less = less.min(self.units);
        self.units -= less;
        *free += less;
        if let Some(own) = namespaces.get_mut(&self.namespace) {
            *own -= less;
            if *own == 0 {
                namespaces.remove(&self.namespace);
            }
        }
    }
}

impl Drop for SmallDocumentPermit {
    fn drop(&mut self) {
        self.shrink(self.units);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_namespace_leaves_as_much_as_it_has() {
        let memory = SmallDocumentMemory::new(1_000);
        let mut first = memory.reserve("first", 400).unwrap();
        assert!(memory.reserve("first", 101).is_none());
        assert!(!first.grow(101) && first.grow(100));
        let second = memory.reserve("second", 250).unwrap();
        assert!(memory.reserve("third", 126).is_none() && memory.reserve("third", 125).is_some());
        first.shrink(300);
        assert_eq!(first.units(), 200);
        assert!(memory.reserve("second", 150).is_some());
        drop((first, second));
        let state = memory.0.lock();
        assert!(state.namespaces.is_empty() && state.free == 1_000);
    }
}
