//! Text of documents and of the cluster, made safe for terminals.

use std::{
    fmt::{Display, Write as _},
    io::{self, Write},
};

/// Returns text on one line, without characters that steer a terminal or reorder or hide what it shows.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() || is_format(c) { '\u{fffd}' } else { c }).collect()
}

/// Writes a line of text, of which parts may come from a document.
pub fn write_line(out: &mut impl Write, line: impl Display) -> io::Result<()> {
    writeln!(out, "{}", printable(&line.to_string()))
}

/// True if the reader of the output has ended, such as `head`, which needs no message.
pub fn is_closed_pipe(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::BrokenPipe
}

/// Escapes in JSON what [`printable`] replaces in text, and JSON itself does not escape.
pub fn printable_json(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for c in json.chars() {
        // Characters beyond ASCII are in strings only. JSON escapes a character beyond U+FFFF as a pair.
        if is_format(c) || (c.is_control() && c >= '\u{7f}') {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(escaped, "\\u{unit:04x}");
            }
        } else {
            escaped.push(c);
        }
    }
    escaped
}

/// True for characters that change the direction of text, end lines, or have no width: the category Cf of Unicode 17, the
/// two separators of lines and paragraphs, and reserved characters between those of Cf.
fn is_format(c: char) -> bool {
    matches!(
        c,
        '\u{ad}'
            | '\u{600}'..='\u{605}'
            | '\u{61c}'
            | '\u{6dd}'
            | '\u{70f}'
            | '\u{890}'..='\u{891}'
            | '\u{8e2}'
            | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{110bd}'
            | '\u{110cd}'
            | '\u{13430}'..='\u{1343f}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e007f}'
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

    /// The tables of `regex-syntax` are those of its version of Unicode.
    #[test]
    fn every_character_of_the_category_cf_is_replaced_and_escaped() {
        let category = regex_syntax::parse(r"\p{Cf}").unwrap();
        let regex_syntax::hir::HirKind::Class(regex_syntax::hir::Class::Unicode(class)) = category.kind() else {
            panic!("no class");
        };
        let all: String = class.iter().flat_map(|range| range.start()..=range.end()).collect();
        assert!(all.chars().count() > 150);
        assert!(printable(&all).chars().all(|c| c == '\u{fffd}'));
        let escaped = printable_json(&serde_json::to_string(&all).unwrap());
        assert!(escaped.is_ascii());
        assert_eq!(serde_json::from_str::<String>(&escaped).unwrap(), all);
    }

    #[test]
    fn json_of_hostile_text_is_printable_and_has_the_same_meaning() {
        let json = serde_json::to_string_pretty(&[HOSTILE]).unwrap();
        let escaped = printable_json(&json);
        assert!(escaped.bytes().all(|byte| byte == b'\n' || (b' '..=b'~').contains(&byte)), "{escaped:?}");
        assert_eq!(serde_json::from_str::<[String; 1]>(&escaped).unwrap(), [HOSTILE]);
    }
}
