//! What the body of `identities/` means, and what of it comes back.
//!
//! One pass over the body tells the snapshot who is asking, and writes the echo of the traits: as they
//! were sent, in order, with repetitions and nulls, without what we do not know. Members may come in
//! any order and more than once (the last one counts).
//!
//! An identifier that is missing, null or empty is an anonymous identity, as with Flagsmith's API (its
//! edge proxies refuse the first two, and evaluate the empty string as somebody's name).

use remora_snapshot::{Snapshot, Subject, TraitValue};

use crate::anonymous::anonymous;
use crate::assignment::Assignment;
use crate::json::{self, Malformed, Number, Reader, Text, Value};
use crate::numbers;

/// The longest string that a trait may have, in characters, as Flagsmith has it.
const MAX_TRAIT_CHARACTERS: usize = 2000;

/// What is kept from request to request, so that a request allocates nothing.
#[derive(Default)]
pub(crate) struct Desk {
    /// Who is asking.
    pub(crate) subject: Subject,
    /// The list of traits, as it goes back.
    pub(crate) echo: Vec<u8>,
    /// Decoded strings; two, because a trait has a name and a value.
    pub(crate) name: String,
    pub(crate) text: String,
    /// What OFREP's tag of a context is made of.
    pub(crate) digests: Vec<crate::ofrep::Digest>,
}

/// Why a body was refused. The status is 422, and the text has the form of the edge proxy's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// It is not JSON.
    Malformed(Malformed),
    /// Something in it is not what it has to be.
    Invalid(Place, Complaint),
}

/// Where in the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// The body itself.
    Body,
    /// A member of it.
    Member(&'static str),
    /// One trait.
    Trait(usize),
    /// A member of one trait.
    TraitMember(usize, &'static str),
}

/// What is wrong there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Complaint {
    NotAnObject,
    NotAList,
    NotAString,
    NotAScalar,
    Missing,
    TooLong,
}

impl Complaint {
    fn kind_and_message(self) -> (&'static str, &'static str) {
        match self {
            Complaint::NotAnObject => ("model_attributes_type", "Input should be an object"),
            Complaint::NotAList => ("list_type", "Input should be a valid list"),
            Complaint::NotAString => ("string_type", "Input should be a valid string"),
            Complaint::NotAScalar => ("scalar_type", "Input should be a string, a number, a boolean or null"),
            Complaint::Missing => ("missing", "Field required"),
            Complaint::TooLong => ("string_too_long", "String should have at most 2000 characters"),
        }
    }
}

impl From<Malformed> for Refused {
    fn from(malformed: Malformed) -> Refused {
        Refused::Malformed(malformed)
    }
}

