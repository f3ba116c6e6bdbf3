//! Strings of JSON: in a body, decoded, and encoded again.

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
        let mut rest = self.raw;
        while let Some((plain, after)) = rest.split_once('\\') {
            out.push_str(plain);
            let mut characters = after.chars();
            match characters.next() {
                Some('b') => out.push('\u{8}'),
                Some('f') => out.push('\u{c}'),
                Some('n') => out.push('\n'),
                Some('r') => out.push('\r'),
                Some('t') => out.push('\t'),
                Some('u') => {
                    let (unit, tail) = code_unit(characters.as_str());
                    characters = tail.chars();
                    if (0xd800..0xdc00).contains(&unit) {
                        // The reader has checked that a low surrogate follows.
                        let (low, tail) = code_unit(tail.strip_prefix("\\u").unwrap_or_default());
                        characters = tail.chars();
                        let scalar = 0x10000 + ((unit & 0x3ff) << 10) + (low & 0x3ff);
                        out.extend(char::from_u32(scalar));
                    } else {
                        out.extend(char::from_u32(unit));
                    }
                }
                Some(itself) => out.push(itself),
                None => {}
            }
            rest = characters.as_str();
        }
        out.push_str(rest);
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

/// Returns the value of the four hexadecimal digits at the start of `text`, and the rest.
fn code_unit(text: &str) -> (u32, &str) {
    let (digits, rest) = text.split_at_checked(4).unwrap_or((text, ""));
    (u32::from_str_radix(digits, 16).unwrap_or_default(), rest)
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
