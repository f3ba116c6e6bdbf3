//! JSON values in the spelling that answers need: numbers of any size, integers apart from floats.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use remora_snapshot::model::Members;
use remora_snapshot::{Integer, json, write_float};

use super::list::list;

/// A string, number, boolean or null, as one JSON token in the form that answers use.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Scalar(Box<str>);

impl Scalar {
    /// Returns the token.
    #[must_use]
    pub fn token(&self) -> &str {
        &self.0
    }
}

impl Default for Scalar {
    fn default() -> Self {
        Self("null".into())
    }
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&RawValue>::deserialize(deserializer)?;
        scalar(raw.get()).map_err(D::Error::custom)
    }
}

fn scalar(token: &str) -> Result<Scalar, String> {
    Ok(Scalar(match token.as_bytes().first() {
        Some(b'n' | b't' | b'f') => token.into(),
        Some(b'"') => {
            let mut written = String::with_capacity(token.len());
            json::write_string(&string(token)?, &mut written);
            written.into()
        }
        Some(b'-' | b'0'..=b'9') => number(token)?.text.into(),
        _ => return Err("expected a string, a number, true, false or null, found an array or an object".to_owned()),
    }))
}

fn string(token: &str) -> Result<String, String> {
    serde_json::from_str(token).map_err(|error| format!("malformed string: {error}"))
}

/// A number, and its text as Python prints it.
#[derive(Debug, Clone, PartialEq)]
pub struct Number {
    /// Nearest `f64`.
    pub value: f64,
    /// Digits of an integer, or the `repr` of a float.
    pub text: String,
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&RawValue>::deserialize(deserializer)?;
        number(raw.get()).map_err(D::Error::custom)
    }
}

fn number(token: &str) -> Result<Number, String> {
    let value: f64 = token.parse().map_err(|_| "expected a number".to_owned())?;
    let text = match Integer::parse(token) {
        Some(Integer::Small(small)) => small.to_string(),
        Some(Integer::Big { .. }) => token.to_owned(),
        None if value.is_finite() => {
            let mut text = String::new();
            write_float(value, &mut text);
            text
        }
        None => return Err("the number is larger than any that can be computed with".to_owned()),
    };
    Ok(Number { value, text })
}

/// Value of a condition: text, nothing, or a list for `IN`.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum ConditionValue {
    /// `null` or absent.
    #[default]
    Null,
    /// A string, which may spell a number.
    Text(String),
    /// A list, with each member as Python's `str` prints it.
    List(Members),
}

impl<'de> Deserialize<'de> for ConditionValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&RawValue>::deserialize(deserializer)?;
        match raw.get().as_bytes().first() {
            Some(b'n') => Ok(Self::Null),
            Some(b'"') => string(raw.get()).map(Self::Text).map_err(D::Error::custom),
            Some(b'[') => list(raw.get()).map(Self::List).map_err(D::Error::custom),
            _ => Err(D::Error::custom("expected a string, an array or null")),
        }
    }
}

/// Deserializes `null` as the default, as if the member were absent.
pub(super) fn null_is_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
