//! Decides when a fetch may be conditional, and on which time. Pure.

use std::time::{Duration, SystemTime};

use jiff::Timestamp;

/// Minimum time between a change and a fetch for the next fetch to be conditional. Flagsmith's answers give two changes
/// within one second the same time, so a document fetched in the second of its change may be the first of two.
const SETTLED: Duration = Duration::from_secs(2);

/// Time of the cached document's last change, and time at which its fetch began. Both are by the server's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Validator {
    updated_at: Timestamp,
    fetch_began: Timestamp,
}

impl Validator {
    /// Creates a validator from the document's own `updated_at`, because the answer's header may be newer than its
    /// body. `None` if the document has no valid time.
    pub(super) fn new(updated_at: Option<&str>, fetch_began: Timestamp) -> Option<Self> {
        Some(Self { updated_at: updated_at?.parse().ok()?, fetch_began })
    }

    /// Returns the validator after a later fetch returned the same content.
    pub(super) fn confirmed(&self, fetch_began: Timestamp) -> Self {
        Self { updated_at: self.updated_at, fetch_began: self.fetch_began.max(fetch_began) }
    }

    /// Returns the value of `If-Modified-Since`. `None` while a change could hide behind it.
    pub(super) fn if_modified_since(&self) -> Option<String> {
        let settled = self.updated_at.checked_add(SETTLED).is_ok_and(|settled| self.fetch_began >= settled);
        let seconds = u64::try_from(self.updated_at.as_second()).ok()?;
        let time = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))?;
        settled.then(|| httpdate::fmt_http_date(time))
    }
}

/// Returns the time at which a fetch began by the server's clock: its `Date`, minus the time since then, minus the
/// second that `Date` rounds away. Without a valid `Date`, our own clock counts.
pub(super) fn began(date: Option<&str>, took: Duration, now: Timestamp) -> Timestamp {
    let by_server = || {
        let date: Timestamp = httpdate::parse_http_date(date?).ok()?.try_into().ok()?;
        date.checked_sub(took.saturating_add(Duration::from_secs(1))).ok()
    };
    by_server().or_else(|| now.checked_sub(took).ok()).unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn validator_of_settled_document_is_its_own_second() {
        let validator = Validator::new(Some("2026-11-21T00:01:24.999999+00:00"), at("2026-11-21T00:01:27Z")).unwrap();
        assert_eq!(validator.if_modified_since().as_deref(), Some("Sat, 21 Nov 2026 00:01:24 GMT"));
    }

    #[test]
    fn validator_of_document_of_this_second_is_one_second_earlier() {
        let validator = Validator::new(Some("2026-11-21T00:01:24.5+00:00"), at("2026-11-21T00:01:26Z")).unwrap();
        assert_eq!(validator.if_modified_since(), None);
    }

    #[test]
    fn document_of_this_second_settles_when_later_fetch_returns_it_again() {
        let validator = Validator::new(Some("2026-11-21T00:01:24.5+00:00"), at("2026-11-21T00:01:25Z")).unwrap();
        assert_eq!(validator.if_modified_since(), None);
        let confirmed = validator.confirmed(at("2026-11-21T00:01:55Z"));
        assert_eq!(confirmed.if_modified_since().as_deref(), Some("Sat, 21 Nov 2026 00:01:24 GMT"));
        assert_eq!(confirmed.confirmed(at("2026-11-21T00:01:25Z")), confirmed, "the server's clock was set back");
    }

    #[test]
    fn document_without_time_has_no_validator() {
        assert_eq!(Validator::new(None, at("2026-11-21T00:01:24Z")), None);
        assert_eq!(Validator::new(Some("yesterday"), at("2026-11-21T00:01:24Z")), None);
    }

    #[test]
    fn validator_uses_clock_of_server_if_known() {
        let now = at("2026-11-21T10:00:00Z");
        let took = Duration::from_secs(3);
        assert_eq!(began(Some("Sat, 21 Nov 2026 00:01:24 GMT"), took, now), at("2026-11-21T00:01:20Z"));
        assert_eq!(began(Some("today"), took, now), at("2026-11-21T09:59:57Z"));
        assert_eq!(began(None, took, now), at("2026-11-21T09:59:57Z"));
    }
}
