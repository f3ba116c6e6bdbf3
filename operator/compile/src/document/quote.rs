//! Escapes and shortens text of a document for messages: errors and findings end in conditions, Events and terminals.

/// Maximum number of characters shown of a name.
const LONGEST_NAME: usize = 80;

/// Returns a name in double quotes, escaped and cut after [`LONGEST_NAME`] characters.
pub fn quoted(text: &str) -> String {
    let mut shown: String = text.chars().take(LONGEST_NAME).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    format!("{shown:?}")
}

/// Returns a message that contains text of a document, with control and other invisible characters escaped, and cut
/// after `most` characters.
pub fn printable(text: &str, most: usize) -> String {
    let mut shown = String::with_capacity(text.len().min(most));
    let mut characters = text.chars();
    for c in characters.by_ref().take(most) {
        match c {
            '"' | '\'' | '\\' => shown.push(c),
            c => shown.extend(c.escape_debug()),
        }
    }
    if !characters.as_str().is_empty() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_and_cut() {
        assert_eq!(quoted("a\n\"b\u{202e}"), r#""a\n\"b\u{202e}""#);
        assert_eq!(quoted(&"x".repeat(1_000)).chars().count(), LONGEST_NAME + 3);
        assert_eq!(printable("a\n'\"é\u{1b}\\", 100), "a\\n'\"é\\u{1b}\\");
        assert_eq!(printable("abc", 2), "ab…");
    }
}
