//! OpenFeature's remote evaluation protocol (OFREP): the context of a request, and the protocol's errors.
//!
//! The context's `targetingKey` is the identifier, and its other members are traits. The members of a nested object
//! `traits` are traits too, and take precedence over members of the context. A boolean `transient` is a directive to
//! Flagsmith's API, which stores traits; the sidecar ignores it. As in the other dialect, white space around the
//! identifier and the names of traits is removed, and lists and objects stand for their text. Without a targeting key,
//! the flags of the environment are evaluated.

use std::fmt::Display;
use std::io::Write as _;

use remora_snapshot::{Snapshot, TraitValue};

use super::context_hash::{TraitHash, context_hash};
use super::name::{Name, is_bare, strip};
use super::python;
use super::scratch::Scratch;
use super::values::{MAX_CHARACTERS, MAX_NAME_CHARACTERS, MAX_REPETITIONS, trait_value};
use crate::json::{self, Group, Malformed, Reader, Text, Value};

/// Reason why a request was refused. The status is 400.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InvalidContext {
    /// The body is not JSON.
    Malformed(Malformed),
    /// The body is not a request of the protocol.
    Context(&'static str),
}

impl From<Malformed> for InvalidContext {
    fn from(malformed: Malformed) -> InvalidContext {
        InvalidContext::Malformed(malformed)
    }
}

impl InvalidContext {
    /// Appends the answer's body. `key` is the key of the requested flag, if the request names one.
    pub(crate) fn write(&self, key: Option<&str>, out: &mut Vec<u8>) {
        match self {
            InvalidContext::Malformed(malformed) => write_failure(key, Some("PARSE_ERROR"), malformed, out),
            InvalidContext::Context(problem) => write_failure(key, Some("INVALID_CONTEXT"), problem, out),
        }
    }
}

