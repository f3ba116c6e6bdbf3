//! Metrics of the collection of uses.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

use crate::api::Reason;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

/// Outcome of collected uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// The server confirmed the uses.
    Sent,
    /// The server may have the uses: the request was sent, and its answer is lost.
    Unconfirmed,
    /// The uses exceed what one request can hold.
    Dropped,
}

/// Result of reading the counters of a sidecar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// The counters were read.
    Read,
    /// The sidecar did not answer.
    Silent,
    /// No memory of the budget is left for the counters.
    OutOfMemory,
}

/// Metrics of the collection of uses.
#[derive(Clone, Debug, Default)]
pub struct UsageMetrics {
    uses: Family<ResultLabels, Counter>,
    readings: Family<ResultLabels, Counter>,
    failures: Family<ReasonLabels, Counter>,
}

impl UsageMetrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let Self { uses, readings, failures } = metrics.clone();
        registry.register(
            "remora_usage_flag_uses",
            "Uses of flags that were collected from sidecars, by result: Sent, Unconfirmed, Dropped",
            uses,
        );
        registry.register(
            "remora_usage_readings",
            "Readings of a sidecar's counters, by result: Read, Silent, OutOfMemory",
            readings,
        );
        registry.register("remora_usage_failures", "Requests with uses of flags that failed, by reason", failures);
        metrics
    }

    /// Counts uses.
    pub(super) fn count_uses(&self, fate: Fate, uses: u64) {
        let result = match fate {
            Fate::Sent => "Sent",
            Fate::Unconfirmed => "Unconfirmed",
            Fate::Dropped => "Dropped",
        };
        self.uses.get_or_create(&ResultLabels { result }).inc_by(uses);
    }

    /// Number of uses with this result.
    #[cfg(test)]
    pub(super) fn sum(&self, result: &'static str) -> u64 {
        self.uses.get_or_create(&ResultLabels { result }).get()
    }

    /// Counts a reading.
    pub(super) fn count_reading(&self, reading: Reading) {
        let result = match reading {
            Reading::Read => "Read",
            Reading::Silent => "Silent",
            Reading::OutOfMemory => "OutOfMemory",
        };
        self.readings.get_or_create(&ResultLabels { result }).inc();
    }

    /// Counts a request that failed.
    pub(super) fn count_failure(&self, reason: Reason) {
        self.failures.get_or_create(&ReasonLabels { reason: reason.as_str() }).inc();
    }
}
