//! Decides when a certificate must be replaced.

use std::time::Duration;

use jiff::Timestamp;

/// Validity period of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// First moment at which the certificate is valid (`notBefore`).
    pub from: Timestamp,
    /// End of the validity (`notAfter`).
    pub until: Timestamp,
}

/// Reason for replacing a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenewalReason {
    /// No certificate exists.
    Missing,
    /// The certificate cannot be read, or its key belongs to another certificate.
    Unusable,
    /// The validity starts in the future: the clock that created the certificate is ahead by more than the skew.
    NotYetValid,
    /// Two thirds of the validity have passed.
    Due,
    /// The validity has ended.
    Expired,
}

impl Validity {
    /// Creates a validity of length `life` from `now`, with a start that lies `skew` earlier for clocks that are
    /// behind.
    pub(super) fn new(now: Timestamp, life: Duration, skew: Duration) -> Validity {
        let add = |span: Duration| now.checked_add(span).unwrap_or(Timestamp::MAX);
        Validity { from: now.checked_sub(skew).unwrap_or(Timestamp::MIN), until: add(life) }
    }

    /// Returns the creation time, if [`Validity::new`] created the validity with the same skew.
    pub(super) fn created(&self, skew: Duration) -> Timestamp {
        self.from.checked_add(skew).unwrap_or(Timestamp::MAX)
    }
}

/// Returns the reason for replacing a certificate, or `None` if it can stay in use. `current` is `None` if no
/// certificate exists.
pub fn needs_renewal<E>(current: Option<&Result<Validity, E>>, now: Timestamp) -> Option<RenewalReason> {
    let validity = match current {
        None => return Some(RenewalReason::Missing),
        Some(Err(_)) => return Some(RenewalReason::Unusable),
        Some(Ok(validity)) => validity,
    };
    let life = validity.until.duration_since(validity.from);
    let age = now.duration_since(validity.from);
    if age.is_negative() {
        Some(RenewalReason::NotYetValid)
    } else if age >= life {
        Some(RenewalReason::Expired)
    } else if age >= life * 2 / 3 {
        Some(RenewalReason::Due)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn certificate_is_due_after_two_thirds_of_its_validity() {
        let current = Some(&Ok::<_, ()>(Validity { from: at(1000), until: at(1300) }));
        assert_eq!(needs_renewal(current, at(999)), Some(RenewalReason::NotYetValid));
        assert_eq!(needs_renewal(current, at(1000)), None);
        assert_eq!(needs_renewal(current, at(1199)), None);
        assert_eq!(needs_renewal(current, at(1200)), Some(RenewalReason::Due));
        assert_eq!(needs_renewal(current, at(1299)), Some(RenewalReason::Due));
        assert_eq!(needs_renewal(current, at(1300)), Some(RenewalReason::Expired));
    }

    #[test]
    fn missing_or_unusable_certificate_is_renewed() {
        assert_eq!(needs_renewal::<()>(None, at(0)), Some(RenewalReason::Missing));
        assert_eq!(needs_renewal(Some(&Err(())), at(0)), Some(RenewalReason::Unusable));
        // The certificate's end lies before its start.
        let backwards = Some(&Ok::<_, ()>(Validity { from: at(10), until: at(5) }));
        assert_eq!(needs_renewal(backwards, at(10)), Some(RenewalReason::Expired));
    }

    #[test]
    fn creation_time_is_recovered_from_validity() {
        let skew = Duration::from_secs(300);
        let validity = Validity::new(at(10_000), Duration::from_secs(3600), skew);
        assert_eq!(validity, Validity { from: at(9_700), until: at(13_600) });
        assert_eq!(validity.created(skew), at(10_000));
    }
}
