//! Metrics of the controller, and the registry of all metrics. Other parts register theirs with [`Metrics::register_part`].

mod environment;

use std::{
    sync::{Arc, atomic::AtomicU64},
    time::Instant,
};

use parking_lot::Mutex;
use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

pub use self::environment::EnvironmentMetrics;
use crate::{
    api::Reason,
    source::{realtime::metrics::RealtimeMetrics, receiver::metrics::ReceiverMetrics},
    usage::metrics::UsageMetrics,
};

/// Upper bounds of the histogram's buckets in seconds: from an unchanged object, which is compared in memory, to a
/// fetch that reaches its timeout.
const BUCKETS: [f64; 10] = [0.000_1, 0.001, 0.005, 0.025, 0.1, 0.25, 1.0, 5.0, 15.0, 60.0];

/// Step of a reconciliation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Fetching the document from the source.
    Fetch,
    /// Pruning and compiling the document.
    Compile,
    /// Copying the replaced snapshot to the history.
    Archive,
    /// Writing the snapshot to the cluster.
    Publish,
    /// Notifying pods of the new revision.
    Nudge,
    /// Writing the status and Events.
    Report,
}

impl Step {
    fn label(self) -> &'static str {
        match self {
            Self::Fetch => "fetch",
            Self::Compile => "compile",
            Self::Archive => "archive",
            Self::Publish => "publish",
            Self::Nudge => "nudge",
            Self::Report => "report",
        }
    }
}

/// Outcome of a step, which its metric counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The step did its work.
    Done,
    /// The step found nothing to do.
    Unchanged,
    /// A fetch waits for other fetches, or for memory.
    Busy,
    /// A fetch waits for memory, because its document is larger than expected.
    OverBudget,
    /// A fetch waits for another key, because the server refused the current one.
    StillRefused,
    /// The step was cancelled.
    Abandoned,
    /// The step failed.
    Failed(Reason),
}

impl Outcome {
    /// Outcomes that are no failures.
    pub const WITHOUT_REASON: [Self; 6] =
        [Self::Done, Self::Unchanged, Self::Busy, Self::OverBudget, Self::StillRefused, Self::Abandoned];

    /// Returns the metric's label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Done => "Done",
            Self::Unchanged => "Unchanged",
            Self::Busy => "Busy",
            Self::OverBudget => "OverBudget",
            Self::StillRefused => "StillRefused",
            Self::Abandoned => "Abandoned",
            Self::Failed(reason) => reason.as_str(),
        }
    }
}

impl From<Reason> for Outcome {
    fn from(reason: Reason) -> Self {
        Self::Failed(reason)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StepLabels {
    step: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    step: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BuildLabels {
    version: &'static str,
}

/// Metrics of the controller, and the registry of all parts. Clones share their counts.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Arc<Mutex<Registry>>,
    steps: Family<OutcomeLabels, Counter>,
    durations: Family<StepLabels, Histogram>,
    leader: Gauge,
    /// Metrics per FeatureEnvironment.
    pub environments: EnvironmentMetrics,
    /// Metrics of the streams of changes.
    pub realtime: RealtimeMetrics,
    /// Metrics of the receiver of webhooks.
    pub receiver: ReceiverMetrics,
    /// Metrics of the collection of uses.
    pub usage: UsageMetrics,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::default();
        let steps = Family::default();
        let durations = Family::new_with_constructor((|| Histogram::new(BUCKETS)) as fn() -> Histogram);
        let leader = Gauge::default();
        registry.register(
            "remora_controller_steps",
            "Number of steps of reconciliations, by step and outcome",
            steps.clone(),
        );
        registry.register(
            "remora_controller_step_duration_seconds",
            "Duration of a step of a reconciliation",
            durations.clone(),
        );
        registry.register(
            "remora_controller_leader",
            "1 on the replica that holds the lease and reconciles",
            leader.clone(),
        );
        let build = Family::<BuildLabels, Gauge>::default();
        build.get_or_create(&BuildLabels { version: env!("CARGO_PKG_VERSION") }).set(1);
        registry.register("remora_operator_build_info", "Version of the operator. Always 1", build);
        let environments = EnvironmentMetrics::register(&mut registry);
        let realtime = RealtimeMetrics::register(&mut registry);
        let receiver = ReceiverMetrics::register(&mut registry);
        let usage = UsageMetrics::register(&mut registry);
        let registry = Arc::new(Mutex::new(registry));
        Self { registry, steps, durations, leader, environments, realtime, receiver, usage }
    }
}

impl Metrics {
    /// Registers the metrics of a part of the operator, and returns what `register` returns.
    pub fn register_part<T>(&self, register: impl FnOnce(&mut Registry) -> T) -> T {
        register(&mut self.registry.lock())
    }

    /// Encodes all metrics as OpenMetrics text.
    ///
    /// # Errors
    /// If a metric cannot be encoded.
    pub fn text(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry.lock())?;
        Ok(text)
    }

    /// Records whether this replica reconciles.
    pub fn set_leading(&self, leads: bool) {
        self.leader.set(i64::from(leads));
    }

    /// Starts a step, which is counted when it ends.
    pub fn begin(&self, step: Step) -> Running<'_> {
        Running { metrics: self, step: step.label(), began: Instant::now(), outcome: Outcome::Abandoned }
    }
}

/// Step under way. It counts as abandoned if it is dropped without a call of [`end`](Running::end).
#[must_use = "a step that is dropped at once counts as abandoned"]
#[derive(Debug)]
pub struct Running<'a> {
    metrics: &'a Metrics,
    step: &'static str,
    began: Instant,
    outcome: Outcome,
}

impl Running<'_> {
    /// Ends the step with this outcome.
    pub fn end(mut self, outcome: impl Into<Outcome>) {
        self.outcome = outcome.into();
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let Self { metrics, step, began, outcome } = *self;
        metrics.steps.get_or_create(&OutcomeLabels { step, outcome: outcome.as_str() }).inc();
        metrics.durations.get_or_create(&StepLabels { step }).observe(began.elapsed().as_secs_f64());
    }
}

/// Gauge with a floating-point value.
type Amount = Gauge<f64, AtomicU64>;

#[cfg(test)]
#[path = "metrics/tests.rs"]
mod monitoring;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::NamespacedName;

    #[test]
    fn step_is_counted_by_outcome() {
        let metrics = Metrics::default();
        metrics.begin(Step::Fetch).end(Outcome::Unchanged);
        drop(metrics.begin(Step::Fetch));
        let text = metrics.text().unwrap();
        assert!(text.contains("remora_controller_steps_total{step=\"fetch\",outcome=\"Unchanged\"} 1"), "{text}");
        assert!(text.contains("remora_controller_steps_total{step=\"fetch\",outcome=\"Abandoned\"} 1"), "{text}");
    }

    #[test]
    fn deleted_environment_leaves_no_series() {
        let metrics = Metrics::default();
        let shop = |name: &str| NamespacedName::new("shop", name);
        let has = |name: &str| metrics.text().unwrap().contains(&format!("environment=\"{name}\""));
        for name in ["storefront", "search"] {
            metrics.environments.set_fetched(&shop(name), 1_800_000_000.0);
            metrics.environments.set_condition(&shop(name), "Ready", true);
        }
        metrics.environments.retain(Some("other"), |_| false);
        assert!(has("storefront") && has("search"), "the watch of another namespace does not know them");
        metrics.environments.retain(Some("shop"), |environment| environment.name == "search");
        assert!(!has("storefront") && has("search"));
        metrics.environments.retain(None, |_| false);
        assert!(!has("search"));
    }
}
