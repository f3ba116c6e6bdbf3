//! When a certificate has to be replaced.

use std::time::Duration;

use jiff::Timestamp;

/// From when until when a certificate is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// Not before.
    pub from: Timestamp,
    /// Not after.
    pub until: Timestamp,
}

/// Why a certificate has to be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// There is none.
    Missing,
    /// It cannot be read, or its key belongs to another.
    Unusable,
    /// It comes from a clock far ahead of ours.
    NotYetValid,
    /// Two thirds of its life are over.
    Due,
    /// All of it is.
    Expired,
}

impl Validity {
    /// A life that starts now, give or take the difference of clocks.
    pub(super) fn new(now: Timestamp, life: Duration, skew: Duration) -> Validity {
        let add = |span: Duration| now.checked_add(span).unwrap_or(Timestamp::MAX);
        Validity { from: now.checked_sub(skew).unwrap_or(Timestamp::MIN), until: add(life) }
    }

    /// When it was made, if it was made by [`Validity::new`] with the same skew.
    pub(super) fn made(&self, skew: Duration) -> Timestamp {
        self.from.checked_add(skew).unwrap_or(Timestamp::MAX)
    }
}

/// Whether what is there has to be replaced, and why. `None` as `current` is a certificate that does not exist.
pub fn needs_renewal<E>(current: Option<&Result<Validity, E>>, now: Timestamp) -> Option<Reason> {
    let validity = match current {
        None => return Some(Reason::Missing),
        Some(Err(_)) => return Some(Reason::Unusable),
        Some(Ok(validity)) => validity,
    };
    let life = validity.until.duration_since(validity.from);
    let age = now.duration_since(validity.from);
    if age.is_negative() {
        Some(Reason::NotYetValid)
    } else if age >= life {
        Some(Reason::Expired)
    } else if age >= life * 2 / 3 {
        Some(Reason::Due)
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
    fn by_age() {
        let current = Some(&Ok::<_, ()>(Validity { from: at(1000), until: at(1300) }));
        assert_eq!(needs_renewal(current, at(999)), Some(Reason::NotYetValid));
        assert_eq!(needs_renewal(current, at(1000)), None);
        assert_eq!(needs_renewal(current, at(1199)), None);
        assert_eq!(needs_renewal(current, at(1200)), Some(Reason::Due));
        assert_eq!(needs_renewal(current, at(1299)), Some(Reason::Due));
        assert_eq!(needs_renewal(current, at(1300)), Some(Reason::Expired));
    }

    #[test]
    fn what_is_not_there_or_not_usable() {
        assert_eq!(needs_renewal::<()>(None, at(0)), Some(Reason::Missing));
        assert_eq!(needs_renewal(Some(&Err(())), at(0)), Some(Reason::Unusable));
        // A certificate that ends before it begins.
        let backwards = Some(&Ok::<_, ()>(Validity { from: at(10), until: at(5) }));
        assert_eq!(needs_renewal(backwards, at(10)), Some(Reason::Expired));
    }

    #[test]
    fn making_and_reading_agree() {
        let skew = Duration::from_secs(300);
        let validity = Validity::new(at(10_000), Duration::from_secs(3600), skew);
        assert_eq!(validity, Validity { from: at(9_700), until: at(13_600) });
        assert_eq!(validity.made(skew), at(10_000));
    }
}
