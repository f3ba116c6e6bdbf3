//! Escapes untrusted values for messages.

/// Largest number of characters shown. Longer values are cut, because an annotation can hold 256 KiB and the message
/// becomes an Event.
const SHOWN: usize = 64;

/// Returns the value in double quotes, with control characters, invisible characters and quotes escaped, cut after 64
/// characters.
pub(crate) fn quote(value: &str) -> String {
    let mut quoted = String::from('"');
    let mut characters = value.chars();
    for character in characters.by_ref().take(SHOWN) {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            // The last arm escapes control characters, characters that change the direction of text, and other
            // invisible ones.
            _ if character.is_ascii_graphic() || character == ' ' || character.is_alphanumeric() => {
                quoted.push(character);
            }
            _ => quoted.extend(character.escape_unicode()),
        }
    }
    if characters.next().is_some() {
        quoted.push('…');
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::quote;

    #[test]
    fn control_characters_and_quotes_are_escaped() {
        assert_eq!(quote("a\n\"b\"\u{202e}é"), "\"a\\u{a}\\\"b\\\"\\u{202e}é\"");
    }

    #[test]
    fn long_value_is_cut() {
        let quoted = quote(&"x".repeat(300_000));
        assert_eq!(quoted.chars().count(), 64 + 3);
        assert!(quoted.ends_with("…\""));
    }
}
