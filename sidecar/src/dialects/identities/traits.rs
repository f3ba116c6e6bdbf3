//! Reads the list of traits into the request state, and writes its echo.

use remora_snapshot::{Snapshot, TraitValue};

use super::check_name;
use crate::dialects::name::{Name, is_bare};
use crate::dialects::python;
use crate::dialects::scratch::Scratch;
use crate::dialects::validation::{InvalidBody, Location, Problem, check_boolean};
use crate::dialects::values::{MAX_CHARACTERS, MAX_NAME_CHARACTERS, trait_value};
use crate::json::{self, Malformed, Reader, Value, fast, number};

/// The text that a serializer puts around a trait's name and value.
struct Form {
    open: &'static str,
    between: &'static str,
    comma: &'static str,
}

impl Form {
    /// Form of Python's serializer (`spaced`), or of most other serializers and of the echo.
    const fn of(spaced: bool) -> Form {
        match spaced {
            true => Form { open: r#"{"trait_key": ""#, between: r#"", "trait_value": "#, comma: ", " },
            false => Form { open: r#"{"trait_key":""#, between: r#"","trait_value":"#, comma: "," },
        }
    }
}

/// Reads the list of traits, which must be the next value. It replaces any traits that were read before. The inner
/// result is the refusal of a list that another one may yet replace: the reader is behind the list in either case.
pub(super) fn read_traits<const FAST: bool, B: AsRef<[u8]>>(
    reader: &mut Reader<'_>,
    snapshot: &Snapshot<B>,
    scratch: &mut Scratch,
) -> Result<Result<(), InvalidBody>, Malformed> {
    let mut list = reader.clone();
    match read_list::<FAST, B>(reader, snapshot, scratch) {
        Err(InvalidBody::Malformed(malformed)) => Err(malformed),
        Err(invalid) => {
            list.value()?;
            *reader = list;
            Ok(Err(invalid))
        }
        Ok(()) => Ok(Ok(())),
    }
}

fn read_list<const FAST: bool, B: AsRef<[u8]>>(
    reader: &mut Reader<'_>,
    snapshot: &Snapshot<B>,
    scratch: &mut Scratch,
) -> Result<(), InvalidBody> {
    scratch.request.forget();
    scratch.echo.clear();
    let Some(mut items) = reader.enter_array() else {
        reader.value()?;
        return Err(InvalidBody::Invalid(Location::Member("traits"), Problem::NotAList));
    };
    let mut index = 0;
    scratch.echo.push(b'[');
    while reader.next_item(&mut items)? {
        let mut passed = 0;
        if FAST {
            passed = fast_traits::<true, B>(reader, snapshot, scratch);
            if passed == 0 {
                passed = fast_traits::<false, B>(reader, snapshot, scratch);
            }
        }
        if passed == 0 {
            take_trait(reader, index, snapshot, scratch)?;
            passed = 1;
        }
        index += passed;
    }
    match scratch.echo.last_mut() {
        Some(comma) if *comma == b',' => *comma = b']',
        _ => scratch.echo.push(b']'),
    }
    Ok(())
}

/// Reads traits by the fast path, as long as they have this form, their names and values are their own echo, and there
/// is space for it. Returns their number.
#[inline(never)]
fn fast_traits<const SPACED: bool, B: AsRef<[u8]>>(
    reader: &mut Reader<'_>,
    snapshot: &Snapshot<B>,
    scratch: &mut Scratch,
) -> usize {
    let (form, compact) = const { (Form::of(SPACED), Form::of(false)) };
    let Scratch { request, echo, text: decoded, .. } = scratch;
    let mut passed = 0;
    reader.peek(); // skips the space that may follow a comma
    let start = reader.remaining();
    let mut text = start;
    let mut behind = start;
    let mut written = echo.len();
    while let Some(FastTrait { from_key, key, from_value, value, rest }) = fast_trait(&form, text) {
        if SPACED {
            if passed == 0 {
                echo.resize(written + start.len().min(ROOM), 0);
            }
            let again = Overwriting { bytes: echo, end: written }
                .put(compact.open, compact.open.len())
                .and_then(|again| again.put(from_key, key.len()))
                .and_then(|again| again.put(compact.between, compact.between.len()))
                .and_then(|again| again.put(from_value, from_value.len() - rest.len()))
                .and_then(|again| again.put(",", 1));
            let Some(again) = again else { break };
            written = again.end;
        }
        // Flagsmith's API leaves traits without a value out: an earlier value of the trait counts.
        if value != Value::Null {
            snapshot.set_trait_with(request, key, || trait_value(value, decoded));
        }
        passed += 1;
        behind = rest;
        let Some(next) = rest.strip_prefix(form.comma) else { break };
        text = next;
    }
    echo.truncate(written);
    if !SPACED && passed > 0 {
        // In the compact form, the text of the traits is their echo.
        echo.extend_from_slice(start.as_bytes().get(..start.len() - behind.len()).unwrap_or_default());
        echo.push(b',');
    }
    reader.advance_to(behind);
    passed
}

/// Largest number of bytes of the echo that one call writes. They are zeroed first, which would be wasted on a whole
/// list if the form changes after one trait.
const ROOM: usize = 2 * 1024;

/// A buffer of fixed length that is written from its start, so that no write checks the capacity, and the end of the
/// part that is written.
struct Overwriting<'a> {
    bytes: &'a mut [u8],
    end: usize,
}

impl Overwriting<'_> {
    /// Appends the first `length` bytes of `text`, if there is space. Most texts are short and followed by others: then
    /// one fixed-size move copies 32 bytes, and the next call overwrites the surplus.
    #[inline(always)]
    fn put(mut self, text: &str, length: usize) -> Option<Self> {
        const SHORT: usize = 32;
        let target = self.bytes.get_mut(self.end..)?;
        match (target.first_chunk_mut::<SHORT>(), text.as_bytes().first_chunk::<SHORT>()) {
            (Some(target), Some(chunk)) if length <= SHORT => *target = *chunk,
            _ => target.get_mut(..length)?.copy_from_slice(text.as_bytes().get(..length)?),
        }
        self.end += length;
        Some(self)
    }
}

