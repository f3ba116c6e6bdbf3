//! Uses that were collected and not sent yet. Pure.

use std::{collections::BTreeMap, sync::Arc};

/// Largest number of uses of a flag that wait. Flagsmith stores the count of a request in a column of 32 bits.
pub(super) const COUNT_MAX: u64 = i32::MAX as u64;
/// Largest number of flags in a request.
const FLAGS_MAX: usize = 1000;
/// Largest size of a request's names and counts in bytes, apart from its first flag.
const BATCH_BYTES: usize = 256 << 10;
/// Size of a count in a request in bytes, with the punctuation of JSON.
const COUNT_BYTES: usize = 16;

/// Uses by the flag's name, for one request.
pub(super) type Batch = BTreeMap<Arc<str>, u64>;

/// Sums of uses by flag.
#[derive(Debug, Default)]
pub(super) struct Pending {
    flags: Batch,
}

impl Pending {
    /// Adds uses of a flag. Returns the number of uses that exceed [`COUNT_MAX`] and are not added.
    pub(super) fn add(&mut self, name: &Arc<str>, uses: u64) -> u64 {
        let count = self.flags.entry(Arc::clone(name)).or_default();
        let sum = count.saturating_add(uses);
        *count = sum.min(COUNT_MAX);
        sum - *count
    }

    /// Returns the uses of the next request. They stay here until [`Pending::remove`].
    pub(super) fn batch(&self) -> Option<Batch> {
        let mut bytes = 0;
        let fits = |(name, _): &(&Arc<str>, &u64)| {
            let is_first = bytes == 0;
            bytes += name.len() + COUNT_BYTES;
            is_first || bytes <= BATCH_BYTES
        };
        let flags = self.flags.iter().take(FLAGS_MAX).take_while(fits);
        let batch: Batch = flags.map(|(name, count)| (Arc::clone(name), *count)).collect();
        (!batch.is_empty()).then_some(batch)
    }

    /// Removes the uses of a request.
    pub(super) fn remove(&mut self, batch: &Batch) {
        self.flags.retain(|name, _| !batch.contains_key(name));
    }
}

/// Number of uses in a request.
pub(super) fn sum(batch: &Batch) -> u64 {
    batch.values().fold(0, |sum: u64, count| sum.saturating_add(*count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uses_wait_until_they_are_removed() {
        let mut pending = Pending::default();
        assert_eq!(pending.batch(), None);
        let names: Vec<Arc<str>> = (0..=FLAGS_MAX).map(|number| format!("flag-{number:04}").into()).collect();
        for name in &names {
            assert_eq!((pending.add(name, 1), pending.add(name, 2)), (0, 0));
        }
        let first = pending.batch().unwrap();
        assert_eq!((first.len(), sum(&first)), (FLAGS_MAX, 3 * FLAGS_MAX as u64));
        assert_eq!(pending.batch().unwrap(), first, "uses that were not removed are sent again");
        pending.remove(&first);
        assert_eq!(pending.batch().unwrap(), Batch::from([(Arc::clone(&names[FLAGS_MAX]), 3)]));
    }

    #[test]
    fn request_with_long_names_has_fewer_flags() {
        let mut pending = Pending::default();
        for number in 0..300 {
            pending.add(&format!("{number:08000}").into(), 1);
        }
        assert_eq!(pending.batch().unwrap().len(), BATCH_BYTES / (8_000 + COUNT_BYTES));
        let mut pending = Pending::default();
        pending.add(&"x".repeat(2 * BATCH_BYTES).into(), 1);
        assert_eq!(pending.batch().unwrap().len(), 1);
    }

    #[test]
    fn uses_beyond_32_bits_are_dropped_and_counted() {
        let (mut pending, name) = (Pending::default(), Arc::from("x"));
        assert_eq!(pending.add(&name, COUNT_MAX - 1), 0);
        assert_eq!(pending.add(&name, 3), 2);
        assert_eq!(pending.batch().unwrap()[&name], COUNT_MAX);
        assert_eq!(pending.add(&name, u64::MAX), u64::MAX - COUNT_MAX);
    }
}
