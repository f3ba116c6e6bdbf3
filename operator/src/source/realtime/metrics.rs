//! Metrics of the streams of change events.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

use crate::api::Reason;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    reason: &'static str,
}

/// Metrics of the streams of change events.
#[derive(Clone, Debug, Default)]
pub struct RealtimeMetrics {
    connected: Gauge,
    changes: Counter,
    failures: Family<Labels, Counter>,
}

/// Guard that counts a stream as connected until it is dropped.
#[derive(Debug)]
#[must_use = "a stream that is not held is not counted"]
pub struct Connected<'a>(&'a Gauge);

impl Drop for Connected<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl RealtimeMetrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let Self { connected, changes, failures } = metrics.clone();
        registry.register("remora_realtime_streams", "Open streams of changes", connected);
        registry.register(
            "remora_realtime_changes",
            "Changes that streams reported and that triggered a fetch",
            changes,
        );
        registry.register("remora_realtime_failures", "Streams of changes that failed or ended, by reason", failures);
        metrics
    }

    /// Counts a stream as connected until the returned guard is dropped.
    pub fn begin_connection(&self) -> Connected<'_> {
        self.connected.inc();
        Connected(&self.connected)
    }

    /// Counts an event that triggered a fetch.
    pub fn count_change(&self) {
        self.changes.inc();
    }

    /// Counts a stream that failed or ended.
    pub fn count_failure(&self, reason: Reason) {
        self.failures.get_or_create(&Labels { reason: reason.as_str() }).inc();
    }
}
