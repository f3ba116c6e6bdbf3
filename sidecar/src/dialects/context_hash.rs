//! Hashes of an OFREP context, for the entity tag of its answer.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write as _;

use remora_snapshot::{Revision, Role};

use crate::json::Value;

/// One trait of a context: hash of its name, position, and hash of its value if the trait is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TraitHash {
    name: u64,
    position: usize,
    value: Option<u64>,
}

impl TraitHash {
    /// Hashes the trait at this position of its context.
    pub(crate) fn of(position: usize, name: &str, value: Value<'_>, scratch: &mut String) -> TraitHash {
        TraitHash { name: hash(name), position, value: hash_value(value, scratch) }
    }

    /// Hashes a trait whose value is the text of a list or of an object. `None`: the trait is not set.
    pub(crate) fn of_printed(position: usize, name: &str, text: Option<&str>) -> TraitHash {
        TraitHash { name: hash(name), position, value: text.map(|text| hash((TEXT, text))) }
    }
}

fn hash(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Kind of a hashed value that is a text.
const TEXT: i32 = 4;

fn hash_value(value: Value<'_>, scratch: &mut String) -> Option<u64> {
    match value {
        Value::Null | Value::Array | Value::Object => None,
        Value::Bool(value) => Some(hash((1, value))),
        Value::Integer(digits) => Some(hash((2, digits))),
        Value::Float(float) => Some(hash((3, float.value().to_bits()))),
        Value::String(text) => Some(hash((TEXT, text.decode(scratch)))),
    }
}

/// Returns the hash of a context. The order of its members does not change it.
pub(crate) fn context_hash(identifier: &str, trait_hashes: &mut [TraitHash]) -> u64 {
    trait_hashes.sort_unstable();
    let mut hasher = DefaultHasher::new();
    identifier.hash(&mut hasher);
    let mut trait_hashes = trait_hashes.iter().peekable();
    while let Some(hashed) = trait_hashes.next() {
        // If a name is repeated, the last value counts.
        if trait_hashes.peek().is_some_and(|next| next.name == hashed.name) {
            continue;
        }
        if let Some(value) = hashed.value {
            (hashed.name, value).hash(&mut hasher);
        }
    }
    hasher.finish()
}

/// Entity tag of a bulk answer, with its quotes.
pub(crate) struct Tag([u8; 31]);

impl Tag {
    /// Creates the tag from the data that is served, the role and the hash of the context. `content_hash` is that of all bytes
    /// that are served; the revision alone does not cover the overrides files.
    pub(crate) fn of(revision: Revision, content_hash: u64, role: Role, context: u64) -> Tag {
        let role = match role {
            Role::Client => 0u8,
            Role::Server => 1,
        };
        let mut tag = [0; 31];
        // A revision has 12 digits, so the text has as many bytes as the array.
        let _ = write!(tag.as_mut_slice(), "\"{revision}-{:016x}\"", hash((content_hash, role, context)));
        Tag(tag)
    }

    /// Returns the tag as text.
    pub(crate) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tag_has_the_revision_and_sixteen_digits() {
        let of = |state, role| Tag::of(Revision::default(), state, role, 0).as_str().to_owned();
        let tag = of(1, Role::Client);
        let digits = tag.strip_prefix("\"000000000000-").and_then(|rest| rest.strip_suffix('"')).unwrap();
        assert!(digits.len() == 16 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()), "{tag}");
        assert_ne!(tag, of(2, Role::Client));
        assert_ne!(tag, of(1, Role::Server));
    }

    #[test]
    fn context_hash_ignores_order_and_replaced_values() {
        let of = |traits: &[(&str, Option<u64>)]| {
            let mut trait_hashes: Vec<TraitHash> = traits
                .iter()
                .enumerate()
                .map(|(position, &(name, value))| TraitHash { name: hash(name), position, value })
                .collect();
            context_hash("somebody", &mut trait_hashes)
        };
        assert_eq!(of(&[("a", Some(1)), ("b", Some(2))]), of(&[("b", Some(2)), ("a", Some(1))]));
        assert_eq!(of(&[("a", Some(9)), ("a", Some(1))]), of(&[("a", Some(1))]));
        assert_eq!(of(&[("a", None), ("b", Some(2))]), of(&[("b", Some(2))]));
        assert_eq!(of(&[("b", Some(1)), ("b", None)]), of(&[]));
        assert_ne!(of(&[("a", Some(1))]), of(&[("a", Some(2))]));
        assert_ne!(of(&[("a", Some(1))]), of(&[("b", Some(1))]));
        assert_ne!(of(&[]), context_hash("somebody else", &mut []));
    }
}
