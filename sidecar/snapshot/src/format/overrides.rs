//! Identity overrides: finds the file and the override of an identifier.

use crate::ReadError;
use crate::format::{
    files,
    header::{read_header, span_of},
    layout::{Bucket, Entry, HEADER, Item, OVERRIDES_MAGIC, OVERRIDES_START, OverridesSection, Word},
    view::section_entry,
};
use crate::values::{
    hash::{Fingerprint, Hash96},
    rows::{Span, Table},
};

/// Position of the division in the origin's flags.
const DIVISION: u32 = 8;

/// Returns the origin's flags with the number of leading hash bits that choose the overrides file.
pub(crate) fn with_division(flags: u32, bits: u32) -> u32 {
    flags | (bits + 1) << DIVISION
}

/// Returns the number of leading hash bits that choose the overrides file. `None` if the core has all overrides, or if
/// its writer's version did not state the number.
fn division(flags: u32) -> Option<u32> {
    let bits = (flags >> DIVISION & 0xff).checked_sub(1)?;
    (bits <= files::OVERRIDES_SLOTS.trailing_zeros()).then_some(bits)
}

/// Overrides files by slot. They may belong to several revisions.
#[derive(Debug, Clone)]
pub(crate) struct Shards<B>([Option<B>; files::OVERRIDES_SLOTS]);

impl<B: AsRef<[u8]>> Shards<B> {
    pub(crate) fn none() -> Self {
        Self([const { None }; files::OVERRIDES_SLOTS])
    }

    /// Validates a file of the environment with this fingerprint, and replaces the file in its slot.
    pub(crate) fn attach(&mut self, file: B, fingerprint: Fingerprint) -> Result<(), ReadError> {
        let slot = Overrides::validate(file.as_ref(), fingerprint)?;
        self.put(slot, file)
    }

    /// Validates a file under the name of a slot, and replaces the file in that slot.
    pub(crate) fn attach_to(&mut self, slot: usize, file: B, fingerprint: Fingerprint) -> Result<(), ReadError> {
        match Overrides::validate(file.as_ref(), fingerprint)? {
            found if found == slot => self.put(slot, file),
            found => Err(ReadError::OtherSlot { found, named: slot }),
        }
    }

    fn put(&mut self, slot: usize, file: B) -> Result<(), ReadError> {
        *self.0.get_mut(slot).ok_or(ReadError::UnknownSlot(slot))? = Some(file);
        Ok(())
    }

    /// Removes the files that do not count once every file that the core states is there. Returns the number of slots
    /// whose files count; `None` if all files count.
    pub(crate) fn drop_leftovers(&mut self, flags: u32) -> Option<usize> {
        let bits = division(flags)?;
        let slots = 1 << bits;
        let (own, others) = self.0.split_at_mut_checked(slots)?;
        let is_own = |file: &Option<B>| file.as_ref().is_some_and(|file| Overrides::of(file.as_ref()).bits == bits);
        own.iter().all(is_own).then(|| {
            others.fill_with(|| None);
            slots
        })
    }

    /// Removes all files.
    pub(crate) fn drop_all(&mut self) {
        self.0.fill_with(|| None);
    }

    pub(crate) fn size(&self) -> usize {
        self.0.iter().flatten().map(|file| file.as_ref().len()).sum()
    }

    /// Returns the files that match the core's division. Other files are leftovers of a revision with more or fewer
    /// files.
    pub(crate) fn belonging(&self, flags: u32) -> impl Iterator<Item = Overrides<'_>> {
        let division = division(flags);
        self.each().filter(move |file| division.is_none_or(|bits| file.bits == bits))
    }

    /// Returns the number of files that the core states.
    pub(crate) fn expected(flags: u32) -> Option<usize> {
        division(flags).map(|bits| 1 << bits)
    }

    /// Returns true if every identifier has a file, even if only of another revision.
    pub(crate) fn cover(&self, flags: u32) -> bool {
        const { assert!(files::OVERRIDES_SLOTS == u64::BITS as usize, "a bit for each of the narrowest files") };
        let run = |file: Overrides<'_>| {
            let width = u64::BITS >> file.bits;
            (u64::MAX >> (u64::BITS - width)) << (file.index * width)
        };
        division(flags).is_none() || self.each().fold(0, |covered, file| covered | run(file)) == u64::MAX
    }

    /// Finds the override of an identifier by its hash. The file that the core states decides. If it is missing, a file
    /// of another division may have the override, because files arrive one after another.
    pub(crate) fn find(&self, flags: u32, hash: &Hash96) -> Option<(Table<'_, Item, 16>, &[u8])> {
        let right = division(flags).and_then(|bits| {
            let file = Overrides::of(self.0.get(leading(hash, 0, bits) as usize)?.as_ref()?.as_ref());
            (file.bits == bits).then_some(file)
        });
        match right {
            Some(file) => Some((file.find(hash)?, file.blob)),
            None => self.each().find_map(|file| Some((file.find(hash)?, file.blob))),
        }
    }

    fn each(&self) -> impl Iterator<Item = Overrides<'_>> {
        self.0.iter().flatten().map(|file| Overrides::of(file.as_ref()))
    }
}

