//! Startup timeout: the time that the application waits for its flags.

use std::{fmt, time::Duration};

use remora_snapshot::duration;

/// Longest startup timeout: one hour.
pub(super) const LONGEST: Duration = Duration::from_secs(3600);

/// Largest number of digits before a unit. The expressions of the admission policies compute with 64-bit integers.
pub(super) const DIGITS: usize = 7;

/// A startup timeout in the grammar of [`remora_snapshot::duration`], at most an hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StartupTimeout(Duration);

impl StartupTimeout {
    /// Default without an annotation.
    pub(super) const DEFAULT: StartupTimeout = StartupTimeout(Duration::from_secs(10));

    /// Parses texts such as `10s`, `1500ms`, `1m30s` or `0s`. Returns `None` for any other text, beyond [`LONGEST`], and
    /// for numbers of more than [`DIGITS`] digits.
    pub(super) fn parse(text: &str) -> Option<StartupTimeout> {
        if text.split(|c: char| !c.is_ascii_digit()).any(|digits| digits.len() > DIGITS) {
            return None;
        }
        duration::parse(text).filter(|duration| *duration <= LONGEST).map(StartupTimeout)
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
    fn valid_timeout_is_rendered_in_seconds_or_milliseconds() {
        let written = |text: &str| StartupTimeout::parse(text).map(|duration| duration.to_string());
        assert_eq!(written("10s").as_deref(), Some("10s"));
        assert_eq!(written("2m").as_deref(), Some("120s"));
        assert_eq!(written("1500ms").as_deref(), Some("1500ms"));
        assert_eq!(written("2000ms").as_deref(), Some("2s"));
        assert_eq!(written("1m30s").as_deref(), Some("90s"));
        assert_eq!(written("1h").as_deref(), Some("3600s"));
        assert_eq!(written("0s").as_deref(), Some("0s"));
        assert_eq!(written("0000010s").as_deref(), Some("10s"));
        assert_eq!(StartupTimeout::parse("1500ms").map(StartupTimeout::seconds), Some(2));
    }

    #[test]
    fn timeout_beyond_an_hour_or_outside_of_the_grammar_is_refused() {
        for text in ["", "10", "1.5s", "61m", "3601s", "1h1ms", "3600001ms", "2h", "99999999s", "00000010s", "1s1m"] {
            assert_eq!(StartupTimeout::parse(text), None, "{text:?}");
        }
    }
}
