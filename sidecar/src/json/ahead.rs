//! Reading ahead: what most bodies are made of is passed at a glance, by comparing it with what serializers write.
//!
//! Nothing is refused here. What looks different stays where it is, to be read step by step.

use super::text::{Text, plain};
use super::{Float, Group, Reader, Value};
use crate::numbers::is_shortest;

impl<'a> Reader<'a> {
    /// What has not been passed.
    #[inline(always)]
    pub(crate) fn ahead(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// Passes what was read ahead, up to this rest of it.
    #[inline(always)]
    pub(crate) fn pass_to(&mut self, rest: &'a str) {
        self.at = self.text.len().saturating_sub(rest.len());
    }

    /// Passes the next member of an object, if its value is a scalar, and if all is as serializers write it: one space or
    /// none behind colons and commas.
    #[inline(always)]
    pub(crate) fn pass_member(&mut self, group: &mut Group) -> Option<(Text<'a>, Value<'a>)> {
        let text = self.ahead();
        let (name, value, rest) = member(if group.first { text } else { comma(text)? })?;
        group.first = false;
        self.pass_to(rest);
        Some((name, value))
    }

    /// The same, as long as there are such members.
    #[inline(always)]
    pub(crate) fn pass_members(&mut self, group: &mut Group, mut take: impl FnMut(Text<'a>, Value<'a>)) {
        let mut behind = self.ahead();
        let mut next = if group.first { Some(behind) } else { comma(behind) };
        while let Some((name, value, rest)) = next.and_then(member) {
            take(name, value);
            group.first = false;
            behind = rest;
            next = comma(rest);
        }
        self.pass_to(behind);
    }

    /// Passes to the value of the next member of an object, if that has this name, which needs no escapes, and if all is as
    /// serializers write it.
    #[inline(always)]
    pub(crate) fn pass_name(&mut self, group: &mut Group, name: &str) -> bool {
        let behind = || {
            let text = self.ahead();
            let text = if group.first { text } else { comma(text)? };
            text.strip_prefix("\"")?.strip_prefix(name)?.strip_prefix("\":")
        };
        let Some(rest) = behind() else { return false };
        group.first = false;
        self.pass_to(rest);
        true
    }
}

#[inline(always)]
fn space(text: &str) -> &str {
    text.strip_prefix(" ").unwrap_or(text)
}

/// What follows a comma.
#[inline(always)]
fn comma(text: &str) -> Option<&str> {
    text.strip_prefix(",").map(space)
}

/// A member of an object, whose value is a scalar; and what follows it.
#[inline(always)]
fn member(text: &str) -> Option<(Text<'_>, Value<'_>, &str)> {
    let (raw, text) = string(text.strip_prefix("\"")?)?;
    let (value, rest) = scalar(space(text.strip_prefix(":")?))?;
    let whole = matches!(rest.as_bytes().first(), Some(b',' | b'}'));
    whole.then_some((Text { raw, escaped: false }, value, rest))
}

/// A string without escapes, from behind its opening quote; and what follows its closing one.
#[inline(always)]
fn string(text: &str) -> Option<(&str, &str)> {
    let (string, rest) = characters(text)?;
    Some((string, rest.strip_prefix("\"")?))
}

/// The characters of a string up to its end, or to the first that is escaped; and what follows.
#[inline(always)]
pub(crate) fn characters(text: &str) -> Option<(&str, &str)> {
    text.split_at_checked(plain(text.as_bytes()))
}

/// A scalar that is written again as it stands; and what follows it. If that is neither a comma nor a bracket, it was not
/// the whole value.
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
        // Of the length limit, and of a zero with a sign, the reader knows.
        return (token.len() < 40 && token != "-0").then_some((Value::Integer(token), rest));
    };
    let (fraction, rest) = digits(rest)?;
    if !is_shortest(whole, fraction) {
        return None;
    }
    let token = token(rest)?;
    Some((Value::Float(Float(token)), rest))
}

/// At least one.
#[inline(always)]
fn digits(text: &str) -> Option<(&str, &str)> {
    let count = text.bytes().take_while(u8::is_ascii_digit).count();
    text.split_at_checked(count).filter(|(digits, _)| !digits.is_empty())
}
