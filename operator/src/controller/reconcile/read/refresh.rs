//! Refresh step: decides whether an annotation asks for a fetch now.

use std::time::Duration;

use kube::ResourceExt;
use tokio::time::Instant;

use crate::{
    api::{FeatureEnvironmentStatus, names::annotation},
    controller::reconcile::environment::Environment,
};

/// Minimum time between two fetches that requests of one environment cause. A request within this time waits.
const PACE: Duration = Duration::from_secs(5);
/// Number of characters of the annotation that identify a request. The status repeats them.
const REQUEST_MAX: usize = 64;

/// Requests of an environment for a fetch, between reconciliations.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    /// Time of the last fetch that a request caused.
    last: Option<Instant>,
}

impl Requests {
    /// Returns the time from which a pending request may be served.
    pub(crate) fn next(&self, now: Instant) -> Instant {
        self.last.map_or(now, |last| last + PACE)
    }

    /// Returns true if a pending request may be served now, and starts the pause before the next one.
    pub(crate) fn start(&mut self, now: Instant) -> bool {
        let starts = now >= self.next(now);
        if starts {
            self.last = Some(now);
        }
        starts
    }
}

/// Returns the request that the annotation contains, served or not.
pub(crate) fn requested(environment: &Environment<'_>) -> Option<String> {
    let value = environment.object.annotations().get(annotation::REFRESH)?;
    Some(value.chars().take(REQUEST_MAX).collect())
}

/// Returns true if the annotation contains a request that the status does not name as served.
pub(crate) fn is_pending(environment: &Environment<'_>, status: Option<&FeatureEnvironmentStatus>) -> bool {
    let served = status.and_then(|status| status.last_refresh.as_ref());
    requested(environment).is_some_and(|request| served != Some(&request))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_request_waits_for_pause() {
        let now = Instant::now();
        let mut requests = Requests::default();
        assert!(requests.start(now));
        let later = now + PACE / 2;
        assert!(!requests.start(later));
        assert_eq!(requests.next(later), now + PACE);
        assert!(requests.start(now + PACE));
    }
}
