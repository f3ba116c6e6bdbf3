//! Values as text: Flagsmith's API stores lists and objects as Python's `str` prints them.

use std::borrow::Cow;
use std::collections::HashMap;

use super::values::{MAX_CHARACTERS, is_too_long};
use crate::json::{Group, Malformed, Reader, Value};

/// Length in bytes beyond which a text has more than [`MAX_CHARACTERS`] characters. Nothing is printed beyond it.
const MAX_BYTES: usize = MAX_CHARACTERS * 4;

/// Largest number of members of an object together with those of the objects around it. A member prints at least seven
/// characters (`'': 1, `), so the text of more members has more than [`MAX_CHARACTERS`] characters.
const MAX_MEMBERS: usize = MAX_CHARACTERS / 7;

/// Returns the text of the next value, as Python prints it; `None` if it has more than [`MAX_CHARACTERS`] characters.
/// The caller has checked the depth of lists and objects.
pub(crate) fn text_of(reader: &mut Reader<'_>) -> Result<Option<String>, Malformed> {
    let text = Printer { reader, members: 0 }.text()?;
    Ok(text.filter(|text| !is_too_long(text)))
}

/// Returns Python's `str` of a string, a number or a boolean. `None` for null, lists and objects.
pub(super) fn scalar(value: Value<'_>) -> Option<Cow<'_, str>> {
    Some(match value {
        Value::String(text) => match text.plain() {
            Some(plain) => plain.into(),
            None => {
                let mut decoded = String::new();
                text.decode_into(&mut decoded);
                decoded.into()
            }
        },
        Value::Integer(digits) => digits.into(),
        Value::Bool(value) => remora_snapshot::python_bool(value).into(),
        Value::Float(float) => {
            let mut text = String::new();
            remora_snapshot::write_float(float.value(), &mut text);
            text.into()
        }
        Value::Null | Value::Array | Value::Object => return None,
    })
}

/// A text of at most [`MAX_BYTES`] bytes.
#[derive(Default)]
struct Bounded {
    text: String,
    /// True if a part of the text did not fit. The text is then not used.
    is_over: bool,
}

impl Bounded {
    fn push_str(&mut self, part: &str) {
        self.is_over |= self.text.len() + part.len() > MAX_BYTES;
        if !self.is_over {
            self.text.push_str(part);
        }
    }

    fn push(&mut self, c: char) {
        self.push_str(c.encode_utf8(&mut [0; 4]));
    }
}

impl std::fmt::Write for Bounded {
    fn write_str(&mut self, part: &str) -> std::fmt::Result {
        self.push_str(part);
        Ok(())
    }
}

struct Printer<'r, 'a> {
    reader: &'r mut Reader<'a>,
    /// Number of members that are held, of all objects that are being read.
    members: usize,
}

impl Printer<'_, '_> {
    /// Returns the text of the next value; `None` if it has more than [`MAX_BYTES`] bytes.
    fn text(&mut self) -> Result<Option<String>, Malformed> {
        let mut out = Bounded::default();
        self.print(&mut out)?;
        Ok((!out.is_over).then_some(out.text))
    }

    fn print(&mut self, out: &mut Bounded) -> Result<(), Malformed> {
        if out.is_over {
            return self.reader.value().map(drop);
        }
        if let Some(items) = self.reader.enter_array() {
            return self.print_list(items, out);
        }
        if let Some(members) = self.reader.enter_object() {
            return self.print_object(members, out);
        }
        match self.reader.value()? {
            Value::String(text) => print_string(text.decode(&mut String::new()), out),
            other => out.push_str(scalar(other).as_deref().unwrap_or("None")),
        }
        Ok(())
    }

    fn print_list(&mut self, mut items: Group, out: &mut Bounded) -> Result<(), Malformed> {
        out.push('[');
        let mut separator = "";
        while self.reader.next_item(&mut items)? {
            out.push_str(std::mem::replace(&mut separator, ", "));
            self.print(out)?;
        }
        out.push(']');
        Ok(())
    }

    fn print_object(&mut self, mut members: Group, out: &mut Bounded) -> Result<(), Malformed> {
        // A repeated member keeps its place and gets the last value, so a value that is too long may yet be replaced.
        let mut held: HashMap<String, (usize, Option<Box<str>>)> = HashMap::new();
        while let Some(name) = self.reader.next_member(&mut members)? {
            if out.is_over {
                self.reader.value()?;
                continue;
            }
            let mut decoded = String::new();
            name.decode_into(&mut decoded);
            let text = self.text()?.map(String::into_boxed_str);
            let place = held.len();
            if let Some((_, last)) = held.get_mut(&decoded) {
                *last = text;
            } else if self.members < MAX_MEMBERS && decoded.len() <= MAX_BYTES {
                held.insert(decoded, (place, text));
                self.members += 1;
            } else {
                out.is_over = true;
            }
        }
        self.members -= held.len();
        let mut values: Vec<_> = held.into_iter().collect();
        values.sort_unstable_by_key(|(_, (place, _))| *place);
        out.push('{');
        let mut separator = "";
        for (name, (_, text)) in &values {
            let Some(text) = text else {
                out.is_over = true;
                break;
            };
            out.push_str(std::mem::replace(&mut separator, ", "));
            print_string(name, out);
            out.push_str(": ");
            out.push_str(text);
        }
        out.push('}');
        Ok(())
    }
}

/// Appends a string as Python's `repr` prints it.
fn print_string(text: &str, out: &mut Bounded) {
    use std::fmt::Write as _;
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        if out.is_over {
            return;
        }
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => {
                out.push('\\');
                out.push(c);
            }
            c if is_printable(c) => out.push(c),
            c => {
                // Writing to a text cannot fail.
                let _ = match u32::from(c) {
                    code @ ..0x100 => write!(out, "\\x{code:02x}"),
                    code @ ..0x1_0000 => write!(out, "\\u{code:04x}"),
                    code => write!(out, "\\U{code:08x}"),
                };
            }
        }
    }
    out.push(quote);
}

