//! Properties of conditions: a trait, or a place in the evaluation context that a JSONPath names.

use std::collections::HashMap;
use std::sync::Arc;

use remora_snapshot::model::{Derivation, FlagField, Property};

use crate::document::quoted;

/// Returns the scalar at a path into the parts of the context that no request changes, as a JSON token.
pub(super) type Constant<'a> = dyn Fn(&[&str]) -> Option<String> + 'a;

/// The distinct properties of an environment.
pub(super) struct Properties<'a> {
    list: Vec<Property>,
    known: HashMap<Option<String>, usize>,
    /// Constants that were read, by their path. Each spelling of a path is a property of its own, and a constant may be as
    /// large as the document.
    constants: HashMap<Vec<String>, Option<Arc<str>>>,
    features: &'a HashMap<&'a str, usize>,
    constant: &'a Constant<'a>,
}

impl<'a> Properties<'a> {
    /// Creates an empty list. `features` maps names of features to their indexes.
    pub(super) fn new(features: &'a HashMap<&'a str, usize>, constant: &'a Constant<'a>) -> Self {
        Self { list: Vec::new(), known: HashMap::new(), constants: HashMap::new(), features, constant }
    }

    pub(super) fn into_list(self) -> Vec<Property> {
        self.list
    }

    /// Returns the index of the identity's key, which a percentage split without a property hashes. No trait can
    /// replace it.
    pub(super) fn identity_key(&mut self) -> usize {
        self.add(None, Derivation::IdentityKey)
    }

    /// Returns the index of the property with this text, and the problem if the text is an unsupported path. A trait of
    /// that name is read nevertheless.
    pub(super) fn named(&mut self, text: &str) -> (usize, Option<String>) {
        if let Some(index) = self.known.get(&Some(text.to_owned())) {
            return (*index, None);
        }
        let (derivation, problem) = match self.derive(text) {
            Ok(derivation) => (derivation, None),
            Err(problem) => (Derivation::Plain, Some(problem)),
        };
        (self.add(Some(text.to_owned()), derivation), problem)
    }

    fn add(&mut self, name: Option<String>, derivation: Derivation) -> usize {
        if let Some(index) = self.known.get(&name) {
            return *index;
        }
        let index = self.list.len();
        self.list.push(Property { name: name.clone(), derivation });
        self.known.insert(name, index);
        index
    }

    /// Derives a property from its text. Only text that begins with `$.` is a path. Paths of more than names are
    /// unsupported, so they are not parsed either: for any parser, some filter expression takes too long.
    fn derive(&mut self, text: &str) -> Result<Derivation, String> {
        if !text.starts_with("$.") {
            return Ok(Derivation::Plain);
        }
        let path = names(text).ok_or_else(|| refusal(text))?;
        let names: Vec<&str> = path.iter().map(String::as_str).collect();
        Ok(match names.as_slice() {
            ["identity", "identifier"] => Derivation::Identifier,
            ["identity", "key"] => Derivation::IdentityKey,
            // Another path reads such a trait by the same name, but without the trait the two have different values.
            ["identity", "traits", name] if name.starts_with("$.") => return Err(refusal(text)),
            ["identity", "traits", name] => Derivation::SameAs(self.add(Some((*name).to_owned()), Derivation::Plain)),
            ["flags", feature, field @ ..] => match (self.features.get(feature), flag_field(field)) {
                (Some(feature), field) => Derivation::Flag { feature: *feature, field },
                (None, _) => Derivation::Plain,
            },
            _ => self.constant(path).map_or(Derivation::Plain, Derivation::Constant),
        })
    }
}

impl Properties<'_> {
    /// Returns the constant at a path. It is read once.
    fn constant(&mut self, path: Vec<String>) -> Option<Arc<str>> {
        if let Some(known) = self.constants.get(&path) {
            return known.clone();
        }
        let names: Vec<&str> = path.iter().map(String::as_str).collect();
        let constant = (self.constant)(&names).map(Arc::from);
        self.constants.insert(path, constant.clone());
        constant
    }
}

fn refusal(text: &str) -> String {
    format!(
        "the JSONPath {} is not supported, and only a trait of exactly this name sets it; use $.identity.identifier, $.identity.key, \
         $.identity.traits.NAME, $.environment.name, $.environment.key or $.flags.NAME.enabled, or a trait by its name",
        quoted(text)
    )
}

fn flag_field(path: &[&str]) -> FlagField {
    match path {
        ["enabled"] => FlagField::Enabled,
        ["value"] => FlagField::Value,
        ["variant"] => FlagField::Variant,
        ["reason"] => FlagField::Reason,
        ["name"] => FlagField::Name,
        ["metadata", "id"] => FlagField::Id,
        _ => FlagField::Other,
    }
}

/// Returns the name of the flag that a property reads, if any.
pub(crate) fn flag_read(property: &str) -> Option<String> {
    member_of(property, &["flags"])
}

/// Returns the name of the feature that a property reads, if any: its value for an identity (`flags`) or its default
/// (`features`).
pub(crate) fn feature_read(property: &str) -> Option<String> {
    member_of(property, &["flags", "features"])
}

