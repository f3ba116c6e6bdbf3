//! Metrics of the webhook.

use std::{sync::atomic::AtomicU64, time::Duration};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

use super::decide::{Refusal, SkipReason};

/// Outcome of an admission request.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The pod is injected.
    Injected,
    /// The pod is injected, and one of its environments does not exist.
    InjectedEnvironmentMissing,
    /// The pod is injected, and it is unknown if one of its environments exists.
    InjectedEnvironmentUnknown,
    /// The pod is admitted unchanged.
    Skipped(SkipReason),
    /// The request does not create a pod.
    SkippedNoNewPod,
    /// The pod is denied.
    Denied(Refusal),
    /// The pod is beyond the webhook's limits.
    DeniedTooLarge,
    /// The pod cannot be parsed.
    DeniedMalformed,
    /// The body is not an AdmissionReview.
    Refused,
}

/// Labels of an answered request.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Labels {
    pub(crate) decision: &'static str,
    pub(crate) reason: &'static str,
}

impl Outcome {
    /// Returns the labels that count this outcome.
    pub(crate) fn labels(&self) -> Labels {
        let (decision, reason) = match self {
            Outcome::Injected => ("injected", "complete"),
            Outcome::InjectedEnvironmentMissing => ("injected", "environment_missing"),
            Outcome::InjectedEnvironmentUnknown => ("injected", "environment_unknown"),
            Outcome::Skipped(reason) => ("skipped", reason.label()),
            Outcome::SkippedNoNewPod => ("skipped", "no_new_pod"),
            Outcome::Denied(refusal) => ("denied", refusal.label()),
            Outcome::DeniedTooLarge => ("denied", "too_large"),
            Outcome::DeniedMalformed => ("denied", "malformed_pod"),
            Outcome::Refused => ("refused", "unreadable"),
        };
        Labels { decision, reason }
    }
}

/// The webhook's metrics. Clones share their values.
#[derive(Clone, Debug)]
pub struct Metrics {
    requests: Family<Labels, Counter>,
    duration: Histogram,
    /// NaN before the first certificate, because zero would look expired.
    certificate_expiry: Gauge<f64, AtomicU64>,
    ca_expiry: Gauge<f64, AtomicU64>,
    certificate_failures: Counter,
}

impl Metrics {
    /// Registers the metrics.
    pub fn register(registry: &mut Registry) -> Metrics {
        let metrics = Metrics {
            requests: Family::default(),
            // A decision takes tens of microseconds, and at most half a second if the webhook has to look up an
            // environment.
            duration: Histogram::new([
                0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0,
            ]),
            certificate_expiry: Gauge::default(),
            ca_expiry: Gauge::default(),
            certificate_failures: Counter::default(),
        };
        metrics.certificate_expiry.set(f64::NAN);
        metrics.ca_expiry.set(f64::NAN);
        registry.register(
            "remora_webhook_requests",
            "Answered admission requests, by decision (injected, skipped, denied, refused) and reason",
            metrics.requests.clone(),
        );
        registry.register(
            "remora_webhook_duration_seconds",
            "Time from the end of an admission request's body to its answer",
            metrics.duration.clone(),
        );
        registry.register(
            "remora_webhook_certificate_expiry_timestamp_seconds",
            "Expiry of this replica's serving certificate, in seconds since 1970; NaN before the first certificate",
            metrics.certificate_expiry.clone(),
        );
        registry.register(
            "remora_webhook_authority_expiry_timestamp_seconds",
            "Expiry of the CA of the webhook's certificates, in seconds since 1970; NaN if unknown",
            metrics.ca_expiry.clone(),
        );
        registry.register(
            "remora_webhook_certificate_failures",
            "Failed attempts to check, renew or register the webhook's certificates",
            metrics.certificate_failures.clone(),
        );
        metrics
    }

    /// Counts one answered request and its duration.
    pub(crate) fn count_answer(&self, labels: &Labels, took: Duration) {
        self.requests.get_or_create(labels).inc();
        self.duration.observe(took.as_secs_f64());
    }

    /// Sets the expiry of the serving certificate, in seconds since 1970.
    pub(crate) fn set_certificate_expiry(&self, at: i64) {
        self.certificate_expiry.set(seconds(at));
    }

    /// Sets the expiry of the CA, in seconds since 1970.
    pub(crate) fn set_ca_expiry(&self, at: i64) {
        self.ca_expiry.set(seconds(at));
    }

    /// Counts a failed attempt to check or renew the certificates.
    pub(crate) fn count_certificate_failure(&self) {
        self.certificate_failures.inc();
    }
}

/// Converts seconds to a float. The result is exact for the next quarter of a billion years.
#[allow(clippy::cast_precision_loss, reason = "see above")]
fn seconds(timestamp: i64) -> f64 {
    timestamp as f64
}
