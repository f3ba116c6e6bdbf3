//! Metrics of the auditor.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct InNamespace {
    namespace: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

/// The auditor's metrics. Clones share their values.
#[derive(Clone, Debug)]
pub struct Metrics {
    missing: Family<InNamespace, Gauge>,
    /// Namespaces that have a series now.
    shown: Arc<Mutex<Vec<String>>>,
    looks: Family<Outcome, Counter>,
    evictions: Family<Outcome, Counter>,
}

impl Metrics {
    /// Registers the metrics.
    pub fn register(registry: &mut Registry) -> Metrics {
        let metrics = Metrics {
            missing: Family::default(),
            shown: Arc::default(),
            looks: Family::default(),
            evictions: Family::default(),
        };
        registry.register(
            "remora_injection_missing_pods",
            "Pods that ask for a sidecar and have none, by namespace; no series where there is none",
            metrics.missing.clone(),
        );
        registry.register(
            "remora_injection_audits",
            "Looks at all pods, by outcome: Done, or the step that failed",
            metrics.looks.clone(),
        );
        registry.register(
            "remora_injection_evictions",
            "Evictions of pods that have no sidecar, by outcome: Evicted, Blocked, Gone, Failed",
            metrics.evictions.clone(),
        );
        metrics
    }

    pub(super) fn looked(&self, outcome: &'static str) {
        self.looks.get_or_create(&Outcome { outcome }).inc();
    }

    pub(super) fn evicted(&self, outcome: &'static str) {
        self.evictions.get_or_create(&Outcome { outcome }).inc();
    }

    /// Sets the number of pods without their sidecar per namespace; the iterator yields the namespace of each such pod.
    /// Removes the series of namespaces that have none.
    pub(super) fn missing<'a>(&self, namespaces: impl Iterator<Item = &'a str>) {
        let mut counts: HashMap<&str, i64> = HashMap::new();
        for namespace in namespaces {
            *counts.entry(namespace).or_default() += 1;
        }
        let mut shown = self.shown.lock();
        for namespace in shown.drain(..).filter(|namespace| !counts.contains_key(namespace.as_str())) {
            self.missing.remove(&InNamespace { namespace });
        }
        for (namespace, count) in counts {
            let namespace = namespace.to_owned();
            self.missing.get_or_create(&InNamespace { namespace: namespace.clone() }).set(count);
            shown.push(namespace);
        }
    }
}
