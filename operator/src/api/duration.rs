//! Lengths of time in fields of the spec.

use std::{fmt, str::FromStr, time::Duration};

use remora_snapshot::duration;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// A length of time in the grammar of [`remora_snapshot::duration`], such as `30s`, `500ms` or `1h30m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Period(Duration);

/// Error: a string is not a [`Period`].
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not a duration: write {grammar}", grammar = duration::GRAMMAR)]
pub struct InvalidPeriod(String);

impl Period {
    /// A period of whole seconds.
    pub const fn seconds(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    /// The period as a `std::time::Duration`.
    pub const fn get(self) -> Duration {
        self.0
    }
}

impl FromStr for Period {
    type Err = InvalidPeriod;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let period = duration::parse(text).map(Period);
        period.ok_or_else(|| InvalidPeriod(text.chars().take(32).collect()))
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&duration::to_text(self.0))
    }
}

impl TryFrom<String> for Period {
    type Error = InvalidPeriod;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Period> for String {
    fn from(period: Period) -> Self {
        period.to_string()
    }
}

impl JsonSchema for Period {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Period".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "maxLength": 16,
            "pattern": duration::PATTERN,
        })
    }

    fn inline_schema() -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn period_is_serialized_in_shortest_form() {
        let period: Period = serde_json::from_str("\"90s\"").unwrap();
        assert_eq!(period, Period::seconds(90));
        assert_eq!(serde_json::to_string(&period).unwrap(), "\"1m30s\"");
    }

    #[test]
    fn period_outside_of_the_grammar_is_refused_with_an_example() {
        let refused = serde_json::from_str::<Period>("\"1m1h\"").unwrap_err().to_string();
        assert!(refused.starts_with("\"1m1h\" is not a duration: write hours"), "{refused}");
        assert!(refused.contains("such as 30s"), "{refused}");
        let long = "9".repeat(1000).parse::<Period>().unwrap_err().to_string();
        assert!(long.len() < 200, "{long}");
    }
}
