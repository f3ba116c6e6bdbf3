//! Identifiers and traits of a body: the limits of their lengths, and their values for the snapshot.

use remora_snapshot::TraitValue;

use crate::json::Value;

/// Largest length of an identifier and of a string value of a trait, in characters (Unicode code points): Flagsmith's
/// limit.
pub(crate) const MAX_CHARACTERS: usize = 2000;

/// Largest length of a trait's name in characters: Flagsmith's limit.
pub(crate) const MAX_NAME_CHARACTERS: usize = 200;

/// Number of times that a body may contain its traits or its context, of which the last one counts. Each repetition
/// clears all slots of the request state.
pub(crate) const MAX_REPETITIONS: usize = 16;

/// True if an identifier or the value of a trait is longer than Flagsmith allows.
pub(crate) fn is_too_long(text: &str) -> bool {
    text.len() > MAX_CHARACTERS && text.chars().count() > MAX_CHARACTERS
}

/// Converts a value of the body for the snapshot. Lists and objects become null: their text is
/// [`super::python::text_of`].
pub(crate) fn trait_value<'s, 'a: 's>(value: Value<'a>, scratch: &'s mut String) -> TraitValue<'s> {
    match value {
        Value::Bool(value) => TraitValue::Bool(value),
        Value::Integer(digits) => TraitValue::Integer(digits),
        Value::Float(float) => TraitValue::Float(float.value()),
        Value::String(text) => TraitValue::String(text.decode(scratch)),
        Value::Null | Value::Array | Value::Object => TraitValue::Null,
    }
}
