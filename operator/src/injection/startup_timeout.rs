//! Startup timeout: the time that the application waits for its flags.

use std::{fmt, time::Duration};

/// Longest startup timeout: one hour.
pub(super) const LONGEST: Duration = Duration::from_secs(3600);

/// A startup timeout in the notation of the annotation: digits and `ms`, `s` or `m`, at most an hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StartupTimeout(Duration);

impl StartupTimeout {
    /// Default without an annotation.
    pub(super) const DEFAULT: StartupTimeout = StartupTimeout(Duration::from_secs(10));

    /// Parses texts such as `10s`, `1500ms`, `2m` or `0s`. Returns `None` for any other text and beyond [`LONGEST`].
    pub(super) fn parse(text: &str) -> Option<StartupTimeout> {
        let end = text.find(|c: char| !c.is_ascii_digit())?;
        let (digits, unit) = text.split_at(end);
        // Refuses a text without digits, and bounds the number so that it cannot overflow.
        if !(1..=7).contains(&digits.len()) {
            return None;
        }
        let number: u64 = digits.parse().ok()?;
        let duration = match unit {
            "ms" => Duration::from_millis(number),
            "s" => Duration::from_secs(number),
            "m" => Duration::from_secs(number * 60),
            _ => return None,
        };
        (duration <= LONGEST).then_some(StartupTimeout(duration))
    }

    /// Returns the timeout in whole seconds, rounded up.
    pub(super) fn seconds(self) -> u64 {
        self.0.as_secs() + u64::from(self.0.subsec_nanos() > 0)
    }
}

impl fmt::Display for StartupTimeout {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.subsec_nanos() == 0 {
            write!(formatter, "{}s", self.0.as_secs())
        } else {
            write!(formatter, "{}ms", self.0.as_millis())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_timeout_is_parsed_and_rendered() {
        let written = |text: &str| StartupTimeout::parse(text).map(|duration| duration.to_string());
        assert_eq!(written("10s").as_deref(), Some("10s"));
        assert_eq!(written("2m").as_deref(), Some("120s"));
        assert_eq!(written("1500ms").as_deref(), Some("1500ms"));
        assert_eq!(written("2000ms").as_deref(), Some("2s"));
        assert_eq!(written("0s").as_deref(), Some("0s"));
        assert_eq!(StartupTimeout::parse("1500ms").map(StartupTimeout::seconds), Some(2));
    }

    #[test]
    fn invalid_timeout_is_refused() {
        for text in ["", "10", "s", "-1s", "1.5s", "10 s", "10S", "61m", "3601s", "99999999s", "1h", "1s\n", "１s"] {
            assert_eq!(StartupTimeout::parse(text), None, "{text:?}");
        }
    }
}
