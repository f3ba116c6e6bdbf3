//! Metrics of the receiver of webhooks.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

use super::Verdict;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    verdict: &'static str,
}

/// Metrics of the receiver of webhooks.
#[derive(Clone, Debug, Default)]
pub struct ReceiverMetrics {
    webhooks: Family<Labels, Counter>,
}

impl ReceiverMetrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "remora_receiver_webhooks",
            "Webhooks of sources, by verdict: Accepted, Refused, NotLeading, Starting",
            metrics.webhooks.clone(),
        );
        metrics
    }

    /// Counts a webhook.
    pub(super) fn count_received(&self, verdict: Verdict) {
        let verdict = match verdict {
            Verdict::Accepted => "Accepted",
            Verdict::Refused => "Refused",
            Verdict::NotLeading => "NotLeading",
            Verdict::Starting => "Starting",
        };
        self.webhooks.get_or_create(&Labels { verdict }).inc();
    }
}
