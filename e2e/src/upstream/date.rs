//! The one date form that Flagsmith's API understands in `If-Modified-Since`: IMF-fixdate, ending in `GMT`.

use jiff::Timestamp;
use jiff::fmt::strtime;
use jiff::tz::TimeZone;

const FORM: &str = "%a, %d %b %Y %H:%M:%S GMT";

/// Formats an instant, such as `Sat, 21 Nov 2026 00:18:32 GMT`: whole seconds, rounded down.
pub(super) fn write(instant: Timestamp) -> String {
    instant.strftime(FORM).to_string()
}

/// Parses whole seconds since the epoch. Returns `None` for any other form, such as `+0000` instead of `GMT`.
pub(super) fn read(text: &str) -> Option<i64> {
    let civil = strtime::parse(FORM, text).ok()?.to_datetime().ok()?;
    Some(civil.to_zoned(TimeZone::UTC).ok()?.timestamp().as_second())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_imf_fixdate_is_read() {
        assert_eq!(read("Sat, 21 Nov 2026 00:01:24 GMT"), Some(1_795_219_284));
        assert_eq!(read("Sat, 21 Nov 2026 00:01:24 +0000"), None);
        assert_eq!(read("2026-11-21T00:01:24Z"), None);
        assert_eq!(read(""), None);
    }

    #[test]
    fn fractions_are_cut() {
        let instant: Timestamp = "2026-11-21T00:01:24.999Z".parse().unwrap();
        assert_eq!(write(instant), "Sat, 21 Nov 2026 00:01:24 GMT");
        assert_eq!(read(&write(instant)), Some(instant.as_second()));
    }
}
