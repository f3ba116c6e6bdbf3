//! Strings of JSON: in a body, decoded, and encoded again.

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

/// Number of bytes before the first one that a string cannot contain as it is: a quote, a backslash, or a control
/// character. It tests eight bytes at a time, because most of a body goes through it.
#[inline(always)]
pub(super) fn plain(bytes: &[u8]) -> usize {
    const LOW: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    // The common SWAR test: the subtraction sets the highest bit of the first byte that is below the limit. It may also
    // set that of later bytes, and keeps it in bytes that had it set. XOR with 2 makes the quote 0x20, directly above
    // the control characters, which stay below it.
    let below = |word: u64, limit: u8| word.wrapping_sub(LOW * u64::from(limit));
    let special = |word: u64| {
        let low = below(word ^ (LOW * 2), b'"' ^ 2 | 1);
        let backslash = below(word ^ (LOW * u64::from(b'\\')), 1);
        (low | backslash) & !word & HIGH
    };
    let mut rest = bytes;
    while let Some((word, after)) = rest.split_first_chunk() {
        let found = special(u64::from_le_bytes(*word));
        if found != 0 {
            return bytes.len() - rest.len() + found.trailing_zeros() as usize / 8;
        }
        rest = after;
    }
    bytes.len() - rest.len() + plain_end(rest)
}

/// The same for the last bytes, fewer than eight.
#[cold]
fn plain_end(bytes: &[u8]) -> usize {
    let special = |byte: &u8| *byte == b'"' || *byte == b'\\' || *byte < 0x20;
    bytes.iter().position(special).unwrap_or(bytes.len())
}

/// Appends `text` as a JSON string: raw UTF-8, with the escapes that JSON requires and no others.
pub(crate) fn write_string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    let mut rest = text.as_bytes();
    loop {
        let (plain, tail) = rest.split_at_checked(plain(rest)).unwrap_or((rest, &[]));
        out.extend_from_slice(plain);
        let Some((&byte, after)) = tail.split_first() else { break };
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0x8 => out.extend_from_slice(b"\\b"),
            0xc => out.extend_from_slice(b"\\f"),
            control => {
                let digit = |nibble: u8| if nibble < 10 { b'0' + nibble } else { b'a' + nibble - 10 };
                out.extend_from_slice(b"\\u00");
                out.push(digit(control >> 4));
                out.push(digit(control & 15));
            }
        }
        rest = after;
    }
    out.push(b'"');
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
