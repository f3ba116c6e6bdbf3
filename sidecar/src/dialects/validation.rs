//! Refusals of bodies by Flagsmith's endpoints, in the form of the edge proxy.

use crate::json::{Malformed, Value};

/// Reason why a body was refused. The status is 400, as in Flagsmith's API, and the body has the edge proxy's form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InvalidBody {
    /// The body is not JSON.
    Malformed(Malformed),
    /// A part of the body is invalid.
    Invalid(Location, Problem),
}

/// The invalid part of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Location {
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
pub(crate) enum Problem {
    NotAnObject,
    NotAList,
    NotAString,
    NotABoolean,
    Missing,
    TooLong,
    NameTooLong,
    NullCharacter,
    Repeated,
}

/// Refuses a value that Flagsmith's API does not read as a boolean. It reads `true`, `false`, numbers equal to 0 or 1, and
/// the words of [`BOOLEANS`] without regard to case.
pub(super) fn check_boolean(value: Value<'_>, scratch: &mut String) -> Result<(), Problem> {
    let is_boolean = match value {
        Value::Bool(_) => true,
        Value::Integer(digits) => ["0", "-0", "1"].contains(&digits),
        Value::Float(float) => [0.0, 1.0].contains(&float.value()),
        Value::String(text) => {
            let text = text.decode(scratch);
            BOOLEANS.iter().any(|word| text.eq_ignore_ascii_case(word))
        }
        Value::Null | Value::Array | Value::Object => false,
    };
    is_boolean.then_some(()).ok_or(Problem::NotABoolean)
}

/// Strings that stand for true and for false.
const BOOLEANS: [&str; 12] = ["t", "y", "yes", "true", "on", "1", "f", "n", "no", "false", "off", "0"];

impl Problem {
    fn kind_and_message(self) -> (&'static str, &'static str) {
        match self {
            Problem::NotAnObject => ("model_attributes_type", "Input should be an object"),
            Problem::NotAList => ("list_type", "Input should be a valid list"),
            Problem::NotAString => ("string_type", "Input should be a valid string"),
            Problem::NotABoolean => ("bool_parsing", "Input should be a valid boolean, unable to interpret input"),
            Problem::Missing => ("missing", "Field required"),
            Problem::TooLong => ("string_too_long", "String should have at most 2000 characters"),
            Problem::NameTooLong => ("string_too_long", "String should have at most 200 characters"),
            Problem::NullCharacter => ("null_character", "String should have no character U+0000"),
            Problem::Repeated => ("repeated", "Member should not be repeated more than 16 times"),
        }
    }
}

impl From<Malformed> for InvalidBody {
    fn from(malformed: Malformed) -> InvalidBody {
        InvalidBody::Malformed(malformed)
    }
}

impl InvalidBody {
    /// Appends the answer's body.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        use std::io::Write as _;
        // Writing to a vector cannot fail, and none of these texts needs an escape.
        let _ = match self {
            InvalidBody::Malformed(Malformed { at, problem }) => write!(
                out,
                r#"{{"detail":[{{"type":"json_invalid","loc":["body",{at}],"msg":"JSON decode error","input":{{}},"ctx":{{"error":"{problem}"}}}}]}}"#
            ),
            InvalidBody::Invalid(location, problem) => {
                let (kind, message) = problem.kind_and_message();
                let _ = write!(out, r#"{{"detail":[{{"type":"{kind}","loc":["body""#);
                let _ = match location {
                    Location::Body => Ok(()),
                    Location::Member(member) => write!(out, r#","{member}""#),
                    Location::Trait(index) => write!(out, r#","traits",{index}"#),
                    Location::TraitMember(index, member) => write!(out, r#","traits",{index},"{member}""#),
                };
                write!(out, r#"],"msg":"{message}","input":null}}]}}"#)
            }
        };
    }
}
