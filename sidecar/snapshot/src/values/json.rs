//! JSON strings: writing them like the edge proxy (raw UTF-8, minimal escapes), and reading strings that the writer
//! made.

use std::fmt::Write;

/// Appends `text` as a JSON string.
pub fn write_string(text: &str, out: &mut String) {
    out.push('"');
    let mut rest = text;
    while let Some(at) = rest.bytes().position(|b| b < 0x20 || b == b'"' || b == b'\\') {
        let (plain, behind) = rest.split_at(at);
        out.push_str(plain);
        let mut characters = behind.chars();
        match characters.next() {
            Some('"') => out.push_str("\\\""),
            Some('\\') => out.push_str("\\\\"),
            Some('\n') => out.push_str("\\n"),
            Some('\r') => out.push_str("\\r"),
            Some('\t') => out.push_str("\\t"),
            Some('\u{8}') => out.push_str("\\b"),
            Some('\u{c}') => out.push_str("\\f"),
            Some(control) => {
                let _ = write!(out, "\\u{:04x}", u32::from(control)); // writing to a String does not fail
            }
            None => {}
        }
        rest = characters.as_str();
    }
    out.push_str(rest);
    out.push('"');
}

/// Appends the content of a JSON string that [`write_string`] made. `None` if it is not one.
pub(crate) fn read_string(token: &str, out: &mut String) -> Option<()> {
    let mut rest = token.strip_prefix('"')?.strip_suffix('"')?;
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
                let digits = characters.as_str().get(..4)?;
                characters = characters.as_str().get(4..)?.chars();
                char::from_u32(u32::from_str_radix(digits, 16).ok()?)?
            }
            other => other,
        });
        rest = characters.as_str();
    }
    out.push_str(rest);
    Some(())
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
}
