//! Reads overrides, for people who test: flags whose state or value the command line sets for all requests, or a signed
//! header for its own.

pub(crate) mod signed;

use remora_snapshot::{FlagOverride, OverriddenBy};

use crate::json::{self, Malformed, Reader, Value};

/// Largest number of overridden flags.
pub(crate) const MAX_FLAGS: usize = 16;

/// Grammar of the overrides, for messages.
pub(crate) const GRAMMAR: &str = "JSON of at most 16 flags, such as {\"banner\": {\"enabled\": true, \"value\": \"Sale\"}}; a value is a string, an integer, true, false or null";

/// Reads an object such as `{"banner": {"enabled": true, "value": "Sale"}}`. Returns `None` if it is another JSON, or
/// has more than [`MAX_FLAGS`] flags.
pub(crate) fn read(text: &str, by: OverriddenBy) -> Option<Vec<FlagOverride>> {
    read_object(text, by).ok().flatten()
}

fn read_object(text: &str, by: OverriddenBy) -> Result<Option<Vec<FlagOverride>>, Malformed> {
    let mut reader = Reader::new(text.as_bytes())?;
    let mut overrides: Vec<FlagOverride> = Vec::new();
    let Some(mut members) = reader.enter_object() else { return Ok(None) };
    while let Some(name) = reader.next_member(&mut members)? {
        let mut flag = String::new();
        name.decode_into(&mut flag);
        let Some((enabled, value)) = read_flag(&mut reader)? else { return Ok(None) };
        if overrides.len() == MAX_FLAGS || overrides.iter().any(|known| known.flag == flag) {
            return Ok(None);
        }
        overrides.push(FlagOverride { flag, enabled, value, by });
    }
    reader.finish()?;
    Ok(Some(overrides))
}

/// State and value of a flag, the value as JSON.
type Content = (Option<bool>, Option<String>);

fn read_flag(reader: &mut Reader<'_>) -> Result<Option<Content>, Malformed> {
    let (mut enabled, mut value) = (None, None);
    let Some(mut members) = reader.enter_object() else { return Ok(None) };
    while let Some(name) = reader.next_member(&mut members)? {
        match reader.value()? {
            Value::Bool(is) if name.is("enabled") => enabled = Some(is),
            Value::Null if name.is("value") => value = Some("null".to_owned()),
            Value::Bool(is) if name.is("value") => value = Some(is.to_string()),
            Value::Integer(digits) if name.is("value") => value = Some(digits.to_owned()),
            Value::String(text) if name.is("value") => {
                let (mut decoded, mut written) = (String::new(), Vec::new());
                text.decode_into(&mut decoded);
                json::write_string(&decoded, &mut written);
                value = String::from_utf8(written).ok();
            }
            _ => return Ok(None),
        }
    }
    Ok((enabled.is_some() || value.is_some()).then_some((enabled, value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<Vec<FlagOverride>> {
        super::read(text, OverriddenBy::Pod)
    }

    #[test]
    fn overrides_are_read_with_state_and_value() {
        let flag = |flag: &str, enabled, value: Option<&str>| FlagOverride {
            flag: flag.to_owned(),
            enabled,
            value: value.map(str::to_owned),
            by: OverriddenBy::Pod,
        };
        let text = r#"{"a": {"enabled": true}, "b\u00e4": {"value": "x\"\u0024"}, "c": {"value": -7, "enabled": false},
            "d": {"value": null}, "e": {"value": false}}"#;
        let expected = [
            flag("a", Some(true), None),
            flag("b\u{e4}", None, Some(r#""x\"$""#)),
            flag("c", Some(false), Some("-7")),
            flag("d", None, Some("null")),
            flag("e", None, Some("false")),
        ];
        assert_eq!(read(text).unwrap(), expected);
        assert_eq!(read("{}"), Some(Vec::new()));
    }

    #[test]
    fn other_json_and_more_flags_are_refused() {
        for bad in [
            "",
            "[]",
            "{",
            "{} {}",
            r#"{"a": true}"#,
            r#"{"a": {}}"#,
            r#"{"a": {"enabled": 1}}"#,
            r#"{"a": {"value": 1.5}}"#,
            r#"{"a": {"value": {}}}"#,
            r#"{"a": {"value": "x", "more": 1}}"#,
            r#"{"a": {"value": 1}, "a": {"value": 2}}"#,
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
        let of = |count: usize| {
            let flags: Vec<String> = (0..count).map(|number| format!(r#""f{number}": {{"enabled": true}}"#)).collect();
            read(&format!("{{{}}}", flags.join(",")))
        };
        assert_eq!(of(MAX_FLAGS).unwrap().len(), MAX_FLAGS);
        assert_eq!(of(MAX_FLAGS + 1), None);
    }
}
