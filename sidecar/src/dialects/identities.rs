//! Reads the body of `identities/`, and writes the part of the answer that echoes it.
//!
//! One pass over the body sets the identifier and the traits of the snapshot's request state, and writes the echo of the
//! traits: as they were sent, in order, with repetitions and nulls, and without unknown members. Members may come in
//! any order and more than once; the last one counts, and only the last one has to be valid: Flagsmith's API parses the
//! whole body before it looks at a member.
//!
//! Bodies are read as leniently as Flagsmith's API reads them: names may be numbers, white space around them is
//! removed, values of traits may be lists and objects, and the body may be empty. An identifier that is missing, null or
//! empty stands for an anonymous identity. (Flagsmith's edge proxies refuse most of this.)

#[cfg(test)]
pub(crate) mod tests;
mod traits;

use remora_snapshot::Snapshot;

use super::anonymous::anonymous;
use super::name::Name;
use super::scratch::Scratch;
use super::validation::{InvalidBody, Location, Problem, check_boolean};
use super::values::{MAX_CHARACTERS, MAX_REPETITIONS};
use crate::json::{self, Reader, Value};
use traits::read_traits;

/// Evaluates a body and appends the answer to `out`. Returns the digest of the flags, from which their assignment key
/// follows. A body that is refused appends nothing.
pub(crate) fn answer_body<B: AsRef<[u8]>>(
    body: &[u8],
    snapshot: &Snapshot<B>,
    role: remora_snapshot::Role,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> Result<u64, InvalidBody> {
    let identifier = read::<true, B>(body, snapshot, scratch)?;
    out.extend_from_slice(br#"{"identifier":"#);
    match identifier.filter(|identifier| !identifier.is_empty()) {
        Some(identifier) => {
            snapshot.identify(&mut scratch.request, identifier.decode(&mut scratch.text));
            identifier.write(&mut scratch.text, out);
        }
        None => {
            let identifier = anonymous(&scratch.echo);
            snapshot.identify_transient(&mut scratch.request, &identifier);
            json::write_string(&identifier, out);
        }
    }
    out.extend_from_slice(br#","traits":"#);
    out.extend_from_slice(&scratch.echo);
    Ok(write_flags(snapshot, role, scratch, out))
}

/// The parameters of a query.
pub(crate) struct Asked<'a> {
    /// The identifier; empty for an anonymous identity.
    pub(crate) identifier: &'a str,
    /// True if the identity's override does not apply.
    pub(crate) is_transient: bool,
    /// Name of the only flag to answer with.
    pub(crate) feature: Option<&'a str>,
}

/// Evaluates an identity of the query, which has no traits. Appends the answer to `out`, and returns the digest of the
/// flags; `None` if the query asks for a flag that the role does not see.
pub(crate) fn answer_query<B: AsRef<[u8]>>(
    &Asked { identifier, is_transient, feature }: &Asked<'_>,
    snapshot: &Snapshot<B>,
    role: remora_snapshot::Role,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> Option<u64> {
    let generated;
    let identifier = if identifier.is_empty() {
        generated = anonymous(b"[]");
        &generated
    } else {
        identifier
    };
    scratch.request.clear();
    match is_transient {
        true => snapshot.identify_transient(&mut scratch.request, identifier),
        false => snapshot.identify(&mut scratch.request, identifier),
    }
    if let Some(feature) = feature {
        return snapshot.write_flag(&mut scratch.request, role, feature, out);
    }
    out.extend_from_slice(br#"{"identifier":"#);
    json::write_string(identifier, out);
    out.extend_from_slice(br#","traits":[]"#);
    Some(write_flags(snapshot, role, scratch, out))
}

fn write_flags<B: AsRef<[u8]>>(
    snapshot: &Snapshot<B>,
    role: remora_snapshot::Role,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> u64 {
    out.extend_from_slice(br#","flags":"#);
    let digest = snapshot.write_flags(&mut scratch.request, role, out);
    out.push(b'}');
    digest
}

/// Reads the body, its traits by the fast path where `FAST` is true and the body allows it. The traits go to the request state
/// and to the echo; returns the identifier.
fn read<'a, const FAST: bool, B: AsRef<[u8]>>(
    body: &'a [u8],
    snapshot: &Snapshot<B>,
    scratch: &mut Scratch,
) -> Result<Option<Name<'a>>, InvalidBody> {
    // Flagsmith's API reads an empty body as an empty object.
    let body = if body.is_empty() { b"{}" } else { body };
    let mut reader = Reader::new(body)?;
    let mut identifier = Ok(None);
    let mut traits = Ok(());
    let mut transient = Ok(());
    let mut lists = 0;
    scratch.request.clear();
    scratch.echo.clear();
    scratch.echo.extend_from_slice(b"[]");
    let Some(mut members) = reader.enter_object() else {
        reader.value()?;
        return Err(InvalidBody::Invalid(Location::Body, Problem::NotAnObject));
    };
    while let Some(name) = reader.next_member(&mut members)? {
        if name.is("traits") {
            lists = next_list(lists)?;
            traits = read_traits::<FAST, B>(&mut reader, snapshot, scratch)?;
            continue;
        }
        let value = reader.value()?;
        if name.is("identifier") {
            identifier = match (Name::of(value), value) {
                (None, Value::Bool(_) | Value::Array | Value::Object) => Err(Problem::NotAString),
                (name, _) => Ok(name),
            };
        } else if name.is("transient") {
            // The identity is stored in neither case, and its overrides apply in both.
            transient = check_boolean(value, &mut scratch.text);
        }
    }
    reader.finish()?;
    let invalid = |member| move |problem| InvalidBody::Invalid(Location::Member(member), problem);
    let identifier = identifier.map_err(invalid("identifier"))?;
    traits?;
    transient.map_err(invalid("transient"))?;
    if let Some(identifier) = &identifier {
        check_name(identifier, MAX_CHARACTERS, Problem::TooLong, &mut scratch.text).map_err(invalid("identifier"))?;
    }
    Ok(identifier)
}

/// Refuses a name that is longer than `limit`, as `too_long`, or that has the character U+0000.
fn check_name(name: &Name<'_>, limit: usize, too_long: Problem, scratch: &mut String) -> Result<(), Problem> {
    if name.is_longer_than(limit, scratch) {
        return Err(too_long);
    }
    if name.has_null(scratch) { Err(Problem::NullCharacter) } else { Ok(()) }
}

/// Counts another list of traits, up to [`MAX_REPETITIONS`].
fn next_list(lists: usize) -> Result<usize, InvalidBody> {
    if lists == MAX_REPETITIONS {
        return Err(InvalidBody::Invalid(Location::Member("traits"), Problem::Repeated));
    }
    Ok(lists + 1)
}
