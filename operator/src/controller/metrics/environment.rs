//! Metrics of single environments.

use std::{collections::HashSet, sync::Arc, time::Duration};

use parking_lot::Mutex;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

use super::Amount;
use crate::{
    api::{NamespacedName, Pods},
    controller::status::{ACCEPTED, FETCHED, PUBLISHED, READY, STALE},
};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    namespace: String,
    environment: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ConditionLabels {
    namespace: String,
    environment: String,
    condition: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PodLabels {
    namespace: String,
    environment: String,
    state: &'static str,
}

const STATES: [&str; 3] = ["current", "behind", "silent"];
const CONDITIONS: [&str; 5] = [ACCEPTED, FETCHED, PUBLISHED, READY, STALE];

/// Metrics with one series per FeatureEnvironment.
#[derive(Clone, Debug, Default)]
pub struct EnvironmentMetrics {
    last_fetch: Family<Labels, Amount>,
    document_bytes: Family<Labels, Gauge>,
    read_within: Family<Labels, Amount>,
    snapshot_bytes: Family<Labels, Gauge>,
    findings: Family<Labels, Gauge>,
    changed_flags: Family<Labels, Counter>,
    held: Family<Labels, Gauge>,
    conditions: Family<ConditionLabels, Gauge>,
    pods: Family<PodLabels, Gauge>,
    /// Environments that may have series.
    known: Arc<Mutex<HashSet<Labels>>>,
}

impl EnvironmentMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let Self {
            last_fetch,
            document_bytes,
            read_within,
            snapshot_bytes,
            findings,
            changed_flags,
            held,
            conditions,
            pods,
            known: _,
        } = metrics.clone();
        registry.register(
            "remora_environment_last_fetch_timestamp_seconds",
            "Time of the last fetch that returned a document or confirmed the last one",
            last_fetch,
        );
        registry.register(
            "remora_environment_document_bytes",
            "Size of the document that was fetched last",
            document_bytes,
        );
        registry.register(
            "remora_environment_read_within_seconds",
            "Longest time between two fetches that find every change, also one that does not move the document's time",
            read_within,
        );
        registry.register("remora_environment_snapshot_bytes", "Size of the published snapshot", snapshot_bytes);
        registry.register(
            "remora_environment_findings",
            "Number of findings in the document that was compiled last",
            findings,
        );
        registry.register(
            "remora_environment_changed_flags",
            "Number of flags that publications changed, added or removed",
            changed_flags,
        );
        registry.register(
            "remora_environment_held",
            "1 while the newest document is held back until a person approves it",
            held,
        );
        registry.register("remora_environment_condition", "1 if the condition is True", conditions);
        registry.register(
            "remora_environment_pods",
            "Number of pods by what they serve: the published revision (current), another one (behind), or no answer (silent)",
            pods,
        );
        metrics
    }

    /// Records a successful fetch, in seconds since 1970.
    pub fn set_fetched(&self, environment: &NamespacedName, at: f64) {
        self.last_fetch.get_or_create(&self.labels(environment)).set(at);
    }

    /// Records the size of a fetched document in bytes.
    pub fn set_document_bytes(&self, environment: &NamespacedName, bytes: usize) {
        self.document_bytes.get_or_create(&self.labels(environment)).set(count(bytes));
    }

    /// Records the longest time between two full reads of the document.
    pub fn set_read_within(&self, environment: &NamespacedName, within: Duration) {
        self.read_within.get_or_create(&self.labels(environment)).set(within.as_secs_f64());
    }

    /// Records the number of findings in a compiled document.
    pub fn set_findings(&self, environment: &NamespacedName, findings: usize) {
        self.findings.get_or_create(&self.labels(environment)).set(count(findings));
    }

    /// Records the size of the published snapshot in bytes.
    pub fn set_published_bytes(&self, environment: &NamespacedName, bytes: usize) {
        self.snapshot_bytes.get_or_create(&self.labels(environment)).set(count(bytes));
    }

    /// Counts the flags that a publication changed.
    pub fn count_changed_flags(&self, environment: &NamespacedName, flags: i64) {
        let flags = u64::try_from(flags).unwrap_or_default();
        self.changed_flags.get_or_create(&self.labels(environment)).inc_by(flags);
    }

    /// Records whether the newest document is held back.
    pub fn set_held(&self, environment: &NamespacedName, held: bool) {
        self.held.get_or_create(&self.labels(environment)).set(i64::from(held));
    }

    /// Records whether a condition is True. An unknown condition is ignored.
    pub fn set_condition(&self, environment: &NamespacedName, condition: &str, is_true: bool) {
        if let Some(condition) = CONDITIONS.into_iter().find(|known| *known == condition) {
            let Labels { namespace, environment } = self.labels(environment);
            let labels = ConditionLabels { namespace, environment, condition };
            self.conditions.get_or_create(&labels).set(i64::from(is_true));
        }
    }

    /// Records the latest counts of pods by what they serve.
    pub fn set_pods(&self, environment: &NamespacedName, pods: &Pods) {
        for (state, count) in STATES.into_iter().zip([pods.current, pods.behind, pods.silent]) {
            let Labels { namespace, environment } = self.labels(environment);
            self.pods.get_or_create(&PodLabels { namespace, environment, state }).set(count);
        }
    }

    /// Removes all series of the environments in this namespace, or in all namespaces, for which `exists` returns
    /// false.
    pub fn retain(&self, scope: Option<&str>, exists: impl Fn(&NamespacedName) -> bool) {
        let is_gone = |labels: &Labels| {
            scope.is_none_or(|scope| scope == labels.namespace)
                && !exists(&NamespacedName::new(&labels.namespace, &labels.environment))
        };
        let gone: Vec<Labels> = self.known.lock().extract_if(is_gone).collect();
        for labels in gone {
            self.forget(&labels);
        }
    }

    fn forget(&self, labels: &Labels) {
        self.last_fetch.remove(labels);
        self.document_bytes.remove(labels);
        self.read_within.remove(labels);
        self.snapshot_bytes.remove(labels);
        self.findings.remove(labels);
        self.changed_flags.remove(labels);
        self.held.remove(labels);
        for state in STATES {
            let Labels { namespace, environment } = labels.clone();
            self.pods.remove(&PodLabels { namespace, environment, state });
        }
        for condition in CONDITIONS {
            let Labels { namespace, environment } = labels.clone();
            self.conditions.remove(&ConditionLabels { namespace, environment, condition });
        }
    }

    /// Returns the labels of an environment, and records that it may have series.
    fn labels(&self, environment: &NamespacedName) -> Labels {
        let labels = Labels { namespace: environment.namespace.clone(), environment: environment.name.clone() };
        let mut known = self.known.lock();
        if !known.contains(&labels) {
            known.insert(labels.clone());
        }
        labels
    }
}

fn count(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
