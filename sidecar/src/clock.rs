//! Points in time as text.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A point in time that displays in ISO 8601, in UTC, with microseconds and without a time zone: the form of the edge
/// proxy's health answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Utc(pub(crate) SystemTime);

/// Returns the duration from the Unix epoch to `time`, or zero for earlier times.
pub(crate) fn since_epoch(time: SystemTime) -> Duration {
    time.duration_since(UNIX_EPOCH).unwrap_or_default()
}

impl fmt::Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let elapsed = since_epoch(self.0);
        let (days, second) = (elapsed.as_secs() / 86_400, elapsed.as_secs() % 86_400);
        // Counted from 1 March of the year 0, a leap day is the last day of its year, and 400 years always have 146,097
        // days.
        let days = days + 719_468;
        let (era, day) = (days / 146_097, days % 146_097);
        let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day + 2) / 153;
        let day = day - (153 * month + 2) / 5 + 1;
        let month = if month < 10 { month + 3 } else { month - 9 };
        let year = era * 400 + year + u64::from(month <= 2);
        let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
        let micros = elapsed.subsec_micros();
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_written_as_iso_8601_in_utc() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.250000"),
            (951_782_399, "2000-02-28T23:59:59.250000"),
            (951_782_400, "2000-02-29T00:00:00.250000"),
            (951_868_800, "2000-03-01T00:00:00.250000"),
            (1_795_220_061, "2026-11-21T00:14:21.250000"),
            (4_107_542_399, "2100-02-28T23:59:59.250000"),
            (4_107_542_400, "2100-03-01T00:00:00.250000"),
        ] {
            let time = UNIX_EPOCH + Duration::from_secs(seconds) + Duration::from_millis(250);
            assert_eq!(Utc(time).to_string(), text);
        }
    }
}
