//! `status`: what the operator observed and did.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use super::{
    changes::Changes,
    delivery::{self, Delivered, ObjectKind},
    idle::IdleFlags,
    revision::Revision,
};

/// Observed state of the environment. The operator writes it only when something changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct FeatureEnvironmentStatus {
    /// Generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Conditions. `Accepted`: the spec and the objects that it names can be used. `Fetched`: the last fetch succeeded.
    /// `Published`: the document that was fetched last is published. `Ready`: a snapshot is published for new pods. `Stale`:
    /// the source has not confirmed the published document for ten refresh intervals, and at least a minute. Each has a
    /// reason, and a message that says what to do.
    #[serde(default)]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// Revision that is published: twelve hexadecimal digits that name its content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<Revision>,
    /// Time at which the revision was published.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published_at: Option<Time>,
    /// Flags that the published revision changed. Absent for the first revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes: Option<Changes>,
    /// Revision that is held back; the condition `Published` says why. `kubectl annotate fenv NAME --overwrite
    /// remora.dev/confirm=REVISION` publishes this revision, and no other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_revision: Option<Revision>,
    /// Earlier revisions that `spec.pin` can go back to, latest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<PastRevision>,
    /// Number of features in the published snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub features: Option<i64>,
    /// Number of segments in the published snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segments: Option<i64>,
    /// Number of identities with overrides in the published snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overrides: Option<i64>,
    /// Size of the published snapshot in bytes, over all objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<i64>,
    /// Size in bytes of the largest core (flags, segments and values) of three: the published one, the newest one, and one that
    /// is held back or waits for pods. The volume of a new pod has room for a core of twice this size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core_bytes: Option<i64>,
    /// Delivery of the published snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery: Option<Delivered>,
    /// Kind of the objects of a publication that has begun and is not complete: `Secret`, and never `ConfigMap`. The
    /// next controller process finds these Secrets by it, because the operator lists only ConfigMaps. Absent once the
    /// publication is complete, or once its objects are deleted because `spec.delivery.as` changed back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "delivery::kind")]
    pub unfinished: Option<ObjectKind>,
    /// Names of the objects that hold the published snapshot.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub objects: Vec<String>,
    /// Time of the last change of the published document, as the source reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_updated_at: Option<String>,
    /// Value of the annotation `remora.dev/refresh` whose request was served last, cut to 64 characters. The condition
    /// `Fetched` has the outcome. `kubectl annotate fenv NAME --overwrite remora.dev/refresh="$(date +%s)"` requests a fetch
    /// now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_refresh: Option<String>,
    /// State of the source's stream of changes: connecting, connected, or why the operator only polls. Absent without
    /// `spec.source.flagsmith.realtime`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub realtime: Option<String>,
    /// State of the reception of webhooks: receiving, or why the operator only polls. Absent without
    /// `spec.source.flagsmith.webhook`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<String>,
    /// State of the collection of flag uses: collecting, or why the counts do not reach the source. Absent without
    /// `spec.source.flagsmith.sendAnalytics`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub analytics: Option<String>,
    /// Flags that no application used lately, of the uses that the operator collects. Absent without
    /// `spec.source.flagsmith.sendAnalytics`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_flags: Option<IdleFlags>,
    /// Pods that serve the environment, as observed when the operator asked their sidecars last: soon after each publication,
    /// and every few minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods: Option<Pods>,
    /// Findings: parts of the document that work less well than their authors may expect. The first few are listed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Finding>,
    /// Number of findings, including those that are not listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finding_count: Option<i64>,
}

impl FeatureEnvironmentStatus {
    /// Returns the condition of this type.
    #[must_use]
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.type_ == kind)
    }
}

/// Counts of pods by what they serve.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Pods {
    /// Revision that the counts are about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<Revision>,
    /// Number of injected pods.
    pub total: i64,
    /// Number of pods that the controller asked: 500 at most. The following numbers are about these pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<i64>,
    /// Number of pods that serve the revision.
    pub current: i64,
    /// Number of pods that serve another revision. The operator has notified them again, except pods that mount objects of
    /// another format version.
    pub behind: i64,
    /// Number of pods whose sidecar runs and did not answer the operator.
    pub silent: i64,
    /// Why some pods do not serve the revision in time, and what to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// An earlier revision that is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct PastRevision {
    /// The revision: twelve hexadecimal digits.
    pub revision: Revision,
    /// Time at which the revision was published.
    pub published_at: Time,
    /// Flags that the revision changed when it was published. Absent for the first revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes: Option<Changes>,
}

/// A part of the document that works less well than its author may expect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// The segment, feature or identity that the finding is about.
    pub subject: String,
    /// The problem and its remedy.
    pub message: String,
}