/// Appends a failure.
pub(crate) fn write_failure(key: Option<&str>, code: Option<&str>, details: &dyn Display, out: &mut Vec<u8>) {
    out.push(b'{');
    if let Some(key) = key {
        out.extend_from_slice(br#""key":"#);
        json::write_string(key, out);
        out.push(b',');
    }
    // Writing to a vector cannot fail.
    if let Some(code) = code {
        let _ = write!(out, r#""errorCode":"{code}","#);
    }
    out.extend_from_slice(br#""errorDetails":"#);
    json::write_string(&details.to_string(), out);
    out.push(b'}');
}

/// Selects if an answer gets an entity tag, for which its context is hashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EntityTag {
    /// The answer gets a tag.
    Wanted,
    /// The answer gets no tag, and nothing is hashed.
    Unwanted,
}

/// Reads a request's context into the request state. Returns a hash that equal contexts share, if the answer gets an
/// entity tag.
pub(crate) fn read<B: AsRef<[u8]>>(
    body: &[u8],
    snapshot: &Snapshot<B>,
    scratch: &mut Scratch,
    entity_tag: EntityTag,
) -> Result<u64, InvalidContext> {
    scratch.request.clear();
    scratch.trait_hashes.clear();
    if body.is_empty() {
        return Ok(0);
    }
    let mut reader = Reader::new(body)?;
    let mut context = Ok(0);
    let mut contexts = 0;
    let Some(mut members) = reader.enter_object() else {
        reader.value()?;
        return Err(InvalidContext::Context(r#"the body is not an object: send {"context":{"targetingKey":"..."}}"#));
    };
    while let Some(name) = reader.next_member(&mut members)? {
        if !name.is("context") {
            reader.value()?;
            continue;
        }
        contexts += 1;
        if contexts > MAX_REPETITIONS {
            return Err(InvalidContext::Context("the context is repeated more than 16 times"));
        }
        // If the body repeats the context, the last one counts.
        scratch.request.forget();
        scratch.trait_hashes.clear();
        context = match reader.enter_object() {
            Some(members) => read_context(&mut reader, members, snapshot, scratch, entity_tag)?,
            None => {
                reader.value()?;
                Err(InvalidContext::Context("the context is not an object"))
            }
        };
    }
    reader.finish()?;
    context
}

/// Reads the members of one context into the request state.
struct ContextReader<'s, 'r, B> {
    snapshot: &'s Snapshot<B>,
    scratch: &'s mut Scratch,
    entity_tag: EntityTag,
    /// The identifier, of which the last one counts.
    identifier: Result<Option<Name<'r>>, InvalidContext>,
    /// The first part of a trait that is longer than Flagsmith allows.
    too_long: Option<&'static str>,
}

/// Reads to the end of the context even if it is refused: malformed JSON behind it is reported first.
fn read_context<B: AsRef<[u8]>>(
    reader: &mut Reader<'_>,
    mut members: Group,
    snapshot: &Snapshot<B>,
    scratch: &mut Scratch,
    entity_tag: EntityTag,
) -> Result<Result<u64, InvalidContext>, Malformed> {
    let mut context = ContextReader { snapshot, scratch, entity_tag, identifier: Ok(None), too_long: None };
    let mut nested = None;
    while let Some(name) = reader.next_member(&mut members)? {
        let place = reader.clone();
        let value = reader.value()?;
        if name.is("traits") && value == Value::Object {
            nested = Some(place);
        } else if name.is("targetingKey") {
            context.take_identifier(value);
        } else if !(name.is("transient") && matches!(value, Value::Bool(_))) {
            context.take_trait(name, value, place)?;
        }
    }
    if let Some(mut reader) = nested
        && let Some(mut members) = reader.enter_object()
    {
        while let Some(name) = reader.next_member(&mut members)? {
            let place = reader.clone();
            let value = reader.value()?;
            context.take_trait(name, value, place)?;
        }
    }
    Ok(context.finish())
}

impl<'r, B: AsRef<[u8]>> ContextReader<'_, 'r, B> {
    #[inline(always)]
    fn take_identifier(&mut self, value: Value<'r>) {
        self.identifier = match value {
            Value::String(text) => Ok(Some(Name::stripped(text))),
            Value::Null => Ok(None),
            _ => Err(InvalidContext::Context("the targetingKey is not a string")),
        };
    }

    /// Sets a trait. `place` is the reader before the value.
    #[inline(always)]
    fn take_trait(&mut self, name: Text<'_>, value: Value<'_>, place: Reader<'_>) -> Result<(), Malformed> {
        if matches!(value, Value::Array | Value::Object) {
            return self.take_printed(name, place);
        }
        let ContextReader { snapshot, scratch, entity_tag, too_long, .. } = self;
        if name.may_be_longer_than(MAX_NAME_CHARACTERS)
            || matches!(value, Value::String(text) if text.may_be_longer_than(MAX_CHARACTERS))
        {
            *too_long = too_long.or_else(|| beyond_limits(name, value, &mut scratch.text));
        }
        let name = bare(name.decode(&mut scratch.name));
        if *entity_tag == EntityTag::Wanted {
            let position = scratch.trait_hashes.len();
            scratch.trait_hashes.push(TraitHash::of(position, name, value, &mut scratch.text));
        }
        snapshot.set_trait_with(&mut scratch.request, name, || trait_value(value, &mut scratch.text));
        Ok(())
    }

    /// Sets a trait to the text of a list or of an object, which the reader is at: Flagsmith's API stores this text. A
    /// text that is longer than Flagsmith allows sets no trait.
    #[cold]
    fn take_printed(&mut self, name: Text<'_>, mut reader: Reader<'_>) -> Result<(), Malformed> {
        let ContextReader { snapshot, scratch, entity_tag, too_long, .. } = self;
        let text = python::text_of(&mut reader)?;
        let text = text.as_deref();
        *too_long = too_long.or_else(|| beyond_limits(name, Value::Null, &mut scratch.text));
        let name = bare(name.decode(&mut scratch.name));
        if *entity_tag == EntityTag::Wanted {
            let position = scratch.trait_hashes.len();
            scratch.trait_hashes.push(TraitHash::of_printed(position, name, text));
        }
        snapshot.set_trait(&mut scratch.request, name, text.map_or(TraitValue::Null, TraitValue::String));
        Ok(())
    }

    /// Sets the identifier, and returns the hash of the context.
    #[inline(always)]
    fn finish(self) -> Result<u64, InvalidContext> {
        let ContextReader { snapshot, scratch, entity_tag, identifier, too_long } = self;
        if let Some(problem) = too_long {
            return Err(InvalidContext::Context(problem));
        }
        let identifier = identifier.and_then(within_limit)?;
        match identifier.filter(|identifier| !identifier.is_empty()) {
            Some(identifier) => {
                let identifier = identifier.decode(&mut scratch.text);
                snapshot.identify(&mut scratch.request, identifier);
                Ok(if entity_tag == EntityTag::Wanted {
                    context_hash(identifier, &mut scratch.trait_hashes)
                } else {
                    0
                })
            }
            None => {
                scratch.request.forget();
                Ok(0)
            }
        }
    }
}

/// Refuses an identifier that is longer than Flagsmith allows.
fn within_limit(identifier: Option<Name<'_>>) -> Result<Option<Name<'_>>, InvalidContext> {
    match identifier {
        Some(name) if name.is_longer_than(MAX_CHARACTERS, &mut String::new()) => {
            Err(InvalidContext::Context("the targetingKey has more than 2000 characters"))
        }
        identifier => Ok(identifier),
    }
}

/// Returns the name without white space around it.
#[inline(always)]
fn bare(name: &str) -> &str {
    if is_bare(name) { name } else { strip(name) }
}

/// Describes the part of a trait that is longer than Flagsmith allows, counted in characters.
#[cold]
fn beyond_limits(name: Text<'_>, value: Value<'_>, scratch: &mut String) -> Option<&'static str> {
    if name.may_be_longer_than(MAX_NAME_CHARACTERS) && bare(name.decode(scratch)).chars().count() > MAX_NAME_CHARACTERS
    {
        return Some("the name of an attribute of the context has more than 200 characters");
    }
    let too_long = matches!(value, Value::String(text) if text.is_longer_than(MAX_CHARACTERS, scratch));
    too_long.then_some("an attribute of the context has more than 2000 characters: leave out what no segment compares")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_has_the_form_of_the_protocol() {
        let mut out = Vec::new();
        write_failure(Some("a\"b"), Some("FLAG_NOT_FOUND"), &"no such flag", &mut out);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            r#"{"key":"a\"b","errorCode":"FLAG_NOT_FOUND","errorDetails":"no such flag"}"#
        );
        let mut out = Vec::new();
        write_failure(None, None, &"no data yet", &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), r#"{"errorDetails":"no data yet"}"#);
    }
}
