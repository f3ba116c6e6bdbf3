//! Metrics of the webhook.

use std::{sync::atomic::AtomicU64, time::Duration};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

/// Labels of an answered request: the decision and its reason.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    decision: &'static str,
    reason: &'static str,
}

/// The webhook's metrics. Clones share their values.
#[derive(Clone, Debug)]
pub struct Metrics {
    requests: Family<Outcome, Counter>,
    duration: Histogram,
    /// NaN before the first certificate, because zero would look expired.
    certificate_expiry: Gauge<f64, AtomicU64>,
    authority_expiry: Gauge<f64, AtomicU64>,
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

    /// Counts one answered request and its duration.
    pub(crate) fn answered(&self, decision: &'static str, reason: &'static str, took: Duration) {
        self.requests.get_or_create(&Outcome { decision, reason }).inc();
        self.duration.observe(took.as_secs_f64());
    }

    /// Sets the expiry of the serving certificate, in seconds since 1970.
    pub(crate) fn certificate_expires(&self, at: i64) {
        self.certificate_expiry.set(seconds(at));
    }

    /// Sets the expiry of the CA, in seconds since 1970.
    pub(crate) fn authority_expires(&self, at: i64) {
        self.authority_expiry.set(seconds(at));
    }

    /// Counts a failed attempt to check or renew the certificates.
    pub(crate) fn certificates_failed(&self) {
        self.certificate_failures.inc();
    }
}

/// Converts seconds to a float. The result is exact for the next quarter of a billion years.
#[allow(clippy::cast_precision_loss, reason = "see above")]
fn seconds(timestamp: i64) -> f64 {
    timestamp as f64
}
