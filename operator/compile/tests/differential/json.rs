//! JSON that preserves its text: numbers keep their notation, and members their order.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::value::RawValue;

/// Value whose parts can be removed one by one.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Json {
    /// `null`, `true`, `false` or a number, as its token.
    Token(String),
    Text(String),
    List(Vec<Json>),
    Map(Vec<(String, Json)>),
}

/// Parses a text into a tree.
pub(crate) fn read(text: &str) -> Json {
    match text.trim().as_bytes()[0] {
        b'"' => Json::Text(serde_json::from_str(text).unwrap()),
        b'[' => Json::List(
            serde_json::from_str::<Vec<Box<RawValue>>>(text).unwrap().iter().map(|raw| read(raw.get())).collect(),
        ),
        b'{' => {
            let members: BTreeMap<String, Box<RawValue>> = serde_json::from_str(text).unwrap();
            Json::Map(members.into_iter().map(|(name, raw)| (name, read(raw.get()))).collect())
        }
        _ => Json::Token(text.trim().to_owned()),
    }
}

pub(crate) fn map<const N: usize>(members: [(&str, Json); N]) -> Json {
    Json::Map(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

pub(crate) fn null() -> Json {
    Json::Token("null".to_owned())
}

impl Json {
    pub(crate) fn get(&self, name: &str) -> Option<&Json> {
        let Json::Map(members) = self else { return None };
        members.iter().find(|(own, _)| own == name).map(|(_, value)| value)
    }

    pub(crate) fn set(&mut self, name: &str, value: Json) {
        let Json::Map(members) = self else { panic!("{self} has no members") };
        match members.iter_mut().find(|(own, _)| own == name) {
            Some((_, place)) => *place = value,
            None => members.push((name.to_owned(), value)),
        }
    }

    pub(crate) fn items(&self) -> &[Json] {
        if let Json::List(items) = self { items } else { &[] }
    }

    pub(crate) fn text(&self) -> Option<&str> {
        if let Json::Text(text) = self { Some(text) } else { None }
    }
}

impl From<&str> for Json {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<i64> for Json {
    fn from(number: i64) -> Self {
        Self::Token(number.to_string())
    }
}

impl From<bool> for Json {
    fn from(bool: bool) -> Self {
        Self::Token(bool.to_string())
    }
}

impl From<Vec<Json>> for Json {
    fn from(items: Vec<Json>) -> Self {
        Self::List(items)
    }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quoted = |text: &str| serde_json::to_string(text).unwrap();
        match self {
            Self::Token(token) => f.write_str(token),
            Self::Text(text) => f.write_str(&quoted(text)),
            Self::List(items) => {
                f.write_str("[")?;
                for (number, item) in items.iter().enumerate() {
                    write!(f, "{}{item}", if number > 0 { "," } else { "" })?;
                }
                f.write_str("]")
            }
            Self::Map(members) => {
                f.write_str("{")?;
                for (number, (name, value)) in members.iter().enumerate() {
                    write!(f, "{}{}:{value}", if number > 0 { "," } else { "" }, quoted(name))?;
                }
                f.write_str("}")
            }
        }
    }
}
