//! Facts of one reconciliation, from which the status follows.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::api::{
    Changes, Delivered, Finding, IdleFlags, ObjectKind, PastRevision, Pods, Reason, Revision, names::Format,
};

/// Outcome of one reconciliation.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Generation of the spec that was reconciled.
    pub generation: Option<i64>,
    /// True if `spec.suspend` is set.
    pub suspended: bool,
    /// Outcome of the steps from fetch to publication.
    pub work: WorkOutcome,
    /// States of the tasks that run beside the reconciliations.
    pub tasks: TaskStates,
    /// Request for a fetch that this reconciliation served.
    pub refreshed: Option<String>,
    /// Kind of objects whose publication is not complete.
    pub unfinished: Option<ObjectKind>,
    /// Time at which the published revision was published first, if known.
    pub published_at: Option<Time>,
    /// Flags that it changed, if known.
    pub changes: Option<Changes>,
    /// Earlier format version in which a snapshot is published, if none is published in today's format.
    pub only_in: Option<Format>,
    /// Earlier revisions that are kept.
    pub history: Vec<PastRevision>,
    /// Revision that is held back.
    pub held: Option<Revision>,
    /// Size in bytes of the largest core that is published, accepted, held back or withheld. `None` if none is known.
    pub core_bytes: Option<i64>,
    /// Time for which a source may fail before the published snapshot is reported as stale.
    pub stale_after: Duration,
}

/// Outcome of the steps from fetch to publication.
#[derive(Clone, Debug)]
pub struct WorkOutcome {
    /// Outcome of the fetch.
    pub fetch: FetchOutcome,
    /// Outcome of `spec.pin`.
    pub pin: Pin,
    /// Outcome of the publication.
    pub publication: Publication,
    /// Revision that is published afterwards.
    pub revision: Option<Revision>,
}

/// States of the tasks that run beside the reconciliations. `None` if there is no such task.
#[derive(Clone, Debug, Default)]
pub struct TaskStates {
    /// State of the reception of webhooks.
    pub webhook: Option<String>,
    /// Pods by the revision that they serve. `None` if no pod was asked yet.
    pub pods: Option<Pods>,
    /// State of the source's stream of changes.
    pub realtime: Option<String>,
    /// State of the collection of flag uses.
    pub analytics: Option<String>,
    /// Flags without uses.
    pub idle_flags: Option<IdleFlags>,
}

/// A failed step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Reason, as in conditions and Events.
    pub reason: Reason,
    /// Message: the problem and the remedy.
    pub message: String,
}

/// Outcome of a fetch.
#[derive(Clone, Debug)]
pub enum FetchOutcome {
    /// No fetch was due, or it is postponed.
    NotRun,
    /// The fetch succeeded.
    Done,
    /// The spec, or an object that it refers to, cannot be used.
    NotAccepted(Failure),
    /// The fetch failed.
    Failed(Failure),
}

/// Outcome of `spec.pin`.
#[derive(Clone, Debug)]
pub enum Pin {
    /// `spec.pin` is empty.
    None,
    /// The pinned revision is published.
    Published {
        /// Revision that would be published without the pin, if it is another one.
        newest: Option<Revision>,
    },
    /// The pinned revision is not kept.
    Unknown(Failure),
}

/// Outcome of a publication.
#[derive(Clone, Debug)]
pub enum Publication {
    /// Nothing was to be published.
    None,
    /// The desired snapshot is published.
    Done {
        /// Names of the objects that hold it.
        objects: Vec<String>,
        /// Delivery of the snapshot.
        delivered: Delivered,
        /// Contents of the snapshot. `None` if they cannot be read, or if the status has them already.
        contents: Option<Contents>,
    },
    /// The document could not be compiled, or the snapshot not be published.
    Failed(Failure),
}

/// Contents of a snapshot.
#[derive(Clone, Debug, Default)]
pub struct Contents {
    /// Number of features.
    pub features: i64,
    /// Number of segments.
    pub segments: i64,
    /// Number of identities with overrides.
    pub overrides: i64,
    /// Size of all files in bytes.
    pub bytes: i64,
    /// Time of the document's last change, as the source reports it.
    pub updated_at: Option<String>,
    /// The first parts of the document that work less well than their authors may expect.
    pub findings: Vec<Finding>,
    /// Number of such parts.
    pub finding_count: i64,
}

impl Contents {
    /// Adds a finding in front of the others, where the status lists it in any case.
    pub fn add(&mut self, finding: Finding) {
        self.findings.insert(0, finding);
        self.finding_count += 1;
    }
}
