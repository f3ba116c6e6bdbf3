//! The FeatureEnvironment resource. Whatever the schema can check, it checks, and says what to write instead.

#![allow(unreachable_pub, reason = "KubeSchema copies each struct, with its visibility, into a function")]

mod delivery;
mod duration;
mod guard;
mod prune;
mod refresh;
mod serve;
mod source;
mod status;

use kube::{CustomResource, CustomResourceExt, KubeSchema};
use serde::{Deserialize, Serialize};

pub use self::{
    delivery::{Carrier, Delivered, Delivery},
    duration::{InvalidPeriod, Period},
    guard::Guard,
    prune::{FeatureRules, Keep, PruneRules},
    refresh::Refresh,
    serve::{AppliedTo, BooleanFlags, DisabledFlags, ObjectFlags, Ofrep, Serve},
    source::{CaBundleRef, Document, Flagsmith, ObjectKeyRef, PlannedSource, Realtime, SecretKeyRef, Source},
    status::{FeatureEnvironmentStatus, Finding, PastRevision, Pods},
};

/// A feature environment that is published to the pods of its namespace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "remora.dev",
    version = "v1alpha1",
    kind = "FeatureEnvironment",
    plural = "featureenvironments",
    shortname = "fenv",
    category = "remora",
    namespaced,
    status = "FeatureEnvironmentStatus",
    derive = "PartialEq",
    doc = "A feature environment, published to the pods of its namespace that ask for it with the annotation remora.dev/inject.",
    validation = Rule::new("!has(self.spec.serve) || !has(self.spec.serve.environmentDocument) || !self.spec.serve.environmentDocument || has(self.spec.source.flagsmith)")
        .message("spec.serve.environmentDocument needs spec.source.flagsmith: the document is only handed out to the server-side key, which a source without a server does not have"),
    validation = Rule::new("size(self.metadata.name) <= 40 && self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')")
        .message("metadata.name must be a DNS label of at most 40 characters (lower-case letters, digits and '-'): names of objects and volumes are made of it"),
    printcolumn(name = "Ready", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].status"#),
    printcolumn(name = "Revision", type_ = "string", json_path = ".status.revision"),
    printcolumn(name = "Features", type_ = "integer", json_path = ".status.features"),
    printcolumn(name = "Overrides", type_ = "integer", json_path = ".status.overrides"),
    printcolumn(name = "Bytes", type_ = "integer", json_path = ".status.bytes"),
    printcolumn(name = "Freshness", type_ = "string", json_path = r#".status.conditions[?(@.type=="Stale")].reason"#),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Fetched", type_ = "string", priority = 1, json_path = r#".status.conditions[?(@.type=="Fetched")].reason"#),
    printcolumn(name = "Pods", type_ = "integer", priority = 1, json_path = ".status.pods.total"),
    printcolumn(name = "Current", type_ = "integer", priority = 1, json_path = ".status.pods.current"),
    printcolumn(name = "Realtime", type_ = "string", priority = 1, json_path = ".status.realtime"),
    printcolumn(name = "Message", type_ = "string", priority = 1, json_path = r#".status.conditions[?(@.type=="Ready")].message"#)
)]
#[serde(rename_all = "camelCase")]
pub struct FeatureEnvironmentSpec {
    /// Where the environment's document comes from.
    pub source: Source,
    /// When the source is asked again.
    #[serde(default)]
    pub refresh: Refresh,
    /// What is left out of the snapshot.
    #[serde(default)]
    pub prune: PruneRules,
    /// What the sidecar answers.
    #[serde(default)]
    pub serve: Serve,
    /// How the snapshot comes to pods.
    #[serde(default)]
    pub delivery: Delivery,
    /// What keeps a document that is probably a mistake from being published.
    #[serde(default)]
    pub guard: Guard,
    /// How many earlier revisions are kept, each in objects of its own that no pod mounts; `status.history` lists them.
    #[serde(default = "three")]
    #[schemars(range(min = 0, max = 20))]
    pub revision_history_limit: i32,
    /// A revision to go back to and stay at: one of `status.history`, or the one that is published. The source is still read, and
    /// the newest revision is published once this is empty again.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[x_kube(validation = Rule::new("self.matches('^([0-9a-f]{12})?$')")
        .message("write a revision as status.revision and status.history show it: twelve hexadecimal digits"))]
    pub pin: String,
    /// Leave everything as it is: no fetch, no write.
    #[serde(default)]
    pub suspend: bool,
}

fn three() -> i32 {
    3
}

/// The CustomResourceDefinition as YAML.
pub fn crds() -> Result<String, serde_yaml::Error> {
    serde_yaml::to_string(&FeatureEnvironment::crd())
}
