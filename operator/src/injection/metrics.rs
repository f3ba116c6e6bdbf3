//! What the webhook counts.

use std::{sync::atomic::AtomicU64, time::Duration};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

/// A decision, and why it was made.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    decision: &'static str,
    reason: &'static str,
}

/// The webhook's metrics; clones count together.
#[derive(Clone, Debug)]
pub struct Metrics {
    requests: Family<Outcome, Counter>,
    duration: Histogram,
    /// No number before there is a certificate: a zero would look expired.
    certificate_expiry: Gauge<f64, AtomicU64>,
    authority_expiry: Gauge<f64, AtomicU64>,
    certificate_failures: Counter,
}

impl Metrics {
    /// Registers all of them.
    pub fn register(registry: &mut Registry) -> Metrics {
        let metrics = Metrics {
            requests: Family::default(),
            // Deciding takes tens of microseconds, and half a second at most when an environment has to be looked up.
            duration: Histogram::new([
                0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0,
            ]),
            certificate_expiry: Gauge::default(),
            authority_expiry: Gauge::default(),
            certificate_failures: Counter::default(),
        };
        metrics.certificate_expiry.set(f64::NAN);
        metrics.authority_expiry.set(f64::NAN);
        registry.register(
            "remora_webhook_requests",
            "Admission requests, by what was decided and why",
            metrics.requests.clone(),
        );
        registry.register(
            "remora_webhook_duration_seconds",
            "Time from an admission request's body to its answer",
            metrics.duration.clone(),
        );
        registry.register(
            "remora_webhook_certificate_expiry_timestamp_seconds",
            "When the certificate that this replica serves with expires",
            metrics.certificate_expiry.clone(),
        );
        registry.register(
            "remora_webhook_authority_expiry_timestamp_seconds",
            "When the authority that signs the webhook's certificates expires, if it is known",
            metrics.authority_expiry.clone(),
        );
        registry.register(
            "remora_webhook_certificate_failures",
            "Failed attempts to check or renew the webhook's certificates and what the API server trusts",
            metrics.certificate_failures.clone(),
        );
        metrics
    }

    /// One request was answered.
    pub(crate) fn answered(&self, decision: &'static str, reason: &'static str, took: Duration) {
        self.requests.get_or_create(&Outcome { decision, reason }).inc();
        self.duration.observe(took.as_secs_f64());
    }

    /// The certificate in use, in seconds since 1970.
    pub(crate) fn certificate_expires(&self, at: i64) {
        self.certificate_expiry.set(seconds(at));
    }

    /// The authority in use, in seconds since 1970.
    pub(crate) fn authority_expires(&self, at: i64) {
        self.authority_expiry.set(seconds(at));
    }

    /// Certificates could not be checked or renewed.
    pub(crate) fn certificates_failed(&self) {
        self.certificate_failures.inc();
    }
}

/// Exact for the next quarter of a billion years.
#[allow(clippy::cast_precision_loss, reason = "see above")]
fn seconds(timestamp: i64) -> f64 {
    timestamp as f64
}
