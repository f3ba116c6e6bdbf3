//! Fence against writes by a replica that may have lost its lease. The client checks it for every request, so no caller
//! can forget it.

use std::{fmt, sync::Arc, time::Duration};

use http::{Method, Request};
use kube::{
    Client, Config,
    client::{Body, ClientBuilder},
};
use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};
use tower::{BoxError, filter::FilterLayer};

/// Clock that returns the time since the machine was booted.
type Clock = Arc<dyn Fn() -> Duration + Send + Sync>;

/// Start time of the last successful renewal of the lease.
///
/// The clock also counts the time for which the machine is suspended, as the clocks of other replicas do.
/// [`std::time::Instant`] does not, so after a suspension it would take an expired lease for a fresh one.
#[derive(Clone)]
pub struct LeaseFence {
    renewed: Arc<Mutex<Option<Duration>>>,
    clock: Clock,
}

impl Default for LeaseFence {
    fn default() -> Self {
        Self::with_clock(since_boot)
    }
}

impl fmt::Debug for LeaseFence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseFence").field("renewed", &self.renewed).finish_non_exhaustive()
    }
}

fn since_boot() -> Duration {
    clock_gettime(ClockId::Boottime).try_into().unwrap_or_default()
}

/// Error of a write that the fence rejected.
#[derive(Debug, thiserror::Error)]
#[error("the write is rejected: the lease was not renewed in time, so another replica may hold it")]
struct LeaseExpired;

impl LeaseFence {
    /// Creates a fence of a lease that was never renewed, with a clock of its own. Tests use it.
    pub fn with_clock(clock: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self { renewed: Arc::default(), clock: Arc::new(clock) }
    }

    /// Returns the current time, for [`LeaseFence::record_renewal`].
    pub(super) fn now(&self) -> Duration {
        (self.clock)()
    }

    /// Records a renewal by a call that started at this time.
    pub(super) fn record_renewal(&self, at: Duration) {
        *self.renewed.lock() = Some(at);
    }

    /// Rejects writes from now on, until a renewal is recorded.
    pub(super) fn close(&self) {
        *self.renewed.lock() = None;
    }

    /// True if the lease was renewed within this time.
    pub(super) fn was_renewed_within(&self, within: Duration) -> bool {
        let renewed = *self.renewed.lock();
        renewed.is_some_and(|at| self.now().saturating_sub(at) < within)
    }

    /// Creates a client that rejects writes unless the lease is held.
    ///
    /// # Errors
    /// If no client can be built from `config`.
    pub fn client(&self, config: Config) -> kube::Result<Client> {
        Ok(ClientBuilder::try_from(config)?.with_layer(&self.layer()).build())
    }

    /// Returns the layer of a client that rejects writes unless the lease is held. A process that was stopped, or whose
    /// machine was suspended, fails here.
    ///
    /// A process can also be stopped between this check and the API server. That one write is protected by the resource
    /// version or UID that it names, and by the order of writes.
    pub fn layer(&self) -> FilterLayer<impl Fn(Request<Body>) -> Result<Request<Body>, BoxError> + Clone + use<>> {
        let fence = self.clone();
        FilterLayer::new(move |request| fence.admit(request))
    }

    fn admit<B>(&self, request: Request<B>) -> Result<Request<B>, BoxError> {
        if request.method() == Method::GET || self.was_renewed_within(super::RENEW_DEADLINE) {
            Ok(request)
        } else {
            Err(LeaseExpired.into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: Method) -> Request<()> {
        Request::builder().method(method).body(()).unwrap()
    }

    /// Returns a fence and its clock, which the test sets.
    fn clocked() -> (LeaseFence, Arc<Mutex<Duration>>) {
        let clock = Arc::new(Mutex::new(Duration::from_secs(1000)));
        let read = Arc::clone(&clock);
        (LeaseFence::with_clock(move || *read.lock()), clock)
    }

    /// A suspended machine stops the monotonic clock of its processes, but not this clock.
    #[test]
    fn machine_suspended_beyond_deadline_writes_nothing() {
        let (fence, clock) = clocked();
        let (renewed, monotonic) = (fence.now(), std::time::Instant::now());
        fence.record_renewal(renewed);
        *clock.lock() += Duration::from_secs(3600);
        assert!(monotonic.elapsed() < super::super::RENEW_DEADLINE, "the test took too long to show anything");
        assert!(fence.admit(request(Method::PATCH)).is_err());
        assert!(!fence.was_renewed_within(super::super::RENEW_DEADLINE));
    }

    #[test]
    fn write_without_lasting_lease_is_rejected() {
        let (fence, clock) = clocked();
        let writes = [Method::POST, Method::PATCH, Method::PUT, Method::DELETE];
        assert!(fence.admit(request(Method::GET)).is_ok());
        assert!(writes.iter().all(|method| fence.admit(request(method.clone())).is_err()));
        fence.record_renewal(fence.now());
        assert!(writes.iter().all(|method| fence.admit(request(method.clone())).is_ok()));
        *clock.lock() += super::super::RENEW_DEADLINE;
        assert!(writes.iter().all(|method| fence.admit(request(method.clone())).is_err()));
        assert!(fence.admit(request(Method::GET)).is_ok());
    }

    /// `/proc/uptime` counts suspended time.
    #[test]
    fn clock_of_fence_is_time_since_boot() {
        let uptime = || -> f64 {
            let text = std::fs::read_to_string("/proc/uptime").unwrap();
            text.split(' ').next().unwrap().parse().unwrap()
        };
        let (before, now, after) = (uptime(), LeaseFence::default().now().as_secs_f64(), uptime());
        assert!(before - 0.02 <= now && now <= after + 0.02, "{before} {now} {after}");
    }
}
