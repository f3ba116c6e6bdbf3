//! Decision of a replica that competes for a lease. Pure.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use tokio::time::Instant;

use super::LEASE_DURATION;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// The lease is free, expired, or this replica's own.
    Take,
    /// Another replica holds the lease.
    Wait,
}

/// Version and holder of the lease, and the time at which this replica first saw this version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sighting {
    /// `None` if the lease does not exist.
    version: Option<String>,
    /// Holder, or the last known one if the lease does not exist. Empty if there is none.
    holder: String,
    duration: Duration,
    since: Instant,
}

impl Sighting {
    /// Returns the sighting of this lease. A lease that was deleted stays its holder's for one more duration: the holder
    /// still writes, and creates it again at its next renewal.
    pub(super) fn of(lease: Option<&Lease>, before: Option<Self>, now: Instant) -> Self {
        let version = lease.and_then(|lease| lease.metadata.resource_version.clone());
        match (lease, before) {
            (_, Some(before)) if before.version == version => before,
            (None, Some(before)) => Self { version, since: now, ..before },
            (lease, _) => {
                let spec = lease.and_then(|lease| lease.spec.as_ref());
                let seconds = spec.and_then(|spec| spec.lease_duration_seconds);
                let duration = seconds.and_then(|seconds| u64::try_from(seconds).ok()).map(Duration::from_secs);
                let holder = spec.and_then(|spec| spec.holder_identity.clone()).unwrap_or_default();
                Self { version, holder, duration: duration.unwrap_or(LEASE_DURATION), since: now }
            }
        }
    }

    pub(super) fn decide(&self, me: &str, now: Instant) -> Decision {
        let is_free = self.holder.is_empty() || self.holder == me;
        if is_free || now.duration_since(self.since) > self.duration { Decision::Take } else { Decision::Wait }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::{
        api::coordination::v1::LeaseSpec,
        apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
    };

    use super::*;

    fn lease(holder: &str, version: &str) -> Lease {
        let holder_identity = Some(holder.to_owned());
        Lease {
            metadata: ObjectMeta { resource_version: Some(version.to_owned()), ..ObjectMeta::default() },
            spec: Some(LeaseSpec { holder_identity, lease_duration_seconds: Some(30), ..LeaseSpec::default() }),
        }
    }

    fn after(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    #[test]
    fn free_or_own_lease_is_taken() {
        let now = Instant::now();
        for lease in [None, Some(lease("", "1")), Some(lease("me", "1")), Some(Lease::default())] {
            assert_eq!(Sighting::of(lease.as_ref(), None, now).decide("me", now), Decision::Take);
        }
    }

    #[test]
    fn lease_that_holder_renews_is_left() {
        let now = Instant::now();
        let seen = Sighting::of(Some(&lease("you", "1")), None, now);
        assert_eq!(seen.decide("me", after(now, 30)), Decision::Wait);
        assert_eq!(seen.decide("me", after(now, 31)), Decision::Take);
        let renewed = Sighting::of(Some(&lease("you", "2")), Some(seen), after(now, 31));
        assert_eq!(renewed.decide("me", after(now, 61)), Decision::Wait);
        assert_eq!(renewed.decide("me", after(now, 62)), Decision::Take);
    }

    #[test]
    fn deleted_lease_is_left_to_its_last_holder_for_its_duration() {
        let now = Instant::now();
        let held = Sighting::of(Some(&lease("you", "1")), None, now);
        let deleted = Sighting::of(None, Some(held), after(now, 40));
        let deleted = Sighting::of(None, Some(deleted), after(now, 60));
        assert_eq!(deleted.decide("me", after(now, 70)), Decision::Wait);
        assert_eq!(deleted.decide("me", after(now, 71)), Decision::Take);
        let released = Sighting::of(Some(&lease("", "2")), Some(deleted), after(now, 70));
        assert_eq!(Sighting::of(None, Some(released), after(now, 70)).decide("me", after(now, 70)), Decision::Take);
    }

    /// Only the time for which the lease was seen unchanged counts: the holder's clock may be an hour off, and jump.
    #[test]
    fn clock_of_holder_is_ignored() {
        let hour = jiff::SignedDuration::from_hours(1);
        for off in [hour, -hour] {
            let time = MicroTime(jiff::Timestamp::now() + off);
            let mut held = lease("you", "1");
            if let Some(spec) = &mut held.spec {
                spec.renew_time = Some(time.clone());
                spec.acquire_time = Some(time);
            }
            let now = Instant::now();
            let seen = Sighting::of(Some(&held), None, now);
            assert_eq!(seen.decide("me", after(now, 30)), Decision::Wait);
            assert_eq!(seen.decide("me", after(now, 31)), Decision::Take);
        }
    }
}
