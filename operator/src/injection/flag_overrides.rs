//! The annotation with which a pod overrides flags, for people who test.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// Largest number of flags. The sidecar has the same limit.
const FLAGS_MAX: usize = 16;
/// Largest length of the annotation in bytes. It becomes an argument of the sidecar.
const BYTES_MAX: usize = 4096;
/// Largest length of a flag's name in characters. Flagsmith refuses longer names.
const NAME_MAX: usize = 2000;

/// Form of the annotation, for messages.
pub(crate) const GRAMMAR: &str = "JSON of at most 16 flags and 4096 bytes, such as {\"banner\": {\"enabled\": true, \"value\": \"Sale\"}}; a value is a string, \
                       an integer, true, false or null";

/// Flag overrides by the flag's name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct FlagOverrides(BTreeMap<String, FlagOverride>);

/// State and value of a flag. One of them may be absent, and then stays as it is in the environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FlagOverride {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    enabled: Option<bool>,
    /// A value of `null` differs from an absent one.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    value: Option<Value>,
}

fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

impl FlagOverrides {
    /// Parses the annotation. `None` if it is not valid.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let within = Some(text).filter(|text| text.len() <= BYTES_MAX)?;
        let overrides: Self = serde_json::from_str(within).ok()?;
        let is_valid = |(name, own): (&String, &FlagOverride)| {
            let has_value = match &own.value {
                None => own.enabled.is_some(),
                Some(Value::Number(number)) => number.is_i64(),
                Some(value) => !value.is_array() && !value.is_object(),
            };
            has_value && !name.is_empty() && name.chars().count() <= NAME_MAX
        };
        let count = overrides.0.len();
        ((1..=FLAGS_MAX).contains(&count) && overrides.0.iter().all(is_valid)).then_some(overrides)
    }

    /// Names the overridden flags.
    pub(crate) fn flags(&self) -> impl Iterator<Item = String> {
        self.0.keys().cloned()
    }

    /// Returns the JSON as the sidecar's argument. Kubelet expands `$(NAME)` in arguments, so no `$` is in it.
    pub(crate) fn argument(&self) -> String {
        serde_json::to_string(self).unwrap_or_default().replace('$', "\\u0024")
    }
}

#[cfg(test)]
mod tests {
    use remora_sidecar::Command;

    use super::*;

    #[test]
    fn valid_overrides_become_an_argument_that_the_sidecar_reads() {
        let text = r#" {"b": {"value": "$(HOME) \"\u0024\u00e4"}, "a c": {"enabled": true}, "d": {"value": null, "enabled": false},
            "e": {"value": -3}, "f": {"value": false}}"#;
        let argument = FlagOverrides::parse(text).unwrap().argument();
        assert_eq!(
            argument,
            r#"{"a c":{"enabled":true},"b":{"value":"\u0024(HOME) \"\u0024ä"},"d":{"enabled":false,"value":null},"e":{"value":-3},"f":{"value":false}}"#
        );
        let arguments = ["--snapshots", "s", "--overrides", &argument].map(str::to_owned);
        let Ok(Command::Serve(options)) = remora_sidecar::parse(arguments) else { panic!("{argument}") };
        let read: Vec<_> =
            options.overrides.iter().map(|own| (own.flag.as_str(), own.enabled, own.value.as_deref())).collect();
        assert_eq!(
            read,
            [
                ("a c", Some(true), None),
                ("b", None, Some(r#""$(HOME) \"$ä""#)),
                ("d", Some(false), Some("null")),
                ("e", None, Some("-3")),
                ("f", None, Some("false")),
            ]
        );
    }

    #[test]
    fn overrides_beyond_grammar_or_limits_are_refused() {
        for bad in [
            "",
            "{}",
            "[]",
            "banner",
            r#"{"a": true}"#,
            r#"{"a": {}}"#,
            r#"{"a": {"enabled": "true"}}"#,
            r#"{"a": {"value": 1.5}}"#,
            r#"{"a": {"value": 1e2}}"#,
            r#"{"a": {"value": []}}"#,
            r#"{"a": {"value": {}}}"#,
            r#"{"a": {"enabled": true, "more": 1}}"#,
            r#"{"": {"enabled": true}}"#,
            r#"{"a": {"value": 9223372036854775808}}"#,
        ] {
            assert_eq!(FlagOverrides::parse(bad), None, "{bad}");
        }
        let flags = |count: usize| {
            let flags: Vec<String> = (0..count).map(|number| format!("\"f{number}\":{{\"enabled\":true}}")).collect();
            FlagOverrides::parse(&format!("{{{}}}", flags.join(",")))
        };
        assert!(flags(FLAGS_MAX).is_some() && flags(FLAGS_MAX + 1).is_none());
        let bytes =
            |count: usize| FlagOverrides::parse(&format!(r#"{{"a":{{"value":"{}"}}}}"#, "x".repeat(count - 18)));
        assert!(bytes(BYTES_MAX).is_some() && bytes(BYTES_MAX + 1).is_none());
    }
}
