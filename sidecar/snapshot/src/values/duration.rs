//! Durations as text: the one grammar of custom resources, annotations and command lines.
//!
//! A duration is one or more numbers with a unit each: `h`, `m`, `s` and `ms`, in this order and each at most once.
//! Examples: `10s`, `500ms`, `1h30m`. There is no sign, no fraction and no white space.

use std::time::Duration;

/// The grammar as a regular expression, for the schema of a custom resource. (It also matches the empty text, which is
/// not a duration.)
pub const PATTERN: &str = "^([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?$";

/// The grammar in words, for messages.
pub const GRAMMAR: &str = "hours, minutes, seconds and milliseconds in this order, such as 30s, 500ms or 1h30m";

/// Units with their lengths in milliseconds, the longest first.
const UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Parses a duration. `None` for any other text, and for more than [`u64::MAX`] milliseconds.
#[must_use]
pub fn parse(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut units = UNITS.iter();
    let mut milliseconds = 0_u64;
    while !rest.is_empty() {
        let (digits, behind) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit())?);
        let (unit, behind) = behind.split_at(behind.find(|c: char| c.is_ascii_digit()).unwrap_or(behind.len()));
        // Each unit continues the search behind the one before, which refuses repetitions and another order.
        let (_, length) = units.find(|(name, _)| *name == unit)?;
        let number: u64 = digits.parse().ok()?;
        milliseconds = number.checked_mul(*length)?.checked_add(milliseconds)?;
        rest = behind;
    }
    (!text.is_empty()).then(|| Duration::from_millis(milliseconds))
}

/// Writes a duration in its shortest form, in whole milliseconds: `90s` becomes `1m30s`.
#[must_use]
pub fn to_text(duration: Duration) -> String {
    let mut rest = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    if rest == 0 {
        return "0s".to_owned();
    }
    let mut text = String::new();
    for (unit, length) in UNITS {
        let number = rest / length;
        rest %= length;
        if number > 0 {
            text.push_str(&number.to_string());
            text.push_str(unit);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Texts with their milliseconds and their shortest forms.
    const VALID: [(&str, u64, &str); 14] = [
        ("30s", 30_000, "30s"),
        ("5m", 300_000, "5m"),
        ("2h", 7_200_000, "2h"),
        ("500ms", 500, "500ms"),
        ("1h30m", 5_400_000, "1h30m"),
        ("1h1s", 3_601_000, "1h1s"),
        ("1m1ms", 60_001, "1m1ms"),
        ("1h2m3s4ms", 3_723_004, "1h2m3s4ms"),
        ("90s", 90_000, "1m30s"),
        ("1500ms", 1_500, "1s500ms"),
        ("0s", 0, "0s"),
        ("0h0ms", 0, "0s"),
        ("007s", 7_000, "7s"),
        ("18446744073709551615ms", u64::MAX, "5124095576030h25m51s615ms"),
    ];

    #[test]
    fn text_of_the_grammar_is_parsed_and_written_in_shortest_form() {
        for (text, milliseconds, shortest) in VALID {
            let duration = parse(text).unwrap();
            assert_eq!(duration, Duration::from_millis(milliseconds), "{text}");
            assert_eq!(to_text(duration), shortest, "{text}");
            assert_eq!(parse(shortest), Some(duration), "{shortest}");
        }
    }

    #[test]
    fn text_outside_of_the_grammar_is_refused() {
        for text in [
            "",
            "10",
            "s",
            "ms",
            "-1s",
            "+1s",
            "1.5s",
            "1d",
            "1us",
            "10S",
            "1s1m",
            "1m1m",
            "1ms1s",
            "1h30",
            "10 s",
            " 10s",
            "1s\n",
            "1s,1ms",
            "１s",
            "1é",
            "18446744073709551616ms",
            "18446744073709551615h",
            "5124095576030h99m",
        ] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }
}
