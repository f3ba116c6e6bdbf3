//! Reads the body of `identities/`, and writes the part of the answer that echoes it.
//!
//! One pass over the body sets the identifier and the traits of the snapshot's subject, and writes the echo of the
//! traits: as they were sent, in order, with repetitions and nulls, and without unknown members. Members may come in
//! any order and more than once; the last one counts.
//!
//! An identifier that is missing, null or empty stands for an anonymous identity, as in Flagsmith's API. (Its edge
//! proxies refuse the first two, and evaluate the empty string as an identifier.)

#[cfg(test)]
pub(crate) mod tests;
mod traits;

use remora_snapshot::{Snapshot, Subject};

use crate::anonymous::anonymous;
use crate::assignment::Assignment;
use crate::json::{self, Malformed, Reader, Text, Value};
use traits::read_traits;
pub(crate) use traits::trait_value;

/// Largest length of an identifier and of a string value of a trait, in characters (Unicode code points): Flagsmith's
/// limit.
pub(crate) const MAX_CHARACTERS: usize = 2000;

/// Largest length of a trait's name in characters: Flagsmith's limit.
pub(crate) const MAX_NAME_CHARACTERS: usize = 200;

/// Number of times that a body may contain its traits or its context, of which the last one counts. Each repetition
/// clears all slots of the subject.
pub(crate) const MAX_REPETITIONS: usize = 16;

/// True if an identifier is longer than Flagsmith allows.
pub(crate) fn is_too_long(identifier: &str) -> bool {
    identifier.len() > MAX_CHARACTERS && identifier.chars().count() > MAX_CHARACTERS
}

/// Scratch buffers that are kept between requests, so that a request allocates nothing.
#[derive(Default)]
pub(crate) struct Desk {
    /// The identity that is evaluated.
    pub(crate) subject: Subject,
    /// The list of traits, as the answer echoes it.
    pub(crate) echo: Vec<u8>,
    /// Decoded strings: two, because a trait has a name and a value.
    pub(crate) name: String,
    pub(crate) text: String,
    /// Hashes of the traits, for the entity tag of an OFREP answer.
    pub(crate) digests: Vec<crate::ofrep::Digest>,
}

/// Reason why a body was refused. The status is 422, and the answer has the edge proxy's form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The body is not JSON.
    Malformed(Malformed),
    /// A part of the body is invalid.
    Invalid(Place, Complaint),
}

/// The invalid part of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// The body itself.
    Body,
    /// A member of the body.
    Member(&'static str),
    /// The trait at this index.
    Trait(usize),
    /// A member of the trait at this index.
    TraitMember(usize, &'static str),
}

/// Reason why a part of a body is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Complaint {
    NotAnObject,
    NotAList,
    NotAString,
    NotAScalar,
    Missing,
    TooLong,
    NameTooLong,
    Repeated,
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
            Complaint::NameTooLong => ("string_too_long", "String should have at most 200 characters"),
            Complaint::Repeated => ("repeated", "Member should not be repeated more than 16 times"),
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
        // Writing to a vector cannot fail, and none of these texts needs an escape.
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

/// Evaluates a body and appends the answer to `out`. Returns the assignment key of the flags. A body that is refused
/// appends nothing.
pub(crate) fn answer_body<B: AsRef<[u8]>>(
    body: &[u8],
    snapshot: &Snapshot<B>,
    role: remora_snapshot::Role,
    desk: &mut Desk,
    out: &mut Vec<u8>,
) -> Result<Assignment, Refused> {
    let identifier = read::<true, B>(body, snapshot, desk)?;
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

/// Evaluates an identifier of the query, which has no traits. Appends the answer to `out`, and returns the assignment
/// key of the flags.
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
    let digest = snapshot.write_flags(&mut desk.subject, role, out);
    out.push(b'}');
    Assignment::of(digest)
}

/// Reads the body, by the fast path where `AHEAD` is true and the body allows it. The traits go to the subject and to
/// the echo; returns the identifier.
fn read<'a, const AHEAD: bool, B: AsRef<[u8]>>(
    body: &'a [u8],
    snapshot: &Snapshot<B>,
    desk: &mut Desk,
) -> Result<Option<Text<'a>>, Refused> {
    let mut reader = Reader::new(body)?;
    let mut identifier = None;
    let mut lists = 0;
    desk.subject.clear();
    desk.echo.clear();
    desk.echo.extend_from_slice(b"[]");
    let Some(mut members) = reader.enter_object() else {
        reader.value()?;
        return Err(Refused::Invalid(Place::Body, Complaint::NotAnObject));
    };
    loop {
        if AHEAD && reader.pass_name(&mut members, "traits") {
            lists = next_list(lists)?;
            read_traits::<AHEAD, B>(&mut reader, snapshot, desk)?;
            continue;
        }
        let passed = if AHEAD { reader.pass_member(&mut members) } else { None };
        let (name, value) = match passed {
            Some(member) => member,
            None => {
                let Some(name) = reader.next_member(&mut members)? else { break };
                if name.is("traits") {
                    lists = next_list(lists)?;
                    read_traits::<AHEAD, B>(&mut reader, snapshot, desk)?;
                    continue;
                }
                (name, reader.value()?)
            }
        };
        if name.is("identifier") {
            identifier = match value {
                Value::String(text) => Some(text),
                Value::Null => None,
                _ => return Err(Refused::Invalid(Place::Member("identifier"), Complaint::NotAString)),
            };
        }
    }
    reader.finish()?;
    if identifier.is_some_and(|text| text.is_longer_than(MAX_CHARACTERS, &mut desk.text)) {
        return Err(Refused::Invalid(Place::Member("identifier"), Complaint::TooLong));
    }
    Ok(identifier)
}

/// Counts another list of traits, up to [`MAX_REPETITIONS`].
fn next_list(lists: usize) -> Result<usize, Refused> {
    if lists == MAX_REPETITIONS {
        return Err(Refused::Invalid(Place::Member("traits"), Complaint::Repeated));
    }
    Ok(lists + 1)
}
