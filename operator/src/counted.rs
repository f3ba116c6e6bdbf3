//! Counts what is under way, by key.

use std::{collections::HashMap, hash::Hash, sync::Arc};

use parking_lot::Mutex;

/// Number of entries under way for each key that has one. Clones share the numbers.
#[derive(Clone, Debug)]
pub(crate) struct Counted<K>(Arc<Mutex<HashMap<K, usize>>>);

/// An entry under way. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Entry<K: Eq + Hash> {
    all: Arc<Mutex<HashMap<K, usize>>>,
    key: K,
}

impl<K> Default for Counted<K> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<K: Clone + Eq + Hash> Counted<K> {
    /// Begins an entry.
    pub(crate) fn begin(&self, key: K) -> Entry<K> {
        *self.0.lock().entry(key.clone()).or_default() += 1;
        Entry { all: Arc::clone(&self.0), key }
    }

    /// Begins an entry. `None` if the key has `limit` of them.
    pub(crate) fn begin_below(&self, limit: usize, key: K) -> Option<Entry<K>> {
        let mut all = self.0.lock();
        let count = all.get(&key).copied().unwrap_or_default();
        if count >= limit {
            return None;
        }
        all.insert(key.clone(), count + 1);
        Some(Entry { all: Arc::clone(&self.0), key })
    }

    /// True if an entry of the key is under way.
    pub(crate) fn contains(&self, key: &K) -> bool {
        self.0.lock().contains_key(key)
    }
}

impl<K: Eq + Hash> Drop for Entry<K> {
    fn drop(&mut self) {
        let mut all = self.all.lock();
        if let Some(count) = all.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_is_contained_until_its_last_entry_ends() {
        let counted = Counted::default();
        let (first, second) = (counted.begin("a"), counted.begin("a"));
        drop(first);
        assert!(counted.contains(&"a") && !counted.contains(&"b"));
        drop(second);
        assert!(counted.0.lock().is_empty());
    }

    #[test]
    fn key_has_entries_up_to_limit() {
        let counted = Counted::default();
        let mut many: Vec<_> = (0..3).map(|_| counted.begin_below(3, "many").unwrap()).collect();
        assert!(counted.begin_below(3, "many").is_none());
        let other = counted.begin_below(3, "other").unwrap();
        many.pop();
        many.push(counted.begin_below(3, "many").unwrap());
        drop((many, other));
        assert!(counted.0.lock().is_empty(), "keys are not forgotten");
    }
}