fn member_of(property: &str, roots: &[&str]) -> Option<String> {
    if !property.starts_with("$.") {
        return None;
    }
    let mut names = names(property)?.into_iter();
    let root = names.next()?;
    roots.contains(&root.as_str()).then(|| names.next()).flatten()
}

/// Returns true if the property can be read without an identity. Decides by the property's text, as Flagsmith's engine
/// crate 0.7 does.
pub(super) fn is_identity_free(property: &str) -> bool {
    ["$.environment.", "$.environment[", "$.flags.", "$.flags["].iter().any(|start| property.starts_with(start))
}

/// Maximum number of names kept of a path: one more than the longest supported path has.
const MOST_NAMES: usize = 6;

/// Returns the first names of a JSONPath that consists of names only: `$.a['b']["c"]`.
///
/// The grammar is that of `jsonpath_rfc9535` 0.2, which Flagsmith's engine uses: RFC 9535 (2.5.1 and 2.3.1), but a
/// shorthand name may contain hyphens, and no characters above U+FFFF.
fn names(path: &str) -> Option<Vec<String>> {
    let mut rest = path.strip_prefix('$')?;
    let mut names = Vec::new();
    while !rest.is_empty() {
        // White space may precede a segment. None may end the path: then the next segment is missing.
        rest = rest.trim_start_matches(BLANKS);
        let (name, behind) = match rest.strip_prefix('.') {
            Some(shorthand) => {
                let is_first = |c: char| c.is_ascii_alphabetic() || c == '_' || ('\u{80}'..='\u{ffff}').contains(&c);
                let is_name = |c: char| is_first(c) || c.is_ascii_digit() || c == '-';
                let end = shorthand.find(|c: char| !is_name(c)).unwrap_or(shorthand.len());
                let (name, behind) = shorthand.split_at_checked(end)?;
                if !name.starts_with(is_first) {
                    return None;
                }
                (name.to_owned(), behind)
            }
            None => bracketed(rest)?,
        };
        if names.len() < MOST_NAMES {
            names.push(name);
        }
        rest = behind;
    }
    Some(names)
}

/// White space in a JSONPath.
const BLANKS: [char; 4] = [' ', '\n', '\r', '\t'];

/// Parses `['name']` or `["name"]`, and returns the name and the rest.
fn bracketed(text: &str) -> Option<(String, &str)> {
    let text = text.strip_prefix('[')?.trim_start_matches(BLANKS);
    let quote = text.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
    let mut characters = text.get(1..)?.chars();
    let mut name = String::new();
    loop {
        match characters.next()? {
            c if c == quote => break,
            '\\' => name.push(escaped(&mut characters, quote)?),
            c if c < ' ' => return None,
            c => name.push(c),
        }
    }
    Some((name, characters.as_str().trim_start_matches(BLANKS).strip_prefix(']')?))
}

fn escaped(characters: &mut std::str::Chars<'_>, quote: char) -> Option<char> {
    Some(match characters.next()? {
        'b' => '\u{8}',
        'f' => '\u{c}',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        c if c == '/' || c == '\\' || c == quote => c,
        'u' => {
            let high = hex(characters)?;
            if !(0xd800..0xdc00).contains(&high) {
                return char::from_u32(high);
            }
            if characters.next()? != '\\' || characters.next()? != 'u' {
                return None;
            }
            let low = hex(characters)?.checked_sub(0xdc00).filter(|low| *low < 0x400)?;
            char::from_u32(0x10000 + ((high - 0xd800) << 10) + low)?
        }
        _ => return None,
    })
}

fn hex(characters: &mut std::str::Chars<'_>) -> Option<u32> {
    let mut value = 0;
    for _ in 0..4 {
        value = value * 16 + characters.next()?.to_digit(16)?;
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn property_names_are_parsed_in_both_notations() {
        for (path, wanted) in [
            ("$.identity.traits.x", &["identity", "traits", "x"][..]),
            ("$.identity.traits['a.b']", &["identity", "traits", "a.b"]),
            (r#"$.identity.traits["\"é\u00e9\ud83d\ude00"]"#, &["identity", "traits", "\"éé😀"]),
            ("$.flags.größe.enabled", &["flags", "größe", "enabled"]),
            ("$.flags.my-flag-.enabled", &["flags", "my-flag-", "enabled"]),
            ("$.identity .traits\n[ 'a'\t]", &["identity", "traits", "a"]),
        ] {
            assert_eq!(
                names(path).as_deref(),
                Some(wanted.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>().as_slice()),
                "{path}"
            );
        }
        for path in [
            "$.",
            "$..a",
            "$.a.",
            "$.a[0]",
            "$.1a",
            "$.a[*]",
            "$.a['b'",
            "$.a['b\"]",
            "$.a b",
            "$.a ",
            "$. a",
            "$.-a",
            "$.a.😀",
            "x.a",
        ] {
            assert_eq!(names(path), None, "{path}");
        }
    }

    #[test]
    fn property_of_flag_gives_flag_name() {
        assert_eq!(flag_read("$.flags.a.enabled").as_deref(), Some("a"));
        assert_eq!(flag_read("$.flags['a b'].value").as_deref(), Some("a b"));
        assert_eq!(flag_read("flags.a"), None);
        assert_eq!(flag_read("$.identity.key"), None);
    }
}
