//! The fast path of the reader: reads text in exactly the form that serializers write, by comparing it with that form.
//!
//! The fast path reads the one long list of a body: the traits of an identity. The fast path refuses nothing. It does
//! not consume text of another form, which the general reader then reads.

use super::number::is_shortest;
use super::text::{Text, plain};
use super::{Float, Reader, Value};

impl<'a> Reader<'a> {
    /// Returns the text that is not consumed.
    #[inline(always)]
    pub(crate) fn remaining(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// Consumes the text up to `rest`.
    #[inline(always)]
    pub(crate) fn advance_to(&mut self, rest: &'a str) {
        self.at = self.text.len().saturating_sub(rest.len());
    }
}

/// Parses a string without escapes. `text` starts behind its opening quote; returns the text behind the closing one.
#[inline(always)]
fn string(text: &str) -> Option<(&str, &str)> {
    let (string, rest) = characters(text)?;
    Some((string, rest.strip_prefix("\"")?))
}

/// Returns the characters of a string up to its end or its first escape, and the text behind them.
#[inline(always)]
pub(crate) fn characters(text: &str) -> Option<(&str, &str)> {
    text.split_at_checked(plain(text.as_bytes()))
}

/// Parses a scalar that is its own echo, and returns the text behind it. If that starts with neither a comma nor a
/// bracket, the scalar was not the whole value.
#[inline(always)]
pub(crate) fn scalar(text: &str) -> Option<(Value<'_>, &str)> {
    match text.as_bytes().first()? {
        b'"' => {
            let (raw, rest) = string(text.strip_prefix("\"")?)?;
            Some((Value::String(Text { raw, escaped: false }), rest))
        }
        b't' => Some((Value::Bool(true), text.strip_prefix("true")?)),
        b'f' => Some((Value::Bool(false), text.strip_prefix("false")?)),
        b'n' => Some((Value::Null, text.strip_prefix("null")?)),
        _ => number(text),
    }
}

#[inline(always)]
fn number(text: &str) -> Option<(Value<'_>, &str)> {
    let unsigned = text.strip_prefix("-").unwrap_or(text);
    let (whole, rest) = digits(unsigned)?;
    if whole.len() > 1 && whole.starts_with("0") {
        return None;
    }
    let token = |rest: &str| text.get(..text.len() - rest.len());
    let Some(rest) = rest.strip_prefix(".") else {
        let token = token(rest)?;
        // The general reader handles long integers and a negative zero.
        return (token.len() < 40 && token != "-0").then_some((Value::Integer(token), rest));
    };
    let (fraction, rest) = digits(rest)?;
    if !is_shortest(whole, fraction) {
        return None;
    }
    let token = token(rest)?;
    Some((Value::Float(Float::of(token)), rest))
}

/// Splits off one or more digits.
#[inline(always)]
fn digits(text: &str) -> Option<(&str, &str)> {
    let count = text.bytes().take_while(u8::is_ascii_digit).count();
    text.split_at_checked(count).filter(|(digits, _)| !digits.is_empty())
}
