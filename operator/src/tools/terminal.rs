//! Text of documents and of the cluster, made safe for terminals.

use std::{
    fmt::{Display, Write as _},
    io::{self, Write},
};

/// Returns text on one line, without characters that steer a terminal or reorder or hide what it shows.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() || is_format(c) { '\u{fffd}' } else { c }).collect()
}

/// Writes a line of text, of which parts may come from a document.
pub(crate) fn write_line(out: &mut impl Write, line: impl Display) -> io::Result<()> {
    writeln!(out, "{}", printable(&line.to_string()))
}

/// Escapes in JSON what [`printable`] replaces in text, and JSON itself does not escape.
pub(crate) fn printable_json(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for c in json.chars() {
        // Characters beyond ASCII are in strings only, and all that are escaped have four hexadecimal digits.
        if is_format(c) || (c.is_control() && c >= '\u{7f}') {
            let _ = write!(escaped, "\\u{:04x}", u32::from(c));
        } else {
            escaped.push(c);
        }
    }
    escaped
}

/// True for characters that change the direction of text, end lines, or have no width.
fn is_format(c: char) -> bool {
    matches!(
        c,
        '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Controls of both sets, and characters that change direction, end lines or have no width.
    const HOSTILE: &str = "\u{1b}[2J\n\t\u{7f}\u{9b}2J\u{9d}\u{61c}\u{200b}\u{200f}\u{2028}\u{2029}\u{202a}\u{202e}\u{2066}\u{2069}\u{feff}";

    #[test]
    fn text_of_others_cannot_steer_a_terminal() {
        assert_eq!(printable(HOSTILE).replace('\u{fffd}', ""), "[2J2J");
        assert_eq!(printable("größer 日本 €"), "größer 日本 €");
        let mut out = Vec::new();
        write_line(&mut out, HOSTILE).unwrap();
        assert_eq!(out.iter().filter(|byte| byte.is_ascii_control()).count(), 1, "the end of the line only");
    }

    #[test]
    fn json_of_hostile_text_is_printable_and_has_the_same_meaning() {
        let json = serde_json::to_string_pretty(&[HOSTILE]).unwrap();
        let escaped = printable_json(&json);
        assert!(escaped.bytes().all(|byte| byte == b'\n' || (b' '..=b'~').contains(&byte)), "{escaped:?}");
        assert_eq!(serde_json::from_str::<[String; 1]>(&escaped).unwrap(), [HOSTILE]);
    }
}
