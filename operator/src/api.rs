//! The FeatureEnvironment resource.
//!
//! The schema checks everything it can, and its messages name the value to write instead. The descriptions are read with
//! `kubectl explain`: a structural schema has no descriptions for enum values, so each field describes its own.

#![allow(unreachable_pub, reason = "KubeSchema copies each struct, with its visibility, into a function")]

mod changes;
mod delivery;
mod duration;
mod guard;
mod idle;
pub(crate) mod message;
pub mod names;
mod namespaced_name;
mod prune;
mod reason;
mod refresh;
pub mod resource_version;
mod revision;
mod serve;
mod source;
mod status;

use kube::{CustomResource, CustomResourceExt, KubeSchema};
use serde::{Deserialize, Serialize};

pub use self::{
    changes::Changes,
    delivery::{Delivered, Delivery, ObjectKind},
    duration::{InvalidPeriod, Period},
    guard::Guard,
    idle::{IdleFlag, IdleFlags},
    namespaced_name::{NamespacedName, Uid},
    prune::{FeatureRules, Keep, PruneRules},
    reason::Reason,
    refresh::Refresh,
    revision::Revision,
    serve::{BooleanFlags, DisabledFlags, EnvironmentFlags, ObjectFlags, Ofrep, Serve},
    source::{
        CaBundleRef, Document, Flagsmith, ObjectKeyRef, PlannedSource, Realtime, SecretKeyRef, SigningSecretRef,
        Source, Webhook,
    },
    status::{FeatureEnvironmentStatus, Finding, PastRevision, Pods},
};

/// Desired state of a feature environment: where its document comes from, what is served, and how it reaches pods.
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
    printcolumn(name = "Asked", type_ = "integer", priority = 1, json_path = ".status.pods.asked"),
    printcolumn(name = "Current", type_ = "integer", priority = 1, json_path = ".status.pods.current"),
    printcolumn(name = "Realtime", type_ = "string", priority = 1, json_path = ".status.realtime"),
    printcolumn(name = "Message", type_ = "string", priority = 1, json_path = r#".status.conditions[?(@.type=="Ready")].message"#)
)]
#[serde(rename_all = "camelCase")]
pub struct FeatureEnvironmentSpec {
    /// Source of the environment document. Set exactly one member: `flagsmith` or `document`.
    pub source: Source,
    /// Pace of the operator's fetches from the source, and the time that one fetch may take. A new value of the annotation
    /// `remora.dev/refresh` requests a fetch now.
    #[serde(default)]
    pub refresh: Refresh,
    /// Parts of the document that the operator leaves out of the snapshot. Default: none.
    #[serde(default)]
    pub prune: PruneRules,
    /// Answers of the sidecar where Flagsmith's API, its edge proxy and OFREP leave a choice.
    #[serde(default)]
    pub serve: Serve,
    /// Delivery of the snapshot to pods.
    #[serde(default)]
    pub delivery: Delivery,
    /// Checks that hold back a document which is probably a mistake.
    #[serde(default)]
    pub guard: Guard,
    /// Number of earlier revisions to keep, 0 to 20. `status.history` lists them, and `spec.pin` can go back to them. Each
    /// revision takes as many ConfigMaps (or Secrets) as the published one; no pod mounts them. Default: 3.
    #[serde(default = "three")]
    #[schemars(range(min = 0, max = 20))]
    pub revision_history_limit: i32,
    /// Revision to publish in place of the newest one: the published revision, or one of `status.history`, for example
    /// `3f9c2a7b10de`. The operator goes on polling the source, and publishes the newest revision as soon as this field is
    /// empty again. Default: empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[x_kube(validation = Rule::new("self.matches('^([0-9a-f]{12})?$')")
        .message("write a revision as status.revision and status.history show it: twelve hexadecimal digits"))]
    pub pin: String,
    /// Stops all work on this environment: the operator fetches nothing and writes nothing but this object's status. Pods go
    /// on with the published snapshot. Default: false.
    #[serde(default)]
    pub suspend: bool,
}

fn three() -> i32 {
    3
}

/// The CustomResourceDefinition as YAML, annotated with the version of Remora that it belongs to.
pub fn crds() -> Result<String, serde_yaml::Error> {
    let mut definition = FeatureEnvironment::crd();
    let version = (names::annotation::VERSION.to_owned(), env!("CARGO_PKG_VERSION").to_owned());
    definition.metadata.annotations.get_or_insert_default().extend([version]);
    serde_yaml::to_string(&definition)
}
