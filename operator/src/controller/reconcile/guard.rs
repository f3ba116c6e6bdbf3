//! Guard step (pure): accepts a compiled snapshot, or holds it back until a person approves its revision.

use std::sync::Arc;

use super::{compile::Compiled, environment::Environment};
use crate::{
    api::names::annotation,
    compile::guard::{DocumentSummary, Violation},
    controller::report::{Contents, Failure},
    publish::Snapshot,
};

/// State of the last document between reconciliations.
#[derive(Debug, Default)]
pub(super) struct Candidate {
    newest: Option<Accepted>,
    blocked: Option<Blocked>,
}

/// Snapshot that the guard accepted.
#[derive(Debug)]
pub(super) struct Accepted {
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) contents: Contents,
    pub(super) summary: DocumentSummary,
}

/// Reason why the last document has no accepted snapshot.
#[derive(Debug)]
enum Blocked {
    /// The document cannot be compiled.
    Uncompiled(Failure),
    /// The snapshot waits for a person's approval.
    Pending(Box<Compiled>, Failure),
}

impl Candidate {
    /// Returns the last snapshot that was accepted.
    pub(super) fn newest(&self) -> Option<&Accepted> {
        self.newest.as_ref()
    }

    /// Returns the failure that keeps the last document from being published.
    pub(super) fn failure(&self) -> Option<&Failure> {
        match self.blocked.as_ref()? {
            Blocked::Uncompiled(failure) | Blocked::Pending(_, failure) => Some(failure),
        }
    }

    /// Returns the size in bytes of the larger core of the last documents, accepted or not.
    pub(super) fn core_bytes(&self) -> Option<usize> {
        let pending = match &self.blocked {
            Some(Blocked::Pending(compiled, _)) => Some(compiled.snapshot.core_bytes()),
            Some(Blocked::Uncompiled(_)) | None => None,
        };
        pending.max(self.newest.as_ref().map(|newest| newest.snapshot.core_bytes()))
    }

    /// Returns the revision that waits for approval.
    pub(super) fn pending_revision(&self) -> Option<&str> {
        match self.blocked.as_ref()? {
            Blocked::Pending(compiled, _) => Some(&compiled.snapshot.revision),
            Blocked::Uncompiled(_) => None,
        }
    }

    /// Forgets what belongs to an earlier generation of the spec. The newest snapshot stays until it is replaced.
    pub(super) fn start_generation(&mut self) {
        self.blocked = None;
    }

    /// Records that the last document cannot be compiled.
    pub(super) fn not_compiled(&mut self, failure: Failure) {
        self.blocked = Some(Blocked::Uncompiled(failure));
    }

    /// Makes a compiled snapshot the newest one.
    pub(super) fn accept(&mut self, compiled: Compiled) {
        let Compiled { snapshot, contents, summary } = compiled;
        self.newest = Some(Accepted { snapshot: Arc::new(snapshot), contents, summary });
        self.blocked = None;
    }

    /// Holds a compiled snapshot back. Returns false if the same failure was known already.
    pub(super) fn hold_back(&mut self, compiled: Compiled, failure: Failure) -> bool {
        let is_known = matches!(&self.blocked, Some(Blocked::Pending(_, known)) if *known == failure);
        self.blocked = Some(Blocked::Pending(Box::new(compiled), failure));
        !is_known
    }

    /// Accepts the snapshot that waits for approval, if `approved` is its revision.
    pub(super) fn approve(&mut self, approved: Option<&str>) {
        if approved.is_none() || self.pending_revision() != approved {
            return;
        }
        if let Some(Blocked::Pending(compiled, _)) = self.blocked.take() {
            self.accept(*compiled);
        }
    }
}

/// State that a compiled snapshot is compared with.
#[derive(Debug)]
pub(super) struct Against<'a> {
    /// Revisions that are published, desired or accepted already.
    pub(super) known: Vec<&'a str>,
    /// Revision that a person approved.
    pub(super) approved: Option<&'a str>,
    /// Summary of the document that was accepted last.
    pub(super) summary: Option<&'a DocumentSummary>,
    /// Largest share that a document may lose, in percent.
    pub(super) max_shrink_percent: usize,
}

/// Checks a compiled snapshot against the guard. Returns the violation, if any.
pub(super) fn check(compiled: &Compiled, against: &Against<'_>) -> Option<Violation> {
    let revision = compiled.snapshot.revision.as_str();
    if against.known.contains(&revision) || against.approved == Some(revision) {
        return None;
    }
    compiled.summary.violation(against.summary?, against.max_shrink_percent)
}

/// Describes a violation, with the command that approves the revision.
pub(super) fn failure(environment: &Environment<'_>, violation: &Violation, revision: &str) -> Failure {
    let (namespace, name, approve) = (&environment.namespace, &environment.name, annotation::CONFIRM);
    let message = format!(
        "held back: {violation}. To publish the document all the same: kubectl -n {namespace} annotate fenv {name} --overwrite {approve}={revision}"
    );
    Failure { reason: violation.reason(), message }
}