/// True if the character is printable. Rust and Python derive this from the same categories of Unicode.
fn is_printable(c: char) -> bool {
    if c.is_ascii() {
        return !c.is_ascii_control();
    }
    // Behind another character, `escape_debug` leaves combining characters as they are.
    let mut bytes = [b'a'; 5];
    let length = bytes.get_mut(1..).map_or(0, |place| c.encode_utf8(place).len());
    let text = bytes.get(..1 + length).and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or_default();
    text.escape_debug().count() == 2
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(json: &str) -> Option<String> {
        text_of(&mut Reader::new(json.as_bytes()).unwrap()).unwrap()
    }

    /// An object of `levels` levels, each of which has this many members beside the next level.
    fn nested(levels: usize, members: usize) -> String {
        let members: String = (0..members).map(|number| format!("\"{number}\":1,")).collect();
        let open = format!("{{{members}\"next\":");
        format!("{}1{}", open.repeat(levels), "}".repeat(levels))
    }

    #[test]
    fn text_that_is_too_long_takes_little_memory() {
        let numbers: Vec<String> = (0..100_000).map(|number| format!("{number}")).collect();
        let members: Vec<String> = numbers.iter().map(|number| format!("\"{number}\": {number}")).collect();
        let values: Vec<String> =
            (0..250).map(|number| format!("\"{number}\":\"{}\"", "\u{7f}".repeat(1999))).collect();
        for (name, json) in [
            ("items", format!("[{}]", numbers.join(","))),
            ("members", format!("{{{}}}", members.join(","))),
            ("levels", nested(64, 2_000)),
            ("escapes", format!("[\"{}\"]", "\u{7f}".repeat(1 << 20))),
            ("escapes in a name", format!("{{\"{}\":1}}", "\u{7f}".repeat(1 << 20))),
            ("repeated values", format!("{{{}}}", vec![format!("\"a\":\"{}\"", "\u{7f}".repeat(1999)); 500].join(","))),
            ("values", format!("{{{}}}", values.join(","))),
        ] {
            let counted = allocation_counter::measure(|| assert_eq!(text(&json), None, "{name}"));
            // A name is decoded before it is measured; the values are the largest that may yet be replaced.
            assert!(counted.bytes_max <= 5 << 19, "{name}: {counted:?}");
        }
    }

    #[test]
    fn text_of_the_largest_length_is_returned() {
        let fits = |json: String| text(&json).is_some();
        for (beyond, expected) in [(0, true), (1, false)] {
            assert_eq!(fits(format!("[\"{}\"]", "x".repeat(MAX_CHARACTERS - 4 + beyond))), expected);
            assert_eq!(fits(format!("[\"{}\"]", "😀".repeat(MAX_CHARACTERS - 4 + beyond))), expected);
        }
        // Each member takes eight characters.
        let members = |count| ('一'..).take(count).map(|name| format!("\"{name}\":1")).collect::<Vec<_>>().join(",");
        assert!(fits(format!("{{{}}}", members(250))) && !fits(format!("{{{}}}", members(251))));
        assert!(fits(nested(20, 8)) && !fits(nested(20, 15)));
    }

    #[test]
    fn value_that_is_too_long_may_be_replaced() {
        let long = "\u{7f}".repeat(MAX_BYTES);
        for value in [format!("\"{long}\""), nested(1, 2_000), nested(64, 200)] {
            let replaced = format!(r#"{{"a": {value}, "b": 2, "a": 3}}"#);
            assert_eq!(text(&replaced).as_deref(), Some("{'a': 3, 'b': 2}"));
        }
    }

    #[test]
    fn values_are_printed_as_python_prints_them() {
        for (json, expected) in [
            ("[]", "[]"),
            ("{}", "{}"),
            (r#"[1, "a", true, false, null, 1.50, 1e16]"#, "[1, 'a', True, False, None, 1.5, 1e+16]"),
            (r#"{"a": {"b": [ ]}, "c": "d"}"#, "{'a': {'b': []}, 'c': 'd'}"),
            (r#"{"a": 1, "b": 2, "a": 3}"#, "{'a': 3, 'b': 2}"),
            (r#"["it's", "\"", "'\"", "\\"]"#, r#"["it's", '"', '\'"', '\\']"#),
            (
                r#"["\n\r\t\u0000\u007f\u00a0\u00ad", "é日😀e\u0301"]"#,
                "['\\n\\r\\t\\x00\\x7f\\xa0\\xad', 'é日😀e\u{301}']",
            ),
            (r#"["\u200b\u2028\ue000\udb40\udc01"]"#, r"['\u200b\u2028\ue000\U000e0001']"),
        ] {
            assert_eq!(text(json).as_deref(), Some(expected), "{json}");
        }
    }
}
