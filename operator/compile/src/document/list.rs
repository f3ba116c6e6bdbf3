//! Parser of a JSON array as Python's `json` reads it, with its members as `str` prints them: `NaN` is a number, and
//! nested values are printed as Python's `repr`.

use std::sync::LazyLock;

use remora_snapshot::model::{Members, MembersBuilder};
use remora_snapshot::{Integer, PYTHON_INT_DIGITS, write_float};

use crate::python;

/// Maximum nesting depth of arrays and objects.
const DEEPEST: u32 = 128;

/// Returns the members of a JSON array as Python's `str` prints them. Members with lone surrogates are omitted, because
/// no text contains any.
///
/// # Errors
/// Python reads no array from the text, or a limit is exceeded. The error describes the problem.
pub(crate) fn list(text: &str) -> Result<Members, String> {
    let mut reader = Reader { rest: text, depth: 0, members: MembersBuilder::default() };
    if !reader.takes("[") {
        return Err("expected an array".to_owned());
    }
    reader.each(']', |reader| {
        let start = reader.members.start();
        let is_text = reader.member()?;
        if is_text {
            return reader.members.end_member().map_err(|problem| problem.to_string());
        }
        reader.members.text.truncate(start);
        Ok(())
    })?;
    reader.skip_spaces();
    if reader.rest.is_empty() { Ok(reader.members.finish()) } else { Err(reader.problem("the end")) }
}

/// Writes Python's `repr` of a string.
fn write_repr(text: &str, printed: &mut String) {
    static UNPRINTABLE: LazyLock<Vec<(char, char)>> = LazyLock::new(|| python::ranges(r"[\p{C}\p{Z}--\x20]"));
    let is_printable = |c: char| {
        let at = UNPRINTABLE.partition_point(|(_, high)| *high < c);
        UNPRINTABLE.get(at).is_none_or(|(low, _)| c < *low)
    };
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    printed.push(quote);
    for c in text.chars() {
        let point = u32::from(c);
        match c {
            '\n' => printed.push_str("\\n"),
            '\r' => printed.push_str("\\r"),
            '\t' => printed.push_str("\\t"),
            '\\' => printed.push_str("\\\\"),
            c if c == quote => printed.extend(['\\', c]),
            c if is_printable(c) => printed.push(c),
            _ if point < 0x100 => printed.push_str(&format!("\\x{point:02x}")),
            _ if point < 0x1_0000 => printed.push_str(&format!("\\u{point:04x}")),
            _ => printed.push_str(&format!("\\U{point:08x}")),
        }
    }
    printed.push(quote);
}

/// Parser of JSON that writes each value as Python prints it. Its functions return true if the value is text without
/// lone surrogates, nested values included.
struct Reader<'a> {
    rest: &'a str,
    depth: u32,
    members: MembersBuilder,
}

/// A member of an object, with its byte offsets in the written text.
#[derive(Clone, Copy)]
struct Entry {
    start: u32,
    key_end: u32,
    end: u32,
    key_is_text: bool,
    value_is_text: bool,
}

