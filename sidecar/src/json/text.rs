//! Strings of JSON: in a body, decoded, and encoded again.

use remora_snapshot::json::decode;
pub(super) use remora_snapshot::json::plain;
pub(crate) use remora_snapshot::json::write_string_to_bytes as write_string;

/// A string in a body, without its quotes. Its escapes are valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Text<'a> {
    pub(super) raw: &'a str,
    pub(super) escaped: bool,
}

impl<'a> Text<'a> {
    /// Creates a string from characters that need no escapes.
    pub(crate) fn plain_of(raw: &'a str) -> Self {
        Self { raw, escaped: false }
    }

    /// Returns the decoded characters. `scratch` is only written if the string has an escape.
    pub(crate) fn decode<'s>(self, scratch: &'s mut String) -> &'s str
    where
        'a: 's,
    {
        if !self.escaped {
            return self.raw;
        }
        scratch.clear();
        self.decode_into(scratch);
        scratch
    }

    /// Appends the decoded characters.
    pub(crate) fn decode_into(self, out: &mut String) {
        // The reader has checked the escapes.
        let _ = decode(self.raw, out);
    }

    /// Returns the characters, if the string has no escapes.
    pub(crate) fn plain(self) -> Option<&'a str> {
        (!self.escaped).then_some(self.raw)
    }

    /// True if the decoded characters equal `name`.
    pub(crate) fn is(self, name: &str) -> bool {
        match self.plain() {
            Some(plain) => plain == name,
            None => self.decode(&mut String::new()) == name,
        }
    }

    /// True if the string is empty.
    pub(crate) fn is_empty(self) -> bool {
        self.raw.is_empty()
    }

    /// True if the string may have more than `limit` characters, by its length in bytes, which is never smaller.
    #[inline(always)]
    pub(crate) fn may_be_longer_than(self, limit: usize) -> bool {
        self.raw.len() > limit
    }

    /// True if the string has more than `limit` characters.
    pub(crate) fn is_longer_than(self, limit: usize, scratch: &mut String) -> bool {
        self.may_be_longer_than(limit) && self.decode(scratch).chars().count() > limit
    }
}

/// Appends a string of the body in the form of [`write_string`].
pub(crate) fn write_text(text: Text<'_>, scratch: &mut String, out: &mut Vec<u8>) {
    match text.plain() {
        Some(plain) => {
            out.push(b'"');
            out.extend_from_slice(plain.as_bytes());
            out.push(b'"');
        }
        None => write_string(text.decode(scratch), out),
    }
}
