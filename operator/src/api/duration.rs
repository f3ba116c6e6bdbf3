use std::{fmt, str::FromStr, time::Duration};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// A length of time, written as `30s`, `5m` or `1h30m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Period(Duration);

/// Error: a string is not a [`Period`].
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not a duration: write hours, minutes and seconds in this order, as in 30s, 5m or 1h30m")]
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
        parse(text).ok_or_else(|| InvalidPeriod(text.chars().take(32).collect()))
    }
}

/// Parses digits and a unit, each unit at most once, larger units first.
fn parse(text: &str) -> Option<Period> {
    if text.is_empty() {
        return None;
    }
    let mut rest = text;
    let mut seconds = 0_u64;
    for (unit, scale) in [('h', 3600), ('m', 60), ('s', 1)] {
        let Some((digits, after)) = rest.split_once(unit) else {
            continue;
        };
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        let count: u64 = digits.parse().ok()?;
        seconds = count.checked_mul(scale)?.checked_add(seconds)?;
        rest = after;
    }
    rest.is_empty().then_some(Period::seconds(seconds))
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        let parts = [(seconds / 3600, 'h'), (seconds / 60 % 60, 'm'), (seconds % 60, 's')];
        if seconds == 0 {
            return f.write_str("0s");
        }
        for (count, unit) in parts.into_iter().filter(|(count, _)| *count > 0) {
            write!(f, "{count}{unit}")?;
        }
        Ok(())
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
            "pattern": "^([0-9]+h)?([0-9]+m)?([0-9]+s)?$",
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
    fn period_with_ordered_units_is_parsed_and_printed_in_shortest_form() {
        for (text, seconds) in [("30s", 30), ("5m", 300), ("1h30m", 5400), ("1h1s", 3601), ("0s", 0)] {
            let period: Period = text.parse().unwrap();
            assert_eq!(period, Period::seconds(seconds), "{text}");
            assert_eq!(period.to_string(), text);
        }
        assert_eq!("90s".parse::<Period>().unwrap().to_string(), "1m30s");
    }

    #[test]
    fn period_without_unit_or_order_is_refused() {
        for text in ["", "30", "s", "1s1m", "1m1m", "-1s", "1.5s", "10ms", "1d", "99999999999999999999h"] {
            assert!(text.parse::<Period>().is_err(), "{text}");
        }
    }
}
