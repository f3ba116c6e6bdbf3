//! Names in a body: identifiers and names of traits, as Flagsmith's API reads them. White space around a name is
//! removed. In Flagsmith's dialect, a number stands for its text.

use std::borrow::Cow;

use super::python;
use crate::json::{self, Text, Value};

/// A name, without white space around it.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Name<'a> {
    /// A part of the body.
    Text(Text<'a>),
    /// A text that the body does not contain in this form.
    Owned(String),
}

impl<'a> Name<'a> {
    /// Returns the name that a value stands for. `None` for null, booleans, lists and objects.
    pub(super) fn of(value: Value<'a>) -> Option<Self> {
        match value {
            Value::String(text) => Some(Self::stripped(text)),
            Value::Bool(_) => None,
            other => Some(match python::scalar(other)? {
                Cow::Borrowed(text) => Self::Text(Text::plain_of(text)),
                Cow::Owned(text) => Self::Owned(text),
            }),
        }
    }

    /// Returns the name that a string stands for.
    pub(super) fn stripped(text: Text<'a>) -> Self {
        if let Some(plain) = text.plain() {
            return Self::Text(if is_bare(plain) { text } else { Text::plain_of(strip(plain)) });
        }
        let mut decoded = String::new();
        text.decode_into(&mut decoded);
        match strip(&decoded) {
            bare if bare.len() < decoded.len() => Self::Owned(bare.to_owned()),
            _ => Self::Text(text),
        }
    }

    /// Returns the characters. `scratch` is only written if the body has them with escapes.
    pub(super) fn decode<'s>(&'s self, scratch: &'s mut String) -> &'s str {
        match self {
            Self::Text(text) => text.decode(scratch),
            Self::Owned(text) => text,
        }
    }

    /// Appends the name as a JSON string.
    pub(super) fn write(&self, scratch: &mut String, out: &mut Vec<u8>) {
        match self {
            Self::Text(text) => json::write_text(*text, scratch, out),
            Self::Owned(text) => json::write_string(text, out),
        }
    }

    /// True if the name is empty.
    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::Text(text) => text.is_empty(),
            Self::Owned(text) => text.is_empty(),
        }
    }

    /// True if the name has more than `limit` characters.
    pub(super) fn is_longer_than(&self, limit: usize, scratch: &mut String) -> bool {
        match self {
            Self::Text(text) => text.is_longer_than(limit, scratch),
            Self::Owned(text) => text.len() > limit && text.chars().count() > limit,
        }
    }

    /// True if the name contains the character U+0000, which a body has only as an escape.
    pub(super) fn has_null(&self, scratch: &mut String) -> bool {
        match self {
            Self::Text(text) => text.plain().is_none() && text.decode(scratch).contains('\0'),
            Self::Owned(text) => text.contains('\0'),
        }
    }
}

/// True if there is no white space around the text. Nearly every text begins and ends with a visible ASCII character.
#[inline(always)]
pub(super) fn is_bare(text: &str) -> bool {
    let is_visible = |byte: Option<&u8>| byte.is_some_and(|byte| (0x21..0x7f).contains(byte));
    is_visible(text.as_bytes().first()) && is_visible(text.as_bytes().last()) || is_stripped(text)
}

#[cold]
fn is_stripped(text: &str) -> bool {
    strip(text).len() == text.len()
}

/// Removes white space around a text: the characters that Python's `strip` removes.
pub(super) fn strip(text: &str) -> &str {
    text.trim_matches(|c: char| c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Reader;

    fn name(json: &str) -> Option<String> {
        let value = Reader::new(json.as_bytes()).unwrap().value().unwrap();
        Name::of(value).map(|name| name.decode(&mut String::new()).to_owned())
    }

    #[test]
    fn names_are_stripped_as_python_strips_them() {
        for (json, expected) in [
            (r#""a b""#, "a b"),
            (r#"" a\t""#, "a"),
            (r#""\u00a0é\u3000""#, "é"),
            ("\"\u{2003}é\u{85}\"", "é"),
            (r#""\u001fa\u001c""#, "a"),
            (r#""\u200ba""#, "\u{200b}a"), // no white space: of zero width
            (r#"" \\n ""#, "\\n"),
            (r#""  ""#, ""),
            (r#""""#, ""),
        ] {
            assert_eq!(name(json).as_deref(), Some(expected), "{json}");
        }
    }

    #[test]
    fn numbers_are_names_and_booleans_are_not() {
        for (json, expected) in [("5", "5"), ("-0", "0"), ("1.50", "1.5"), ("1e5", "100000.0"), ("1e16", "1e+16")] {
            assert_eq!(name(json).as_deref(), Some(expected), "{json}");
        }
        for json in ["null", "true", "false", "[]", "{}"] {
            assert_eq!(name(json), None, "{json}");
        }
    }
}
