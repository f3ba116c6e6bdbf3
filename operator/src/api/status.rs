use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use super::delivery::Delivered;

/// What is published, and how it went. Nothing in it changes while nothing happens.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct FeatureEnvironmentStatus {
    /// The generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Accepted, Fetched, Published, Ready and Stale.
    #[serde(default)]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// The revision that is published.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// The revision that is held back; the condition Published says why. `kubectl annotate fenv NAME --overwrite
    /// remora.dev/confirm=REVISION` lets it, and no other, be published.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_revision: Option<String>,
    /// Earlier revisions that `spec.pin` can go back to, the latest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<PastRevision>,
    /// How many features it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub features: Option<i64>,
    /// How many segments it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segments: Option<i64>,
    /// How many identities have overrides in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overrides: Option<i64>,
    /// The bytes of it, in all objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<i64>,
    /// How it is delivered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery: Option<Delivered>,
    /// The objects that carry it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub objects: Vec<String>,
    /// When the document that it was made of was changed, as the source says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_updated_at: Option<String>,
    /// How it stands with the source's stream of changes, where `spec.source.flagsmith.realtime` asks for one: connecting,
    /// connected, or why the source is only polled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub realtime: Option<String>,
    /// The pods that serve the environment, as they were when their sidecars were asked last: soon after each publication,
    /// and now and then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods: Option<Pods>,
    /// What the document's owners may want to repair: the first few of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Finding>,
    /// How many findings there are, also those that are not listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finding_count: Option<i64>,
}

/// Who serves what is published.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Pods {
    /// The revision that the other numbers are about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// Injected pods.
    pub total: i64,
    /// How many of them were asked, if not all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<i64>,
    /// Pods that serve the revision.
    pub current: i64,
    /// Pods that serve another one. They were nudged again, but for those that mount objects in the format of another version.
    pub behind: i64,
    /// Pods whose sidecar runs and did not answer.
    pub silent: i64,
    /// What is wrong with those that did not follow in time, and what to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// A revision that was published and is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct PastRevision {
    /// The revision.
    pub revision: String,
    /// Since when it was published.
    pub published_at: Time,
}

/// Something in the document that works less well than its author may think.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// What it is about.
    pub subject: String,
    /// What is wrong, and what to do.
    pub message: String,
}