/// A trait that the fast path has read.
struct FastTrait<'a> {
    /// The text from the trait's name on.
    from_key: &'a str,
    key: &'a str,
    /// The text from the trait's value on.
    from_value: &'a str,
    value: Value<'a>,
    rest: &'a str,
}

#[inline(always)]
fn fast_trait<'a>(form: &Form, text: &'a str) -> Option<FastTrait<'a>> {
    let from_key = text.strip_prefix(form.open)?;
    let (key, on) = fast::characters(from_key)?;
    if !is_bare(key) {
        return None;
    }
    let from_value = on.strip_prefix(form.between)?;
    let (value, on) = fast::scalar(from_value)?;
    let rest = on.strip_prefix("}")?;
    // These are lengths in bytes. The slow path counts characters, and refuses what is too long.
    (key.len() <= MAX_NAME_CHARACTERS && from_value.len() - rest.len() <= MAX_CHARACTERS).then_some(FastTrait {
        from_key,
        key,
        from_value,
        value,
        rest,
    })
}

/// Reads a trait of any form.
fn take_trait<B: AsRef<[u8]>>(
    reader: &mut Reader<'_>,
    index: usize,
    snapshot: &Snapshot<B>,
    scratch: &mut Scratch,
) -> Result<(), InvalidBody> {
    let (key, value) = read_trait(reader, index, scratch)?;
    scratch.echo.extend_from_slice(br#"{"trait_key":"#);
    key.write(&mut scratch.name, &mut scratch.echo);
    scratch.echo.extend_from_slice(br#","trait_value":"#);
    match &value {
        Content::Scalar(value) => write_value(*value, &mut scratch.text, &mut scratch.echo),
        Content::Printed(text) => json::write_string(text, &mut scratch.echo),
    }
    scratch.echo.extend_from_slice(b"},");
    let key = key.decode(&mut scratch.name);
    match &value {
        Content::Scalar(Value::Null) => {}
        Content::Scalar(value) => {
            snapshot.set_trait_with(&mut scratch.request, key, || trait_value(*value, &mut scratch.text));
        }
        Content::Printed(text) => snapshot.set_trait(&mut scratch.request, key, TraitValue::String(text)),
    }
    Ok(())
}

/// Value of a trait.
enum Content<'a> {
    Scalar(Value<'a>),
    /// A list or an object, as Python prints it.
    Printed(String),
}

fn read_trait<'a>(
    reader: &mut Reader<'a>,
    index: usize,
    scratch: &mut Scratch,
) -> Result<(Name<'a>, Content<'a>), InvalidBody> {
    let mut key = Err(Problem::Missing);
    let mut value = Ok(Content::Scalar(Value::Null));
    let mut transient = Ok(());
    let Some(mut members) = reader.enter_object() else {
        reader.value()?;
        return Err(InvalidBody::Invalid(Location::Trait(index), Problem::NotAnObject));
    };
    while let Some(name) = reader.next_member(&mut members)? {
        if name.is("trait_key") {
            key = Name::of(reader.value()?).ok_or(Problem::NotAString).and_then(|name| {
                check_name(&name, MAX_NAME_CHARACTERS, Problem::NameTooLong, &mut scratch.name).map(|()| name)
            });
        } else if name.is("trait_value") {
            value = read_content(reader, scratch)?;
        } else if name.is("transient") {
            transient = check_boolean(reader.value()?, &mut scratch.text);
        } else {
            reader.value()?;
        }
    }
    let invalid = |member| move |problem| InvalidBody::Invalid(Location::TraitMember(index, member), problem);
    transient.map_err(invalid("transient"))?;
    Ok((key.map_err(invalid("trait_key"))?, value.map_err(invalid("trait_value"))?))
}

/// Reads the value of a trait. The inner result is the refusal of a value that another one may yet replace.
fn read_content<'a>(reader: &mut Reader<'a>, scratch: &mut Scratch) -> Result<Result<Content<'a>, Problem>, Malformed> {
    let mut start = reader.clone();
    let value = reader.value()?;
    let content = match value {
        Value::Array | Value::Object => python::text_of(&mut start)?.map(Content::Printed),
        Value::String(text) if text.is_longer_than(MAX_CHARACTERS, &mut scratch.text) => None,
        _ => Some(Content::Scalar(value)),
    };
    Ok(content.ok_or(Problem::TooLong))
}

