//! A JSON array as Python's `json` reads it and `str` prints its members: `NaN` is a number, and what is nested is printed
//! as Python writes it.

use std::sync::LazyLock;

use remora_snapshot::{Integer, write_float};

use crate::compile::python;

/// How deep arrays and objects may nest.
const DEEPEST: u32 = 128;

/// The most digits that Python converts to an integer.
const MOST_DIGITS: usize = 4300;

/// The members of a JSON array as Python's `str` prints them. Those with lone surrogates are left out: no text has any.
///
/// # Errors
/// If Python reads no array there, with what is wrong.
pub(crate) fn list(text: &str) -> Result<Vec<String>, String> {
    let mut reader = Reader { rest: text, depth: 0 };
    if !reader.takes("[") {
        return Err("expected an array".to_owned());
    }
    let mut members = Vec::new();
    reader.members(']', |reader| {
        let value = reader.value()?;
        members.extend(value.is_text().then(|| value.str()));
        Ok(())
    })?;
    reader.skip_spaces();
    if reader.rest.is_empty() { Ok(members) } else { Err(reader.problem("the end")) }
}

/// A value, as far as printing it needs.
enum Value {
    /// Printed as it is: numbers and names.
    Word(String),
    Text(String),
    /// A string with lone surrogates.
    NoText,
    List(Vec<Value>),
    Map(Vec<(Value, Value)>),
}

impl Value {
    fn is_text(&self) -> bool {
        match self {
            Self::Word(_) | Self::Text(_) => true,
            Self::NoText => false,
            Self::List(items) => items.iter().all(Self::is_text),
            Self::Map(members) => members.iter().all(|(key, value)| key.is_text() && value.is_text()),
        }
    }

    fn str(&self) -> String {
        if let Self::Text(text) = self { text.clone() } else { self.repr() }
    }

    fn repr(&self) -> String {
        match self {
            Self::Word(word) => word.clone(),
            Self::Text(text) => repr(text),
            Self::NoText => String::new(),
            Self::List(items) => format!("[{}]", items.iter().map(Self::repr).collect::<Vec<_>>().join(", ")),
            Self::Map(members) => {
                let member = |(key, value): &(Self, Self)| format!("{}: {}", key.repr(), value.repr());
                format!("{{{}}}", members.iter().map(member).collect::<Vec<_>>().join(", "))
            }
        }
    }
}

/// Python's `repr` of a string.
fn repr(text: &str) -> String {
    static UNPRINTABLE: LazyLock<Vec<(char, char)>> = LazyLock::new(|| python::ranges(r"[\p{C}\p{Z}--\x20]"));
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut printed = String::from(quote);
    for c in text.chars() {
        let point = u32::from(c);
        match c {
            '\n' => printed.push_str("\\n"),
            '\r' => printed.push_str("\\r"),
            '\t' => printed.push_str("\\t"),
            '\\' => printed.push_str("\\\\"),
            c if c == quote => printed.extend(['\\', c]),
            c if !UNPRINTABLE.iter().any(|(low, high)| (*low..=*high).contains(&c)) => printed.push(c),
            _ if point < 0x100 => printed.push_str(&format!("\\x{point:02x}")),
            _ if point < 0x1_0000 => printed.push_str(&format!("\\u{point:04x}")),
            _ => printed.push_str(&format!("\\U{point:08x}")),
        }
    }
    printed.push(quote);
    printed
}

struct Reader<'a> {
    rest: &'a str,
    depth: u32,
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

    /// What stands between commas, up to the closing bracket.
    fn members(&mut self, end: char, mut member: impl FnMut(&mut Self) -> Result<(), String>) -> Result<(), String> {
        let end = end.to_string();
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(format!("nests more than {DEEPEST} deep"));
        }
        self.skip_spaces();
        if !self.takes(&end) {
            loop {
                self.skip_spaces();
                member(self)?;
                self.skip_spaces();
                if self.takes(&end) {
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

    fn value(&mut self) -> Result<Value, String> {
        const NAMES: [(&str, &str); 6] = [
            ("null", "None"),
            ("true", "True"),
            ("false", "False"),
            ("NaN", "nan"),
            ("Infinity", "inf"),
            ("-Infinity", "-inf"),
        ];
        if let Some((_, printed)) = NAMES.iter().find(|(name, _)| self.takes(name)) {
            return Ok(Value::Word((*printed).to_owned()));
        }
        if self.takes("[") {
            let mut items = Vec::new();
            self.members(']', |reader| reader.value().map(|value| items.push(value)))?;
            return Ok(Value::List(items));
        }
        if self.takes("{") {
            return self.map();
        }
        if self.takes("\"") { self.string() } else { self.number() }
    }

    fn map(&mut self) -> Result<Value, String> {
        let mut members: Vec<(Value, Value)> = Vec::new();
        self.members('}', |reader| {
            if !reader.takes("\"") {
                return Err(reader.problem("a name"));
            }
            let key = reader.string()?;
            reader.skip_spaces();
            if !reader.takes(":") {
                return Err(reader.problem("a colon"));
            }
            reader.skip_spaces();
            let value = reader.value()?;
            // The last of several with one name counts, at the place of the first.
            match members.iter_mut().find(|(own, _)| own.is_text() && own.str() == key.str()) {
                Some(place) => place.1 = value,
                None => members.push((key, value)),
            }
            Ok(())
        })?;
        Ok(Value::Map(members))
    }

    /// A string behind its quote.
    fn string(&mut self) -> Result<Value, String> {
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
        Ok(String::from_utf16(&units).map_or(Value::NoText, Value::Text))
    }

    fn number(&mut self) -> Result<Value, String> {
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
        if length == sign + whole && whole > MOST_DIGITS {
            return Err(format!("an integer has more than {MOST_DIGITS} digits"));
        }
        Ok(Value::Word(match Integer::parse(token) {
            Some(Integer::Small(small)) => small.to_string(),
            Some(Integer::Big { .. }) => token.to_owned(),
            None => {
                let mut printed = String::new();
                write_float(token.parse().map_err(|_| "a number is malformed")?, &mut printed);
                printed
            }
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_printed_as_python_does() {
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
            ("[12345678901234567890123]", &["12345678901234567890123"]),
        ] {
            assert_eq!(
                list(text).as_deref(),
                Ok(members.iter().map(|m| (*m).to_owned()).collect::<Vec<_>>().as_slice()),
                "{text}"
            );
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
