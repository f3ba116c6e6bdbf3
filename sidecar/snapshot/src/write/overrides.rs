//! The writer of overrides files: a hash table from identifiers to overrides.

use std::collections::BTreeMap;

use super::blob::{Blob, offset, value_length};
use super::{WriteError, check, head, put};
use crate::format::overrides::leading;
use crate::format::{
    files::OVERRIDES_SLOTS,
    layout::{Bucket, Entry, HAS_VARIANT, HEADER, Item, OVERRIDES_MAGIC, OVERRIDES_START, WEIGHT, WEIGHT_MASK},
    model::{IdentityFlag, IdentityOverride, IdentityVariant},
};
use crate::values::{
    hash::{Fingerprint, Hash96},
    json,
    rows::{Row, Span},
};

/// Average number of entries in a bucket of the directory.
const BUCKET: usize = 4;

/// All identities, sorted by the hash of the identifier, so that the overrides of each file are adjacent.
pub(super) struct AllOverrides<'a> {
    fingerprint: Fingerprint,
    sorted: Vec<(Hash96, Vec<&'a IdentityFlag>)>,
}

impl<'a> AllOverrides<'a> {
    pub(super) fn of(overrides: &'a [IdentityOverride], fingerprint: Fingerprint) -> Self {
        let mut sorted: Vec<_> = overrides
            .iter()
            .map(|identity| {
                let mut flags: Vec<&IdentityFlag> = identity.flags.iter().collect();
                flags.sort_unstable_by_key(|flag| flag.feature);
                (fingerprint.hash96(identity.identifier.as_bytes()), flags)
            })
            .collect();
        sorted.sort_unstable_by_key(|(hash, _)| *hash);
        Self { fingerprint, sorted }
    }

    /// Returns false if the entries alone exceed one file of `limit` bytes.
    pub(super) fn may_fit(&self, limit: usize) -> bool {
        self.sorted.len() * 16 <= limit.min(Bucket::MOST_ENTRIES * 16)
    }

    /// Writes all overrides into one file.
    pub(super) fn whole(&self) -> Result<Vec<u8>, WriteError> {
        write(&self.sorted, self.fingerprint, 0, 0)
    }

    /// Writes the overrides into the smallest number of files that hold them, a power of two, and returns the number of
    /// leading hash bits that choose the file. A changed identity changes one file, and a new identity moves no other.
    pub(super) fn divided(&self, limit: usize) -> Result<(u32, Vec<Vec<u8>>), WriteError> {
        // A file of this size has no more entries than its directory can address.
        let limit = limit.min(Bucket::MOST_ENTRIES * 16);
        let mut bytes = 0;
        for bits in 0..=OVERRIDES_SLOTS.trailing_zeros() {
            let last = bits == OVERRIDES_SLOTS.trailing_zeros();
            // Skip a number of files that the entries alone exceed.
            if !last && self.sorted.len() * 16 > limit << bits {
                continue;
            }
            let shards: Vec<Vec<u8>> = (0..1 << bits)
                .map(|index| {
                    let start = self.sorted.partition_point(|(hash, _)| leading(hash, 0, bits) < index);
                    let end = self.sorted.partition_point(|(hash, _)| leading(hash, 0, bits) <= index);
                    write(self.sorted.get(start..end).unwrap_or_default(), self.fingerprint, index, bits)
                })
                .collect::<Result<_, _>>()?;
            bytes = shards.iter().map(Vec::len).sum();
            if shards.iter().all(|shard| shard.len() <= limit) {
                return Ok((bits, shards));
            }
        }
        Err(WriteError::OverridesTooLarge { count: self.sorted.len(), bytes, slots: OVERRIDES_SLOTS, limit })
    }
}