fn write_value(value: Value<'_>, scratch: &mut String, out: &mut Vec<u8>) {
    match value {
        Value::Bool(true) => out.extend_from_slice(b"true"),
        Value::Bool(false) => out.extend_from_slice(b"false"),
        Value::Integer(digits) => out.extend_from_slice(digits.as_bytes()),
        Value::Float(float) => number::write_again(float, out),
        Value::String(text) => json::write_text(text, scratch, out),
        Value::Null | Value::Array | Value::Object => out.extend_from_slice(b"null"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialects::identities::tests::snapshot;

    fn passed<const SPACED: bool>(text: &str) -> (usize, usize, String) {
        let mut reader = Reader::new(text.as_bytes()).unwrap();
        let mut scratch = Scratch::default();
        let passed = fast_traits::<SPACED, _>(&mut reader, &snapshot(), &mut scratch);
        (passed, text.len() - reader.remaining().len(), String::from_utf8(scratch.echo).unwrap())
    }

    #[test]
    fn long_list_is_read_in_several_fast_passes() {
        let item =
            |number: usize| format!(r#"{{"trait_key": "k{number}", "trait_value": "{}"}}"#, "x".repeat(number % 90));
        let text = format!("[{}]", (0..300).map(item).collect::<Vec<_>>().join(", "));
        let mut reader = Reader::new(text.as_bytes()).unwrap();
        let mut scratch = Scratch::default();
        let mut items = reader.enter_array().unwrap();
        let (mut goes, mut all) = (0, 0);
        while reader.next_item(&mut items).unwrap() {
            let passed = fast_traits::<true, _>(&mut reader, &snapshot(), &mut scratch);
            assert!(passed > 0, "behind {all}");
            (goes, all) = (goes + 1, all + passed);
        }
        assert!(all == 300 && goes > 1, "{all} in {goes}");
        let echo = text.replace(": ", ":").replace(", ", ",");
        assert_eq!(format!("[{}", String::from_utf8(scratch.echo).unwrap()), echo.replace(']', ","));
    }

    #[test]
    fn fast_path_reads_traits_in_serializer_form_only() {
        let compact = r#"{"trait_key":"plan","trait_value":"a"},{"trait_key":"länge","trait_value":-1.5}"#;
        let spaced = r#"{"trait_key": "plan", "trait_value": "a"}, {"trait_key": "länge", "trait_value": -1.5}"#;
        for end in ["]", ",", ", null]", " ,{}", ""] {
            let echo = format!("{compact},");
            assert_eq!(passed::<false>(&format!("{compact}{end}")), (2, compact.len(), echo.clone()), "{end}");
            assert_eq!(passed::<true>(&format!("{spaced}{end}")), (2, spaced.len(), echo), "{end}");
        }
        assert_eq!(passed::<false>(spaced).0, 0);
        assert_eq!(passed::<true>(compact).0, 0);
        let long = "x".repeat(MAX_CHARACTERS + 1);
        for text in [
            r#"{"trait_value":1,"trait_key":"k"}"#,
            r#"{"trait_key":"k"}"#,
            r#"{"trait_key":"k","trait_value":1,"trait_key":"l"}"#,
            r#"{"trait_key":"k","trait_value":1 }"#,
            r#"{ "trait_key":"k","trait_value":1}"#,
            r#"{"trait_key":"k","trait_value":[1]}"#,
            r#"{"trait_key":"k\n","trait_value":1}"#,
            r#"{"trait_key":"k","trait_value":"\n"}"#,
            r#"{"trait_key":1,"trait_value":1}"#,
            r#"{"trait_key":"k","trait_value":01}"#,
            r#"{"trait_key":"k","trait_value":-0}"#,
            r#"{"trait_key":"k","trait_value":1.50}"#,
            r#"{"trait_key":"k","trait_value":1e5}"#,
            r#"{"trait_key":"k","trait_value":1"#,
            r#"{"trait_key":"#,
            "]",
            "",
            &format!(r#"{{"trait_key":"k","trait_value":"{long}"}}"#),
        ] {
            assert_eq!(passed::<false>(text), (0, 0, String::new()), "{text}");
        }
    }
}
