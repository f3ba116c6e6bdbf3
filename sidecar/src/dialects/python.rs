//! Lists and objects as text: Flagsmith's API stores them as Python's `str` prints them.

use std::collections::HashMap;

use super::values::MAX_CHARACTERS;
use crate::json::{Malformed, Reader, Value};

/// Length in bytes beyond which a text has more than [`MAX_CHARACTERS`] characters, so that it is refused and the rest
/// of it need not be printed.
const ENOUGH: usize = MAX_CHARACTERS * 4;

/// Returns the text of the next value, as Python prints it. The reader limits the depth of lists and objects. A text of
/// more than [`MAX_CHARACTERS`] characters is incomplete.
pub(crate) fn text_of(reader: &mut Reader<'_>) -> Result<String, Malformed> {
    let mut out = String::new();
    write(reader, &mut out)?;
    Ok(out)
}

fn write(reader: &mut Reader<'_>, out: &mut String) -> Result<(), Malformed> {
    if out.len() > ENOUGH {
        return reader.value().map(drop);
    }
    if let Some(mut items) = reader.enter_array() {
        out.push('[');
        let mut separator = "";
        while reader.next_item(&mut items)? {
            if out.len() <= ENOUGH {
                out.push_str(std::mem::replace(&mut separator, ", "));
            }
            write(reader, out)?;
        }
        out.push(']');
        return Ok(());
    }
    if let Some(mut members) = reader.enter_object() {
        // A repeated member keeps its place and gets the last value.
        let mut places: HashMap<String, usize> = HashMap::new();
        let mut values: Vec<(String, String)> = Vec::new();
        while let Some(name) = reader.next_member(&mut members)? {
            let mut decoded = String::new();
            name.decode_into(&mut decoded);
            let value = text_of(reader)?;
            if let Some((_, held)) = places.get(&decoded).and_then(|place| values.get_mut(*place)) {
                *held = value;
            } else if values.len() <= MAX_CHARACTERS {
                places.insert(decoded.clone(), values.len());
                values.push((decoded, value));
            }
        }
        out.push('{');
        let mut separator = "";
        for (name, value) in &values {
            if out.len() > ENOUGH {
                break;
            }
            out.push_str(std::mem::replace(&mut separator, ", "));
            write_string(name, out);
            out.push_str(": ");
            out.push_str(value);
        }
        out.push('}');
        return Ok(());
    }
    match reader.value()? {
        Value::Integer(digits) => out.push_str(digits),
        Value::Float(float) => remora_snapshot::write_float(float.value(), out),
        Value::Bool(value) => out.push_str(if value { "True" } else { "False" }),
        Value::String(text) => write_string(text.decode(&mut String::new()), out),
        Value::Null | Value::Array | Value::Object => out.push_str("None"),
    }
    Ok(())
}

/// Appends a string as Python's `repr` prints it.
fn write_string(text: &str, out: &mut String) {
    use std::fmt::Write as _;
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => out.extend(['\\', c]),
            c if is_printable(c) => out.push(c),
            c => {
                // Writing to a string cannot fail.
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
    // Behind another character, `escape_debug` leaves combining characters as they are.
    let mut bytes = [b'a'; 5];
    let length = bytes.get_mut(1..).map_or(0, |place| c.encode_utf8(place).len());
    let text = bytes.get(..1 + length).and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or_default();
    matches!(c, '"' | '\'') || text.escape_debug().count() == 2
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(json: &str) -> String {
        text_of(&mut Reader::new(json.as_bytes()).unwrap()).unwrap()
    }

    #[test]
    fn text_that_is_too_long_stays_small() {
        let numbers: Vec<String> = (0..100_000).map(|number| format!("{number}")).collect();
        let members: Vec<String> = numbers.iter().map(|number| format!("\"{number}\": {number}")).collect();
        for json in [format!("[{}]", numbers.join(",")), format!("{{{}}}", members.join(","))] {
            let text = text(&json);
            assert!(text.chars().count() > MAX_CHARACTERS && text.len() < 4 * ENOUGH, "{}", text.len());
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
            assert_eq!(text(json), expected, "{json}");
        }
    }
}
