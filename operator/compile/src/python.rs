//! Python's conversions of a condition's value: `int()` and `float()`.

use std::sync::LazyLock;

use regex_syntax::hir::{Class, HirKind};
use remora_snapshot::PYTHON_INT_DIGITS;

/// Returns Python's `int(text)` in canonical digits. Accepts spaces around the number, a sign, digits of any script,
/// and underscores between digits.
pub(super) fn int(text: &str) -> Option<String> {
    let text = to_ascii(text)?;
    let text = text.trim_matches(' ');
    let (sign, digits) = match text.as_bytes().first()? {
        b'-' => ("-", text.get(1..)?),
        b'+' => ("", text.get(1..)?),
        _ => ("", text),
    };
    let digits = without_underscores(digits)?;
    if digits.is_empty() || digits.len() > PYTHON_INT_DIGITS || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    match digits.trim_start_matches('0') {
        "" => Some("0".to_owned()),
        digits => Some(format!("{sign}{digits}")),
    }
}

/// Returns Python's `float(text)`.
pub(super) fn float(text: &str) -> Option<f64> {
    let text = to_ascii(text)?;
    without_underscores(text.trim_matches(' '))?.parse().ok()
}

/// Returns Python's `str.isspace` of one character.
pub(super) fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// Replaces each digit by its ASCII digit and each space by U+0020. Returns `None` if another character is beyond
/// ASCII, because no number contains one. The separators U+001C to U+001F are spaces for `str.isspace`, but not here.
fn to_ascii(text: &str) -> Option<String> {
    text.chars()
        .map(|c| match c {
            _ if c.is_whitespace() => Some(' '),
            _ if c.is_ascii() => Some(c),
            _ => digit(c),
        })
        .collect()
}

/// Removes underscores. Returns `None` if one is not between two digits, because the text is no number then.
fn without_underscores(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let is_digit = |at: Option<usize>| at.and_then(|at| bytes.get(at)).is_some_and(u8::is_ascii_digit);
    let stand_between = bytes
        .iter()
        .enumerate()
        .all(|(at, byte)| *byte != b'_' || (is_digit(at.checked_sub(1)) && is_digit(Some(at + 1))));
    stand_between.then(|| text.replace('_', ""))
}

/// Returns the ASCII form of a decimal digit of any script. Unicode orders them in runs of ten that begin with zero.
fn digit(c: char) -> Option<char> {
    static DIGITS: LazyLock<Vec<(char, char)>> = LazyLock::new(|| ranges(r"\p{Nd}"));
    let (zero, _) = DIGITS.iter().find(|(low, high)| (*low..=*high).contains(&c))?;
    char::from_digit((u32::from(c) - u32::from(*zero)) % 10, 10)
}

/// Returns the ranges of a character class in the syntax of regex_syntax.
pub(crate) fn ranges(class: &str) -> Vec<(char, char)> {
    match regex_syntax::parse(class).map(regex_syntax::hir::Hir::into_kind) {
        Ok(HirKind::Class(Class::Unicode(class))) => class.iter().map(|range| (range.start(), range.end())).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn int_parses_like_python() {
        for (text, value) in [
            ("0", "0"),
            ("-0", "0"),
            ("+7", "7"),
            ("007", "7"),
            (" \u{85}\n42\u{3000}", "42"),
            ("1_000", "1000"),
            ("١٢", "12"),
            ("-99999999999999999999", "-99999999999999999999"),
            ("𝟘𝟙", "1"),
        ] {
            assert_eq!(int(text).as_deref(), Some(value), "{text:?}");
        }
        for text in
            ["", " ", "\u{1c}5", "\u{1c}٥", "+", "1.0", "1e3", "_1", "1_", "1__0", "- 1", "0x10", "²", "½", "1 2"]
        {
            assert_eq!(int(text), None, "{text:?}");
        }
        assert_eq!(int(&"9".repeat(4301)), None);
    }

    #[test]
    fn float_parses_like_python() {
        for (text, value) in [
            ("1.5", 1.5),
            (" -.5\t", -0.5),
            ("5.", 5.0),
            ("1e3", 1000.0),
            ("1_0.0_1", 10.01),
            ("Infinity", f64::INFINITY),
            ("-inf", f64::NEG_INFINITY),
            ("١.٥", 1.5),
            ("1e400", f64::INFINITY),
        ] {
            assert_eq!(float(text), Some(value), "{text:?}");
        }
        assert!(float("nAn").is_some_and(f64::is_nan));
        for text in ["", "5\u{1f}", ".", "e5", "1._5", "1_.5", "0x1p3", "1,5", "infinit", "--1"] {
            assert_eq!(float(text), None, "{text:?}");
        }
    }
}