/// The tables of an overrides file.
#[derive(Clone, Copy)]
pub(crate) struct Overrides<'a> {
    index: u32,
    bits: u32,
    directory: Table<'a, Bucket, 4>,
    entries: Table<'a, Entry, 16>,
    groups: Table<'a, Word, 4>,
    items: Table<'a, Item, 16>,
    pub(crate) blob: &'a [u8],
}

impl<'a> Overrides<'a> {
    /// Creates the tables of validated bytes.
    pub(crate) fn of(bytes: &'a [u8]) -> Self {
        let section = |which: OverridesSection| section_entry(bytes, HEADER + 8, which as usize).of(bytes);
        let Span { start: index, length: bits } = section_entry(bytes, HEADER, 0);
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

    /// Number of identifiers in the file.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Finds the override of an identifier by its hash.
    pub(crate) fn find(&self, hash: &Hash96) -> Option<Table<'a, Item, 16>> {
        if leading(hash, 0, self.bits) != self.index {
            return None;
        }
        let depth = (self.directory.len().checked_sub(1)?).checked_ilog2()?;
        let bucket = leading(hash, self.bits, depth);
        let start = self.directory.get(bucket).filter(|bucket| bucket.may_have(hash))?.start();
        let end = self.directory.get(bucket + 1)?.start();
        let entry = self.entries.range(start, end.saturating_sub(start)).iter().find(|entry| entry.hash == *hash)?;
        let (first, end) = (self.groups.get(entry.group)?.word, self.groups.get(entry.group + 1)?.word);
        Some(self.items.range(first, end.saturating_sub(first)))
    }

    /// Iterates over all identifiers, as hashes, with their overrides.
    pub(crate) fn each(self) -> impl Iterator<Item = (Hash96, Table<'a, Item, 16>)> {
        self.entries.iter().filter_map(move |entry| {
            let (first, end) = (self.groups.get(entry.group)?.word, self.groups.get(entry.group + 1)?.word);
            Some((entry.hash, self.items.range(first, end.saturating_sub(first))))
        })
    }

    /// Validates an overrides file of the environment with this fingerprint, and returns its slot.
    pub(crate) fn validate(bytes: &'a [u8], fingerprint: Fingerprint) -> Result<usize, ReadError> {
        let header = read_header(bytes, OVERRIDES_MAGIC, "REMORA<SUB>O", OVERRIDES_START)?;
        if header.fingerprint != fingerprint {
            return Err(ReadError::OtherEnvironment);
        }
        for number in 0..=OverridesSection::Blob as usize {
            span_of(bytes, section_entry(bytes, HEADER + 8, number), number)?;
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
        ascending("directory", it.directory.iter().map(Bucket::start), it.entries.len())?;
        ascending("group", it.groups.iter().map(|bound| bound.word), it.items.len())?;
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

/// Checks that bounds ascend and do not exceed the number of rows that they divide.
fn ascending(part: &'static str, bounds: impl Iterator<Item = u32>, limit: usize) -> Result<(), ReadError> {
    let mut last = 0;
    for (index, bound) in bounds.enumerate() {
        if bound < last || bound as usize > limit {
            return Err(ReadError::Malformed { part, index, problem: "its bound is out of order" });
        }
        last = bound;
    }
    Ok(())
}

pub(crate) fn value_of(item: Item) -> Span {
    Span { start: item.value, length: item.value_length & crate::format::layout::LENGTH_MASK }
}

/// Returns `count` bits of a hash after the first `skip` bits. `skip + count` is at most 64.
pub(crate) fn leading(hash: &Hash96, skip: u32, count: u32) -> u32 {
    let [a, b, c, d, e, f, g, h, ..] = *hash;
    let word = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
    if count == 0 { 0 } else { ((word << skip) >> (64 - count)) as u32 }
}
