//! Memory that namespaces share: for the counts that were read from sidecars, and for snapshots.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;

/// Part of the memory that only namespaces below their equal share may use, as a divisor. So one namespace may use three
/// quarters while others need little, and cannot take all.
const KEPT_PART: usize = 4;

/// Error: so much memory is not free for the namespace.
#[derive(Debug, PartialEq, Eq)]
pub struct OutOfMemory;

/// Memory of all namespaces.
#[derive(Debug)]
pub struct Memory {
    bytes: usize,
    /// Number of namespaces that the memory is divided by if there are fewer.
    least_namespaces: usize,
    used: Mutex<Used>,
}

#[derive(Debug, Default)]
struct Used {
    all: usize,
    /// Bytes and number of users by namespace.
    namespaces: HashMap<String, (usize, usize)>,
}

/// The memory as one of its users sees it, for example the collection of an environment.
#[derive(Debug)]
pub struct Share {
    memory: Arc<Memory>,
    namespace: String,
}

/// Bytes that are reserved. Dropping it returns them.
#[derive(Debug)]
pub struct Reserved {
    share: Arc<Share>,
    bytes: usize,
}

impl Memory {
    /// Creates a memory of this many bytes.
    pub fn new(bytes: usize) -> Arc<Self> {
        Arc::new(Self { bytes, least_namespaces: 1, used: Mutex::default() })
    }

    /// Creates a memory of this many bytes that keeps a quarter free for further namespaces, because its reservations last
    /// long.
    pub fn with_reserve(bytes: usize) -> Arc<Self> {
        Arc::new(Self { bytes, least_namespaces: 2, used: Mutex::default() })
    }

    /// Returns the number of bytes of all namespaces.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the memory for a user of the namespace.
    pub(crate) fn share(self: &Arc<Self>, namespace: &str) -> Arc<Share> {
        self.used.lock().namespaces.entry(namespace.to_owned()).or_default().1 += 1;
        Arc::new(Share { memory: Arc::clone(self), namespace: namespace.to_owned() })
    }

    /// Returns the bytes that are free for the namespace: those up to its equal share, or beyond it those that are not
    /// kept for namespaces below theirs.
    fn free(&self, used: &Used, namespace: &str) -> usize {
        let free = self.bytes.saturating_sub(used.all);
        let own = used.namespaces.get(namespace).map_or(0, |(bytes, _)| *bytes);
        let share = self.bytes / used.namespaces.len().max(self.least_namespaces);
        let beyond = free.saturating_sub(self.bytes / KEPT_PART);
        free.min(share.saturating_sub(own).max(beyond))
    }
}

impl Share {
    /// True if so many bytes are free for the namespace.
    pub(crate) fn has(&self, bytes: usize) -> bool {
        self.memory.free(&self.memory.used.lock(), &self.namespace) >= bytes
    }

    /// Reserves bytes.
    ///
    /// # Errors
    /// So many bytes are not free for the namespace.
    pub(crate) fn reserve(self: &Arc<Self>, bytes: usize) -> Result<Reserved, OutOfMemory> {
        let mut reserved = Reserved { share: Arc::clone(self), bytes: 0 };
        reserved.resize(bytes)?;
        Ok(reserved)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut used = self.memory.used.lock();
        if let Some((_, users)) = used.namespaces.get_mut(&self.namespace) {
            *users -= 1;
            // A reservation refers to its share, so that none is left with the last one.
            if *users == 0 {
                used.namespaces.remove(&self.namespace);
            }
        }
    }
}

impl Reserved {
    /// Number of reserved bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Reserves more bytes, or returns some, so that there are `bytes` in all.
    ///
    /// # Errors
    /// The additional bytes are not free for the namespace. The reservation stays as it is.
    pub(crate) fn resize(&mut self, bytes: usize) -> Result<(), OutOfMemory> {
        let Share { memory, namespace } = &*self.share;
        let mut used = memory.used.lock();
        if bytes > self.bytes && memory.free(&used, namespace) < bytes - self.bytes {
            return Err(OutOfMemory);
        }
        used.all = used.all - self.bytes + bytes;
        if let Some((own, _)) = used.namespaces.get_mut(namespace) {
            *own = *own - self.bytes + bytes;
        }
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        // To return bytes never fails.
        let _ = self.resize(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespace_that_takes_all_it_gets_leaves_a_quarter_to_others() {
        let memory = Memory::new(1_000);
        let (large, small) = (memory.share("large"), memory.share("small"));
        let mut held: Vec<Reserved> = std::iter::from_fn(|| large.reserve(10).ok()).collect();
        assert_eq!(held.len(), 75);
        let other = small.reserve(250).unwrap();
        assert!(!small.has(1) && !large.has(1));
        drop(other);
        assert!(!large.has(1), "the bytes are kept for others");
        held.truncate(60);
        assert!(large.has(150) && !large.has(151));
    }

    #[test]
    fn only_namespace_has_all_memory() {
        let memory = Memory::new(1_000);
        let share = memory.share("shop");
        drop(memory.share("gone"));
        let mut reserved = share.reserve(1_000).unwrap();
        assert_eq!(reserved.resize(1_001), Err(OutOfMemory));
        reserved.resize(400).unwrap();
        assert!(share.has(600) && !share.has(601));
    }

    #[test]
    fn first_namespace_leaves_quarter_of_memory_that_stays_reserved() {
        let memory = Memory::with_reserve(1_000);
        let first = memory.share("first");
        assert!(first.has(750) && !first.has(751));
        let _held = first.reserve(750).unwrap();
        assert!(memory.share("second").has(250));
    }

    #[test]
    fn share_is_divided_by_namespaces_and_not_by_users() {
        let memory = Memory::new(1_000);
        let _large: Vec<Arc<Share>> = (0..100).map(|_| memory.share("large")).collect();
        let (first, second) = (memory.share("large"), memory.share("small"));
        let _held = first.reserve(700).unwrap();
        assert!(second.has(300) && !second.has(301));
    }
}
