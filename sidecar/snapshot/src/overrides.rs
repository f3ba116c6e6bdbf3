//! Identity overrides: finding what one identifier has instead.

use crate::hash::{Fingerprint, Hash96};
use crate::layout::{Entry, HEADER, Item, OVERRIDES_MAGIC, OVERRIDES_START, OverridesSection, Span, Table, Word};
use crate::read::{read_header, span_of};
use crate::view::place;
use crate::write::leading;
use crate::{ReadError, files};

/// The tables of an overrides file.
#[derive(Clone, Copy)]
pub(crate) struct Overrides<'a> {
    index: u32,
    bits: u32,
    directory: Table<'a, Word, 4>,
    entries: Table<'a, Entry, 16>,
    groups: Table<'a, Word, 4>,
    items: Table<'a, Item, 16>,
    pub(crate) blob: &'a [u8],
}

impl<'a> Overrides<'a> {
    /// Of bytes that were validated before.
    pub(crate) fn of(bytes: &'a [u8]) -> Self {
        let section = |which: OverridesSection| place(bytes, HEADER + 8, which as usize).of(bytes);
        let Span { start: index, length: bits } = place(bytes, HEADER, 0);
        Self {
            index,
            bits,
            directory: Table::new(section(OverridesSection::Directory)),
            entries: Table::new(section(OverridesSection::Entries)),
            groups: Table::new(section(OverridesSection::Groups)),
            items: Table::new(section(OverridesSection::Items)),
            blob: section(OverridesSection::Blob),
        }
    }

    /// How many identifiers it has.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// What the identifier with this hash has instead.
    pub(crate) fn find(&self, hash: &Hash96) -> Option<Table<'a, Item, 16>> {
        if leading(hash, 0, self.bits) != self.index {
            return None;
        }
        let depth = (self.directory.len().checked_sub(1)?).checked_ilog2()?;
        let bucket = leading(hash, self.bits, depth);
        let (start, end) = (self.directory.get(bucket)?.word, self.directory.get(bucket + 1)?.word);
        let entry = self.entries.range(start, end.saturating_sub(start)).iter().find(|entry| entry.hash == *hash)?;
        let (first, end) = (self.groups.get(entry.group)?.word, self.groups.get(entry.group + 1)?.word);
        Some(self.items.range(first, end.saturating_sub(first)))
    }

    /// Everybody, by the hash of the identifier.
    pub(crate) fn each(self) -> impl Iterator<Item = (Hash96, Table<'a, Item, 16>)> {
        self.entries.iter().filter_map(move |entry| {
            let (first, end) = (self.groups.get(entry.group)?.word, self.groups.get(entry.group + 1)?.word);
            Some((entry.hash, self.items.range(first, end.saturating_sub(first))))
        })
    }

    /// Validates an overrides file of the environment with this fingerprint, and tells its slot.
    pub(crate) fn validate(bytes: &'a [u8], fingerprint: Fingerprint) -> Result<usize, ReadError> {
        let header = read_header(bytes, OVERRIDES_MAGIC, "REMORA<SUB>O", OVERRIDES_START)?;
        if header.fingerprint != fingerprint {
            return Err(ReadError::OtherEnvironment);
        }
        for number in 0..=OverridesSection::Blob as usize {
            span_of(bytes, place(bytes, HEADER + 8, number), number)?;
        }
        let it = Self::of(bytes);
        let malformed = |part, index, problem| ReadError::Malformed { part, index, problem };
        let slots = files::OVERRIDES_SLOTS;
        if it.bits > slots.trailing_zeros() || it.index >= 1 << it.bits {
            return Err(ReadError::UnknownSlot(it.index as usize));
        }
        if !(it.directory.len().wrapping_sub(1)).is_power_of_two() {
            return Err(malformed("directory", 0, "its size is not a power of two and one"));
        }
        ascending("directory", it.directory, it.entries.len())?;
        ascending("group", it.groups, it.items.len())?;
        for (index, entry) in it.entries.iter().enumerate() {
            if entry.group as usize + 1 >= it.groups.len() {
                return Err(malformed("entry", index, "its group does not exist"));
            }
        }
        for (index, item) in it.items.iter().enumerate() {
            if !value_of(item).within(it.blob) {
                return Err(malformed("item", index, "its value is outside"));
            }
        }
        if std::str::from_utf8(it.blob).is_err() {
            return Err(malformed("blob", 0, "it is not UTF-8"));
        }
        Ok(it.index as usize)
    }
}

/// Bounds must not go down, nor beyond what they divide.
fn ascending(part: &'static str, bounds: Table<'_, Word, 4>, limit: usize) -> Result<(), ReadError> {
    let mut last = 0;
    for (index, bound) in bounds.iter().enumerate() {
        if bound.word < last || bound.word as usize > limit {
            return Err(ReadError::Malformed { part, index, problem: "its bound is out of order" });
        }
        last = bound.word;
    }
    Ok(())
}

pub(crate) fn value_of(item: Item) -> Span {
    Span { start: item.value, length: item.value_length & crate::layout::LENGTH_MASK }
}
