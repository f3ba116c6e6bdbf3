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

use remora_snapshot::Snapshot;

use super::anonymous::anonymous;
use super::scratch::Scratch;
use super::validation::{Location, Problem, Refused};
use super::values::{MAX_CHARACTERS, MAX_REPETITIONS};
use crate::json::{self, Reader, Text, Value};
use traits::read_traits;

/// Evaluates a body and appends the answer to `out`. Returns the digest of the flags, from which their assignment key
/// follows. A body that is refused appends nothing.
pub(crate) fn answer_body<B: AsRef<[u8]>>(
    body: &[u8],
    snapshot: &Snapshot<B>,
    role: remora_snapshot::Role,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> Result<u64, Refused> {
    let identifier = read::<true, B>(body, snapshot, scratch)?;
    out.extend_from_slice(br#"{"identifier":"#);
    match identifier.filter(|identifier| !identifier.is_empty()) {
        Some(identifier) => {
            snapshot.identify(&mut scratch.subject, identifier.decode(&mut scratch.text));
            json::write_text(identifier, &mut scratch.text, out);
        }
        None => {
            let identifier = anonymous(&scratch.echo);
            snapshot.identify(&mut scratch.subject, &identifier);
            json::write_string(&identifier, out);
        }
    }
    out.extend_from_slice(br#","traits":"#);
    out.extend_from_slice(&scratch.echo);
    Ok(write_flags(snapshot, role, scratch, out))
}

/// Evaluates an identifier of the query, which has no traits. Appends the answer to `out`, and returns the digest of
/// the flags.
pub(crate) fn answer_identifier<B: AsRef<[u8]>>(
    identifier: &str,
    snapshot: &Snapshot<B>,
    role: remora_snapshot::Role,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> u64 {
    let generated;
    let identifier = if identifier.is_empty() {
        generated = anonymous(b"[]");
        &generated
    } else {
        identifier
    };
    scratch.subject.clear();
    snapshot.identify(&mut scratch.subject, identifier);
    out.extend_from_slice(br#"{"identifier":"#);
    json::write_string(identifier, out);
    out.extend_from_slice(br#","traits":[]"#);
    write_flags(snapshot, role, scratch, out)
}

fn write_flags<B: AsRef<[u8]>>(
    snapshot: &Snapshot<B>,
    role: remora_snapshot::Role,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> u64 {
    out.extend_from_slice(br#","flags":"#);
    let digest = snapshot.write_flags(&mut scratch.subject, role, out);
    out.push(b'}');
    digest
}

/// Reads the body, by the fast path where `FAST` is true and the body allows it. The traits go to the subject and to
/// the echo; returns the identifier.
fn read<'a, const FAST: bool, B: AsRef<[u8]>>(
    body: &'a [u8],
    snapshot: &Snapshot<B>,
    scratch: &mut Scratch,
) -> Result<Option<Text<'a>>, Refused> {
    let mut reader = Reader::new(body)?;
    let mut identifier = None;
    let mut lists = 0;
    scratch.subject.clear();
    scratch.echo.clear();
    scratch.echo.extend_from_slice(b"[]");
    let Some(mut members) = reader.enter_object() else {
        reader.value()?;
        return Err(Refused::Invalid(Location::Body, Problem::NotAnObject));
    };
    loop {
        if FAST && reader.fast_name(&mut members, "traits") {
            lists = next_list(lists)?;
            read_traits::<FAST, B>(&mut reader, snapshot, scratch)?;
            continue;
        }
        let member = if FAST { reader.fast_member(&mut members) } else { None };
        let (name, value) = match member {
            Some(member) => member,
            None => {
                let Some(name) = reader.next_member(&mut members)? else { break };
                if name.is("traits") {
                    lists = next_list(lists)?;
                    read_traits::<FAST, B>(&mut reader, snapshot, scratch)?;
                    continue;
                }
                (name, reader.value()?)
            }
        };
        if name.is("identifier") {
            identifier = match value {
                Value::String(text) => Some(text),
                Value::Null => None,
                _ => return Err(Refused::Invalid(Location::Member("identifier"), Problem::NotAString)),
            };
        }
    }
    reader.finish()?;
    if identifier.is_some_and(|text| text.is_longer_than(MAX_CHARACTERS, &mut scratch.text)) {
        return Err(Refused::Invalid(Location::Member("identifier"), Problem::TooLong));
    }
    Ok(identifier)
}

/// Counts another list of traits, up to [`MAX_REPETITIONS`].
fn next_list(lists: usize) -> Result<usize, Refused> {
    if lists == MAX_REPETITIONS {
        return Err(Refused::Invalid(Location::Member("traits"), Problem::Repeated));
    }
    Ok(lists + 1)
}
