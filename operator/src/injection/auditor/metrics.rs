//! Metrics of the auditor.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeLabelValue},
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

use super::evict::EvictionOutcome;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct InNamespace {
    namespace: String,
}

/// Outcome of an audit, and the value of its label: `Done`, or the step that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(super) enum AuditOutcome {
    Done,
    ListPods,
    ReadPod,
    ReadNamespace,
    UnderstandPod,
    Silence,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AuditLabels {
    outcome: AuditOutcome,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EvictionLabels {
    outcome: EvictionOutcome,
}

/// The auditor's metrics. Clones share their values.
#[derive(Clone, Debug)]
pub struct Metrics {
    missing: Family<InNamespace, Gauge>,
    /// Namespaces that have a series now.
    namespaces: Arc<Mutex<Vec<String>>>,
    audits: Family<AuditLabels, Counter>,
    evictions: Family<EvictionLabels, Counter>,
}

impl Metrics {
    /// Registers the metrics.
    pub fn register(registry: &mut Registry) -> Metrics {
        let metrics = Metrics {
            missing: Family::default(),
            namespaces: Arc::default(),
            audits: Family::default(),
            evictions: Family::default(),
        };
        registry.register(
            "remora_injection_missing_pods",
            "Pods that request a sidecar and have none, by namespace; namespaces without such pods have no series",
            metrics.missing.clone(),
        );
        registry.register(
            "remora_injection_audits",
            "Audits of all pods, by outcome: Done, or the step that failed",
            metrics.audits.clone(),
        );
        registry.register(
            "remora_injection_evictions",
            "Evictions of pods without their sidecar, by outcome: Evicted, Blocked, Gone, Failed",
            metrics.evictions.clone(),
        );
        metrics
    }

    pub(super) fn count_audit(&self, outcome: AuditOutcome) {
        self.audits.get_or_create(&AuditLabels { outcome }).inc();
    }

    pub(super) fn count_eviction(&self, outcome: EvictionOutcome) {
        self.evictions.get_or_create(&EvictionLabels { outcome }).inc();
    }

    /// Sets the number of pods without their sidecar per namespace; the iterator yields the namespace of each such pod.
    /// Removes the series of namespaces that have none.
    pub(crate) fn set_missing<'a>(&self, namespaces: impl Iterator<Item = &'a str>) {
        let mut counts: HashMap<&str, i64> = HashMap::new();
        for namespace in namespaces {
            *counts.entry(namespace).or_default() += 1;
        }
        let mut with_series = self.namespaces.lock();
        for namespace in with_series.drain(..).filter(|namespace| !counts.contains_key(namespace.as_str())) {
            self.missing.remove(&InNamespace { namespace });
        }
        for (namespace, count) in counts {
            let namespace = namespace.to_owned();
            self.missing.get_or_create(&InNamespace { namespace: namespace.clone() }).set(count);
            with_series.push(namespace);
        }
    }
}