/// Writes overrides whose hashes begin with `index` in their first `bits` bits.
fn write(
    mine: &[(Hash96, Vec<&IdentityFlag>)],
    fingerprint: Fingerprint,
    index: u32,
    bits: u32,
) -> Result<Vec<u8>, WriteError> {
    // Groups are sorted by content, so that the bytes do not depend on the order of identities.
    let mut groups: BTreeMap<&[&IdentityFlag], u32> = mine.iter().map(|(_, flags)| (flags.as_slice(), 0)).collect();
    for (number, group) in groups.values_mut().enumerate() {
        *group = number as u32; // at most as many as entries
    }
    let (mut blob, mut items, mut bounds) = (Blob::new(usize::MAX), Vec::new(), vec![0_u32]);
    for flags in groups.keys() {
        for flag in *flags {
            let value = blob.intern(flag.value.as_bytes())?;
            let value_length = value_length(value.length, flag.enabled)?;
            let mark = if flag.variant.is_some() { HAS_VARIANT } else { 0 };
            let value_length = value_length | mark;
            items.extend_from_slice(&Item { feature: flag.feature, value: value.start, value_length }.encode());
            if let Some(variant) = &flag.variant {
                items.extend_from_slice(&describe(flag.feature, variant, &mut blob)?.encode());
            }
        }
        bounds.push(offset(items.len() / 16)?);
    }

    let depth = mine.len().div_ceil(BUCKET).next_power_of_two().trailing_zeros();
    let mut directory = Vec::with_capacity((1 << depth) + 1);
    let mut entries = Vec::with_capacity(mine.len() * 16);
    for (position, (hash, flags)) in mine.iter().enumerate() {
        let bucket = leading(hash, bits, depth) as usize;
        while directory.len() <= bucket {
            directory.push(Bucket::new(position as u32));
        }
        if let Some(bucket) = directory.last_mut() {
            bucket.add(hash);
        }
        let group = groups.get(flags.as_slice()).copied().unwrap_or_default();
        entries.extend_from_slice(&Entry { hash: *hash, group }.encode());
    }
    while directory.len() <= 1 << depth {
        directory.push(Bucket::new(mine.len() as u32));
    }

    let directory = directory.iter().flat_map(Row::encode).collect();
    lay_out(fingerprint, index, bits, &[directory, entries, words(&bounds), items, blob.bytes])
}

/// Returns the item that describes the variant of the flag before it.
fn describe(feature: i64, variant: &IdentityVariant, blob: &mut Blob) -> Result<Item, WriteError> {
    let (mut text, mut weight) = (String::new(), 0);
    if let IdentityVariant::Variant { key, weight_text } = variant {
        if let Some(key) = key {
            json::write_string(key, &mut text);
        }
        weight = WEIGHT_MASK.min(offset(weight_text.len())?);
    }
    let key = value_length(offset(text.len())?, false)?;
    if let IdentityVariant::Variant { weight_text, .. } = variant {
        text.push_str(weight_text.get(..weight as usize).unwrap_or_default());
    }
    Ok(Item { feature, value: blob.intern(text.as_bytes())?.start, value_length: key | weight << WEIGHT })
}

fn lay_out(fingerprint: Fingerprint, index: u32, bits: u32, sections: &[Vec<u8>; 5]) -> Result<Vec<u8>, WriteError> {
    let mut file = vec![0; OVERRIDES_START];
    put(&mut file, HEADER, &index.to_le_bytes());
    put(&mut file, HEADER + 4, &bits.to_le_bytes());
    for (number, content) in sections.iter().enumerate() {
        while !file.len().is_multiple_of(8) {
            file.push(0);
        }
        let place = Span { start: offset(file.len())?, length: offset(content.len())? };
        file.extend_from_slice(content);
        let at = HEADER + 8 + number * 8;
        put(&mut file, at, &place.start.to_le_bytes());
        put(&mut file, at + 4, &place.length.to_le_bytes());
    }
    head(&mut file, OVERRIDES_MAGIC, fingerprint);
    check(&mut file);
    Ok(file)
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}
