//! Decision about an existing lease. Pure.

use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// This replica holds the lease, or it is free or expired.
    Take,
    /// Another replica holds the lease.
    Wait,
}

/// Version of the lease, and the time at which this replica first saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sighting {
    version: Option<String>,
    since: Instant,
}

impl Sighting {
    pub(super) fn of(lease: &Lease, before: Option<Self>, now: Instant) -> Self {
        let version = lease.metadata.resource_version.clone();
        match before {
            Some(before) if before.version == version => before,
            _ => Self { version, since: now },
        }
    }

    pub(super) fn unchanged_for(&self, now: Instant) -> Duration {
        now.duration_since(self.since)
    }
}

pub(super) fn decide(lease: Option<&LeaseSpec>, me: &str, unchanged_for: Duration) -> Decision {
    let holder = lease.and_then(|lease| lease.holder_identity.as_deref()).unwrap_or_default();
    let seconds = lease.and_then(|lease| lease.lease_duration_seconds).and_then(|seconds| u64::try_from(seconds).ok());
    let duration = Duration::from_secs(seconds.unwrap_or_default());
    if holder.is_empty() || holder == me || unchanged_for > duration { Decision::Take } else { Decision::Wait }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(holder: &str) -> LeaseSpec {
        LeaseSpec { holder_identity: Some(holder.to_owned()), lease_duration_seconds: Some(30), ..LeaseSpec::default() }
    }

    #[test]
    fn free_or_own_lease_is_taken() {
        assert_eq!(decide(None, "me", Duration::ZERO), Decision::Take);
        assert_eq!(decide(Some(&lease("")), "me", Duration::ZERO), Decision::Take);
        assert_eq!(decide(Some(&lease("me")), "me", Duration::ZERO), Decision::Take);
    }

    #[test]
    fn lease_that_holder_renews_is_left() {
        assert_eq!(decide(Some(&lease("you")), "me", Duration::from_secs(30)), Decision::Wait);
        assert_eq!(decide(Some(&lease("you")), "me", Duration::from_secs(31)), Decision::Take);
    }

    #[test]
    fn renewal_restarts_expiry() {
        let now = Instant::now();
        let later = now + Duration::from_secs(20);
        let mut seen = Lease::default();
        seen.metadata.resource_version = Some("1".to_owned());
        let first = Sighting::of(&seen, None, now);
        let same = Sighting::of(&seen, Some(first), later);
        assert_eq!(same.unchanged_for(later), Duration::from_secs(20));
        seen.metadata.resource_version = Some("2".to_owned());
        assert_eq!(Sighting::of(&seen, Some(same), later).unchanged_for(later), Duration::ZERO);
    }

    /// Only the time for which the lease was seen unchanged counts: the holder's clock may be an hour off, and jump.
    #[test]
    fn clock_of_holder_is_ignored() {
        let hour = jiff::SignedDuration::from_hours(1);
        for off in [hour, -hour] {
            let now = jiff::Timestamp::now() + off;
            let time = k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime(now);
            let held = LeaseSpec { renew_time: Some(time.clone()), acquire_time: Some(time), ..lease("you") };
            assert_eq!(decide(Some(&held), "me", Duration::from_secs(30)), Decision::Wait);
            assert_eq!(decide(Some(&held), "me", Duration::from_secs(31)), Decision::Take);
        }
    }
}
