//! The sections and rows of an overrides file.

use super::HEADER;
use super::row::{Fields, RowWriter};
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
    /// A bucket of the directory: its first entry in the upper 17 bits, and the filter bits of all its entries in the lower
    /// 15 bits.
    Bucket, 4, { packed: u32 }
);
impl Bucket {
    const FILTER_BITS: u32 = 15;
    /// Maximum number of entries in a file.
    pub(crate) const MOST_ENTRIES: usize = (1 << (u32::BITS - Self::FILTER_BITS)) - 1;

    /// Creates a bucket without entries.
    pub(crate) fn new(start: u32) -> Self {
        Self { packed: start << Self::FILTER_BITS }
    }
    /// Returns the first entry of the bucket.
    pub(crate) fn start(self) -> u32 {
        self.packed >> Self::FILTER_BITS
    }
    /// Adds the filter bit of an entry's hash.
    pub(crate) fn add(&mut self, hash: &Hash96) {
        self.packed |= filter_bit(hash);
    }
    /// Returns false if no entry of the bucket has this hash. Most identities have no entry, and the filter answers for
    /// them without access to the entries, which are seldom in the processor's cache.
    pub(crate) fn may_have(self, hash: &Hash96) -> bool {
        self.packed & filter_bit(hash) != 0
    }
}
/// Returns one of fifteen bits, chosen by the last bytes of a hash.
fn filter_bit(hash: &Hash96) -> u32 {
    let [.., a, b, c, d] = *hash;
    1 << ((u64::from(u32::from_be_bytes([a, b, c, d])) * u64::from(Bucket::FILTER_BITS)) >> 32)
}
row!(
    /// A flag of a group. If it has [`HAS_VARIANT`], the next item describes its variant: the value is the variant's
    /// name as JSON, and the weight follows it directly.
    Item, 16, { feature: i64, value: u32, value_length: u32 }
);

/// Bit of an item's `value_length`: the flag is enabled.
pub(crate) const ENABLED: u32 = 1 << 31;
/// Bit of an item's `value_length`: the next item describes the flag's variant.
pub(crate) const HAS_VARIANT: u32 = 1 << 30;
/// Position in the `value_length` of an item that describes a variant: the length of the weight, in [`WEIGHT_MASK`]. A
/// length of zero: the split gave its control value.
pub(crate) const WEIGHT: u32 = 24;
pub(crate) const WEIGHT_MASK: u32 = (1 << 6) - 1;
pub(crate) const LENGTH_MASK: u32 = (1 << 24) - 1;