impl Reader<'_> {
    fn problem(&self, wanted: &str) -> String {
        match self.rest.chars().next() {
            Some(c) => format!("expected {wanted}, found {c:?}"),
            None => format!("expected {wanted}, found the end"),
        }
    }

    fn skip_spaces(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\n', '\r']);
    }

    fn takes(&mut self, word: &str) -> bool {
        self.rest.strip_prefix(word).map(|rest| self.rest = rest).is_some()
    }

    fn write(&mut self, text: &str) {
        self.members.text.push_str(text);
    }

    /// Returns the number of bytes written.
    fn here(&self) -> Result<u32, String> {
        u32::try_from(self.members.text.len()).map_err(|_| "it is longer than 4 GiB".to_owned())
    }

    /// Parses items between commas, up to the closing bracket.
    fn each(&mut self, end: char, mut item: impl FnMut(&mut Self) -> Result<(), String>) -> Result<(), String> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(format!("nests more than {DEEPEST} deep"));
        }
        let mut taken = [0; 4];
        let end: &str = end.encode_utf8(&mut taken);
        self.skip_spaces();
        if !self.takes(end) {
            loop {
                self.skip_spaces();
                item(self)?;
                self.skip_spaces();
                if self.takes(end) {
                    break;
                }
                if !self.takes(",") {
                    return Err(self.problem("a comma"));
                }
            }
        }
        self.depth -= 1;
        Ok(())
    }

    /// Writes a member of the list: a string as it is, other values as their `repr`.
    fn member(&mut self) -> Result<bool, String> {
        if !self.takes("\"") {
            return self.value();
        }
        let text = self.string()?;
        self.write(text.as_deref().unwrap_or_default());
        Ok(text.is_some())
    }

    /// Writes the `repr` of a value.
    fn value(&mut self) -> Result<bool, String> {
        const NAMES: [(&str, &str); 6] = [
            ("null", "None"),
            ("true", "True"),
            ("false", "False"),
            ("NaN", "nan"),
            ("Infinity", "inf"),
            ("-Infinity", "-inf"),
        ];
        if let Some((_, printed)) = NAMES.iter().find(|(name, _)| self.takes(name)) {
            self.write(printed);
            return Ok(true);
        }
        if self.takes("[") {
            self.write("[");
            let (mut is_text, mut is_first) = (true, true);
            self.each(']', |reader| {
                reader.separate(&mut is_first);
                is_text &= reader.value()?;
                Ok(())
            })?;
            self.write("]");
            return Ok(is_text);
        }
        if self.takes("{") {
            return self.map();
        }
        if self.takes("\"") { self.quoted() } else { self.number() }
    }

    fn separate(&mut self, is_first: &mut bool) {
        if !*is_first {
            self.write(", ");
        }
        *is_first = false;
    }

    fn quoted(&mut self) -> Result<bool, String> {
        let text = self.string()?;
        write_repr(text.as_deref().unwrap_or_default(), &mut self.members.text);
        Ok(text.is_some())
    }

    fn map(&mut self) -> Result<bool, String> {
        self.write("{");
        let first = self.here()?;
        let mut entries: Vec<Entry> = Vec::new();
        let mut is_first = true;
        self.each('}', |reader| {
            reader.separate(&mut is_first);
            let start = reader.here()?;
            if !reader.takes("\"") {
                return Err(reader.problem("a name"));
            }
            let key_is_text = reader.quoted()?;
            let key_end = reader.here()?;
            reader.write(": ");
            reader.skip_spaces();
            if !reader.takes(":") {
                return Err(reader.problem("a colon"));
            }
            reader.skip_spaces();
            let value_is_text = reader.value()?;
            entries.push(Entry { start, key_end, end: reader.here()?, key_is_text, value_is_text });
            Ok(())
        })?;
        self.remove_duplicates(first, &mut entries);
        self.write("}");
        Ok(entries.iter().all(|entry| entry.key_is_text && entry.value_is_text))
    }

    /// Replaces members of equal names by one, with the value of the last at the place of the first.
    fn remove_duplicates(&mut self, first: u32, entries: &mut Vec<Entry>) {
        let text = |from: u32, to: u32| self.members.text.get(from as usize..to as usize).unwrap_or_default();
        let key = |entry: &Entry| entry.key_is_text.then(|| text(entry.start, entry.key_end));
        let mut order: Vec<u32> = (0..).take(entries.len()).collect();
        let of = |number: &u32| entries.get(*number as usize);
        order.sort_unstable_by_key(|number| (of(number).and_then(key), *number));
        let same =
            |a: &u32, b: &u32| matches!((of(a).and_then(key), of(b).and_then(key)), (Some(a), Some(b)) if a == b);
        if !order.iter().zip(order.iter().skip(1)).any(|(a, b)| same(a, b)) {
            return;
        }
        // Number of the first and of the last member with a name.
        let mut kept: Vec<(u32, u32)> = Vec::new();
        for group in order.chunk_by(same) {
            if let (Some(first), Some(last)) = (group.first(), group.last()) {
                kept.push((*first, *last));
            }
        }
        kept.sort_unstable();
        let mut written = String::new();
        let mut remaining = Vec::with_capacity(kept.len());
        for (number, last) in kept {
            let (Some(name), Some(value)) = (of(&number), of(&last)) else { continue };
            if !written.is_empty() {
                written.push_str(", ");
            }
            written.push_str(text(name.start, name.key_end));
            written.push_str(text(value.key_end, value.end));
            remaining.push(Entry { value_is_text: value.value_is_text, ..*name });
        }
        self.members.text.truncate(first as usize);
        self.members.text.push_str(&written);
        *entries = remaining;
    }

    /// Parses a string after its opening quote. Returns `None` if it contains lone surrogates.
    fn string(&mut self) -> Result<Option<String>, String> {
        let mut units: Vec<u16> = Vec::new();
        let mut characters = self.rest.chars();
        loop {
            match characters.next().ok_or("a string is not closed")? {
                '"' => break,
                '\\' => units.push(match characters.next() {
                    Some('n') => 0x0a,
                    Some('r') => 0x0d,
                    Some('t') => 0x09,
                    Some('b') => 0x08,
                    Some('f') => 0x0c,
                    Some(c @ ('"' | '\\' | '/')) => c as u16,
                    Some('u') => {
                        let digits = characters.as_str().get(..4).filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()));
                        let unit = digits.and_then(|digits| u16::from_str_radix(digits, 16).ok());
                        characters = characters.as_str().get(4..).unwrap_or_default().chars();
                        unit.ok_or("a string has a malformed \\u")?
                    }
                    _ => return Err("a string has an unknown escape".to_owned()),
                }),
                c if c < ' ' => return Err("a string has a control character".to_owned()),
                c => units.extend_from_slice(c.encode_utf16(&mut [0; 2])),
            }
        }
        self.rest = characters.as_str();
        Ok(String::from_utf16(&units).ok())
    }

    fn number(&mut self) -> Result<bool, String> {
        let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let unsigned = self.rest.strip_prefix('-').unwrap_or(self.rest);
        let sign = self.rest.len() - unsigned.len();
        let whole = if unsigned.starts_with('0') { 1 } else { digits(unsigned) };
        if whole == 0 {
            return Err(self.problem("a value"));
        }
        let mut length = sign + whole;
        let behind = |length: usize| self.rest.get(length..).unwrap_or_default();
        let fraction = behind(length).strip_prefix('.').map_or(0, digits);
        if fraction > 0 {
            length += 1 + fraction;
        }
        if let Some(exponent) = behind(length).strip_prefix(['e', 'E']) {
            let unsigned = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
            if digits(unsigned) > 0 {
                length += 1 + exponent.len() - unsigned.len() + digits(unsigned);
            }
        }
        let (token, rest) = self.rest.split_at_checked(length).ok_or("a number is cut off")?;
        self.rest = rest;
        if length == sign + whole && whole > PYTHON_INT_DIGITS {
            return Err(format!("an integer has more than {PYTHON_INT_DIGITS} digits"));
        }
        match Integer::parse(token) {
            Some(Integer::Small(small)) => self.write(&small.to_string()),
            Some(Integer::Big { .. }) => self.write(token),
            None => {
                write_float(token.parse().map_err(|_| "a number is malformed")?, &mut self.members.text);
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_members_are_rendered_like_python() {
        for (text, members) in [
            ("[]", &[][..]),
            (
                r#"[1, 1.0, -0, -0.0, 1E2, 1e400, "a", true, null]"#,
                &["1", "1.0", "0", "-0.0", "100.0", "inf", "a", "True", "None"],
            ),
            ("[NaN,Infinity,-Infinity]", &["nan", "inf", "-inf"]),
            (r#"[["a", 1], {"k": "it's", "l": []}]"#, &["['a', 1]", r#"{'k': "it's", 'l': []}"#]),
            (r#"[["\n\u0000\u00a0é\ud83d\ude00\u2028\\'\""]]"#, &[r#"['\n\x00\xa0é😀\u2028\\\'"']"#]),
            (r#"["\ud800", "b"]"#, &["b"]),
            (r#"[{"a": 1, "b": 2, "a": 3}]"#, &["{'a': 3, 'b': 2}"]),
            (
                r#"[{"a": {"x": 1, "x": 2}, "b": 2, "": 0, "a": {"y": 1, "y": [3]}}]"#,
                &["{'a': {'y': [3]}, 'b': 2, '': 0}"],
            ),
            (r#"[{"a": "\ud800", "a": 1}, {"\ud800": 1}, {"a": 1, "a": "\ud800"}]"#, &["{'a': 1}"]),
            ("[1, [], 1, {}, []]", &["1", "[]", "{}"]),
            ("[12345678901234567890123]", &["12345678901234567890123"]),
        ] {
            assert_eq!(list(text), Ok(Members::of(members).unwrap()), "{text}");
        }
        for text in [
            "[",
            "[1",
            "[1,]",
            "[,1]",
            "[01]",
            "[+1]",
            "[1.]",
            "[.5]",
            "[1] x",
            "['a']",
            "[\"\t\"]",
            r#"["\x"]"#,
            "[{1:2}]",
            "[1e]",
            "[-]",
            "[tru]",
        ] {
            assert!(list(text).is_err(), "{text}");
        }
        assert!(list(&"[".repeat(100_000)).is_err());
    }
}
