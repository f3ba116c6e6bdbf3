//! The sections and rows of an overrides file.

use super::{Fields, HEADER, Pen};
use crate::values::{hash::Hash96, rows::Row};

pub(crate) const OVERRIDES_MAGIC: [u8; 8] = *b"REMORA\x1aO";

/// The sections of an overrides file.
#[derive(Debug, Clone, Copy)]
pub(crate) enum OverridesSection {
    Directory,
    Entries,
    Groups,
    Items,
    Blob,
}

const OVERRIDES_SECTIONS: usize = OverridesSection::Blob as usize + 1;
pub(crate) const OVERRIDES_START: usize = HEADER + 8 + OVERRIDES_SECTIONS * 8;

row!(Entry, 16, { hash: hash96, group: u32 });
row!(
    /// A bucket of the directory: its first entry in the upper 17 bits, and below them the marks of all of them.
    Bucket, 4, { packed: u32 }
);
impl Bucket {
    const MARKS: u32 = 15;
    /// As many entries a file can have.
    pub(crate) const MOST_ENTRIES: usize = (1 << (u32::BITS - Self::MARKS)) - 1;

    /// Without entries.
    pub(crate) fn new(start: u32) -> Self {
        Self { packed: start << Self::MARKS }
    }
    /// The first of its entries.
    pub(crate) fn start(self) -> u32 {
        self.packed >> Self::MARKS
    }
    /// One of its entries has this hash.
    pub(crate) fn add(&mut self, hash: &Hash96) {
        self.packed |= mark(hash);
    }
    /// May one of its entries have this hash? Most who ask have none, and are told so without a look at the entries, which
    /// are seldom in the processor's cache.
    pub(crate) fn may_have(self, hash: &Hash96) -> bool {
        self.packed & mark(hash) != 0
    }
}
/// One bit of fifteen, by the last bytes of a hash.
fn mark(hash: &Hash96) -> u32 {
    let [.., a, b, c, d] = *hash;
    1 << ((u64::from(u32::from_be_bytes([a, b, c, d])) * u64::from(Bucket::MARKS)) >> 32)
}
row!(Item, 16, { feature: i64, value: u32, value_length: u32 });

/// Set in an item's `value_length`: the flag is enabled.
pub(crate) const ENABLED: u32 = 1 << 31;
pub(crate) const LENGTH_MASK: u32 = (1 << 24) - 1;