impl Refused {
    /// Appends the answer's body.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        use std::io::Write as _;
        // Writing to a vector cannot fail; none of these texts needs an escape.
        let _ = match self {
            Refused::Malformed(Malformed { at, problem }) => write!(
                out,
                r#"{{"detail":[{{"type":"json_invalid","loc":["body",{at}],"msg":"JSON decode error","input":{{}},"ctx":{{"error":"{problem}"}}}}]}}"#
            ),
            Refused::Invalid(place, complaint) => {
                let (kind, message) = complaint.kind_and_message();
                let _ = write!(out, r#"{{"detail":[{{"type":"{kind}","loc":["body""#);
                let _ = match place {
                    Place::Body => Ok(()),
                    Place::Member(member) => write!(out, r#","{member}""#),
                    Place::Trait(index) => write!(out, r#","traits",{index}"#),
                    Place::TraitMember(index, member) => write!(out, r#","traits",{index},"{member}""#),
                };
                write!(out, r#"],"msg":"{message}","input":null}}]}}"#)
            }
        };
    }
}

/// Answers a body: appends the whole answer to `out`, which is left alone when the body is refused, and
/// names the flags in it.
pub(crate) fn answer_body<B: AsRef<[u8]>>(
    body: &[u8],
    snapshot: &Snapshot<B>,
    role: remora_snapshot::Role,
    desk: &mut Desk,
    out: &mut Vec<u8>,
) -> Result<Assignment, Refused> {
    let identifier = read(body, snapshot, desk)?;
    out.extend_from_slice(br#"{"identifier":"#);
    match identifier.filter(|identifier| !identifier.is_empty()) {
        Some(identifier) => {
            snapshot.identify(&mut desk.subject, identifier.decode(&mut desk.text));
            json::write_text(identifier, &mut desk.text, out);
        }
        None => {
            let identifier = anonymous(&desk.echo);
            snapshot.identify(&mut desk.subject, &identifier);
            json::write_string(&identifier, out);
        }
    }
    out.extend_from_slice(br#","traits":"#);
    out.extend_from_slice(&desk.echo);
    Ok(write_flags(snapshot, role, desk, out))
}

/// Answers an identifier that came in the query, where there are no traits.
pub(crate) fn answer_identifier<B: AsRef<[u8]>>(
    identifier: &str,
    snapshot: &Snapshot<B>,
    role: remora_snapshot::Role,
    desk: &mut Desk,
    out: &mut Vec<u8>,
) -> Assignment {
    let generated;
    let identifier = if identifier.is_empty() {
        generated = anonymous(b"[]");
        &generated
    } else {
        identifier
    };
    desk.subject.clear();
    snapshot.identify(&mut desk.subject, identifier);
    out.extend_from_slice(br#"{"identifier":"#);
    json::write_string(identifier, out);
    out.extend_from_slice(br#","traits":[]"#);
    write_flags(snapshot, role, desk, out)
}

fn write_flags<B: AsRef<[u8]>>(
    snapshot: &Snapshot<B>,
    role: remora_snapshot::Role,
    desk: &mut Desk,
    out: &mut Vec<u8>,
) -> Assignment {
    out.extend_from_slice(br#","flags":"#);
    let assignment = Assignment::of(snapshot.write_flags(&mut desk.subject, role, out));
    out.push(b'}');
    assignment
}

/// Reads the body: the traits go to the subject and to the echo, the identifier is returned.
fn read<'a, B: AsRef<[u8]>>(
    body: &'a [u8],
    snapshot: &Snapshot<B>,
    desk: &mut Desk,
) -> Result<Option<Text<'a>>, Refused> {
    let mut reader = Reader::new(body)?;
    let mut identifier = None;
    desk.subject.clear();
    desk.echo.clear();
    desk.echo.extend_from_slice(b"[]");
    let Some(mut members) = reader.enter_object() else {
        reader.value()?;
        return Err(Refused::Invalid(Place::Body, Complaint::NotAnObject));
    };
    while let Some(name) = reader.next_member(&mut members)? {
        if name.is("identifier") {
            identifier = match reader.value()? {
                Value::String(text) => Some(text),
                Value::Null => None,
                _ => return Err(Refused::Invalid(Place::Member("identifier"), Complaint::NotAString)),
            };
        } else if name.is("traits") {
            desk.subject.clear();
            desk.echo.clear();
            read_traits(&mut reader, snapshot, desk)?;
        } else {
            reader.value()?;
        }
    }
    reader.finish()?;
    Ok(identifier)
}

fn read_traits<B: AsRef<[u8]>>(
    reader: &mut Reader<'_>,
    snapshot: &Snapshot<B>,
    desk: &mut Desk,
) -> Result<(), Refused> {
    let Some(mut items) = reader.enter_array() else {
        reader.value()?;
        return Err(Refused::Invalid(Place::Member("traits"), Complaint::NotAList));
    };
    let mut index = 0;
    desk.echo.push(b'[');
    while reader.next_item(&mut items)? {
        let (key, value) = match reader.pair("trait_key", "trait_value") {
            Some((key, value)) => (key, checked(value, index, desk)?),
            None => read_trait(reader, index, desk)?,
        };
        if index > 0 {
            desk.echo.push(b',');
        }
        desk.echo.extend_from_slice(br#"{"trait_key":"#);
        json::write_text(key, &mut desk.name, &mut desk.echo);
        desk.echo.extend_from_slice(br#","trait_value":"#);
        write_value(value, &mut desk.text, &mut desk.echo);
        desk.echo.push(b'}');
        let value = trait_value(value, &mut desk.text);
        snapshot.set_trait(&mut desk.subject, key.decode(&mut desk.name), value);
        index += 1;
    }
    desk.echo.push(b']');
    Ok(())
}

fn read_trait<'a>(reader: &mut Reader<'a>, index: usize, desk: &mut Desk) -> Result<(Text<'a>, Value<'a>), Refused> {
    let mut key = None;
    let mut value = Value::Null;
    let Some(mut members) = reader.enter_object() else {
        reader.value()?;
        return Err(Refused::Invalid(Place::Trait(index), Complaint::NotAnObject));
    };
    while let Some(name) = reader.next_member(&mut members)? {
        if name.is("trait_key") {
            key = match reader.value()? {
                Value::String(text) => Some(text),
                _ => {
                    let place = Place::TraitMember(index, "trait_key");
                    return Err(Refused::Invalid(place, Complaint::NotAString));
                }
            };
        } else if name.is("trait_value") {
            value = checked(reader.value()?, index, desk)?;
        } else {
            reader.value()?;
        }
    }
    match key {
        Some(key) => Ok((key, value)),
        None => Err(Refused::Invalid(Place::TraitMember(index, "trait_key"), Complaint::Missing)),
    }
}

fn checked<'a>(value: Value<'a>, index: usize, desk: &mut Desk) -> Result<Value<'a>, Refused> {
    let complaint = match value {
        Value::Array | Value::Object => Complaint::NotAScalar,
        Value::String(text) if text.is_longer_than(MAX_TRAIT_CHARACTERS, &mut desk.text) => Complaint::TooLong,
        _ => return Ok(value),
    };
    Err(Refused::Invalid(Place::TraitMember(index, "trait_value"), complaint))
}

fn write_value(value: Value<'_>, scratch: &mut String, out: &mut Vec<u8>) {
    match value {
        Value::Bool(true) => out.extend_from_slice(b"true"),
        Value::Bool(false) => out.extend_from_slice(b"false"),
        Value::Number(Number::Integer(digits)) => out.extend_from_slice(digits.as_bytes()),
        Value::Number(Number::Float(value, token)) => numbers::write_again(token, value, out),
        Value::String(text) => json::write_text(text, scratch, out),
        Value::Null | Value::Array | Value::Object => out.extend_from_slice(b"null"),
    }
}

/// A value of the body as the snapshot wants it. Lists and objects are not set.
pub(crate) fn trait_value<'s, 'a: 's>(value: Value<'a>, scratch: &'s mut String) -> TraitValue<'s> {
    match value {
        Value::Bool(value) => TraitValue::Bool(value),
        Value::Number(Number::Integer(digits)) => TraitValue::Integer(digits),
        Value::Number(Number::Float(value, _)) => TraitValue::Float(value),
        Value::String(text) => TraitValue::String(text.decode(scratch)),
        Value::Null | Value::Array | Value::Object => TraitValue::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_name_their_place() {
        let write = |refused: Refused| {
            let mut out = Vec::new();
            refused.write(&mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(
            write(Refused::Invalid(Place::TraitMember(3, "trait_key"), Complaint::Missing)),
            r#"{"detail":[{"type":"missing","loc":["body","traits",3,"trait_key"],"msg":"Field required","input":null}]}"#
        );
        assert_eq!(
            write(Refused::Malformed(Malformed { at: 7, problem: "expected a value" })),
            r#"{"detail":[{"type":"json_invalid","loc":["body",7],"msg":"JSON decode error","input":{},"ctx":{"error":"expected a value"}}]}"#
        );
    }
}
