//! JSON strings: writing them like the edge proxy (raw UTF-8, minimal escapes), and decoding them.

/// Appends `text` as a JSON string.
pub fn write_string(text: &str, out: &mut String) {
    write_pieces(text, |piece| out.push_str(piece));
}

/// Appends `text` as a JSON string.
pub fn write_string_to_bytes(text: &str, out: &mut Vec<u8>) {
    write_pieces(text, |piece| out.extend_from_slice(piece.as_bytes()));
}

/// Passes the pieces of a JSON string to `push`: raw UTF-8, with the escapes that JSON requires and no others.
#[inline(always)]
fn write_pieces(text: &str, mut push: impl FnMut(&str)) {
    push("\"");
    let mut rest = text;
    loop {
        let (plain, tail) = rest.split_at_checked(plain(rest.as_bytes())).unwrap_or((rest, ""));
        push(plain);
        let mut characters = tail.chars();
        match characters.next() {
            None => break,
            Some('"') => push("\\\""),
            Some('\\') => push("\\\\"),
            Some('\n') => push("\\n"),
            Some('\r') => push("\\r"),
            Some('\t') => push("\\t"),
            Some('\u{8}') => push("\\b"),
            Some('\u{c}') => push("\\f"),
            Some(control) => {
                push("\\u00");
                let mut digits = u32::from(control);
                for _ in 0..2 {
                    let digit = char::from_digit(digits >> 4 & 15, 16).unwrap_or('0');
                    push(digit.encode_utf8(&mut [0; 4]));
                    digits <<= 4;
                }
            }
        }
        rest = characters.as_str();
    }
    push("\"");
}

/// Number of bytes before the first one that a string cannot contain as it is: a quote, a backslash, or a control
/// character. It tests eight bytes at a time, because most of a body goes through it.
#[inline(always)]
#[must_use]
pub fn plain(bytes: &[u8]) -> usize {
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

/// Appends the content of a JSON string that [`write_string`] made. `None` if it is not one.
pub(crate) fn read_string(token: &str, out: &mut String) -> Option<()> {
    decode(token.strip_prefix('"')?.strip_suffix('"')?, out)
}

/// Appends the characters of a JSON string without its quotes. `None` if an escape is incomplete, or is half of a
/// surrogate pair; what precedes it is appended.
pub fn decode(content: &str, out: &mut String) -> Option<()> {
    let mut rest = content;
    while let Some((plain, behind)) = rest.split_once('\\') {
        out.push_str(plain);
        let mut characters = behind.chars();
        out.push(match characters.next()? {
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'u' => {
                let (unit, behind) = code_unit(characters.as_str())?;
                let (character, behind) = match unit {
                    0xd800..0xdc00 => {
                        let (low, behind) = code_unit(behind.strip_prefix("\\u")?)?;
                        let low = low.checked_sub(0xdc00).filter(|low| *low < 0x400)?;
                        (0x10000 + ((unit & 0x3ff) << 10) + low, behind)
                    }
                    _ => (unit, behind),
                };
                characters = behind.chars();
                char::from_u32(character)?
            }
            itself => itself,
        });
        rest = characters.as_str();
    }
    out.push_str(rest);
    Some(())
}

/// Returns the value of the four hexadecimal digits at the start of a text, and the rest.
fn code_unit(text: &str) -> Option<(u32, &str)> {
    let (digits, rest) = text.split_at_checked(4)?;
    Some((u32::from_str_radix(digits, 16).ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_written_and_read_are_equal_with_minimal_escapes() {
        for (text, written) in [
            ("", r#""""#),
            ("a\"b\\c", r#""a\"b\\c""#),
            ("wörld </>\u{7f}\u{2028}", "\"wörld </>\u{7f}\u{2028}\""),
            ("\0\u{1f}\n\r\t\u{8}\u{c}", r#""\u0000\u001f\n\r\t\b\f""#),
        ] {
            let mut out = String::new();
            write_string(text, &mut out);
            assert_eq!(out, written);
            let mut back = String::new();
            read_string(&out, &mut back).unwrap();
            assert_eq!(back, text);
        }
    }

    #[test]
    fn escape_beyond_minimal_ones_is_decoded_and_incomplete_one_is_not() {
        let decoded = |content: &str| {
            let mut out = String::new();
            decode(content, &mut out).map(|()| out)
        };
        assert_eq!(decoded(r"a\/\u00e9\ud83e\udd88b").as_deref(), Some("a/é🦈b"));
        for content in [r"\", r"\u12", r"\ud83e", r"\ud83ex", r"\ud83e\u0041", r"\udd88"] {
            assert_eq!(decoded(content), None, "{content}");
        }
    }
}
