//! State of the last document: the accepted snapshot, or the one that waits until a person approves its revision.

use std::sync::Arc;

use super::read::compile::Compiled;
use crate::{
    api::{FeatureEnvironmentSpec, PruneRules, Revision, Serve, Source},
    controller::status::{Contents, Failure},
    guard::GuardBaseline,
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
    pub(super) baseline: GuardBaseline,
    selection: Selection,
}

/// Fields of the spec that decide which snapshot a source gives. An edit of another field excludes none: the guard checks
/// no accepted revision again.
#[derive(Debug, PartialEq, Eq)]
struct Selection {
    source: Source,
    prune: PruneRules,
    serve: Serve,
}

impl Selection {
    fn of(spec: &FeatureEnvironmentSpec) -> Self {
        let FeatureEnvironmentSpec { source, prune, serve, .. } = spec.clone();
        Self { source, prune, serve }
    }
}

impl Accepted {
    /// True if no edit since then may exclude the snapshot.
    pub(super) fn is_of(&self, spec: &FeatureEnvironmentSpec) -> bool {
        self.selection == Selection::of(spec)
    }
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
    pub(super) fn pending_revision(&self) -> Option<&Revision> {
        match self.blocked.as_ref()? {
            Blocked::Pending(compiled, _) => Some(&compiled.snapshot.revision),
            Blocked::Uncompiled(_) => None,
        }
    }

    /// Drops the snapshots, for lack of memory.
    pub(super) fn release(&mut self) {
        self.newest = None;
        self.blocked = None;
    }

    /// Forgets what belongs to an earlier generation of the spec. The newest snapshot stays until it is replaced.
    pub(super) fn start_generation(&mut self) {
        self.blocked = None;
    }

    /// Records that the last document cannot be compiled.
    pub(super) fn not_compiled(&mut self, failure: Failure) {
        self.blocked = Some(Blocked::Uncompiled(failure));
    }

    /// Makes a snapshot the newest one, which was compiled for this spec.
    pub(super) fn accept(&mut self, compiled: Compiled, spec: &FeatureEnvironmentSpec) {
        let Compiled { snapshot, contents, baseline } = compiled;
        let selection = Selection::of(spec);
        self.newest = Some(Accepted { snapshot: Arc::new(snapshot), contents, baseline, selection });
        self.blocked = None;
    }

    /// Holds a compiled snapshot back. Returns false if the same failure was known already.
    pub(super) fn hold_back(&mut self, compiled: Compiled, failure: Failure) -> bool {
        let is_known = matches!(&self.blocked, Some(Blocked::Pending(_, known)) if *known == failure);
        self.blocked = Some(Blocked::Pending(Box::new(compiled), failure));
        !is_known
    }

    /// Accepts the snapshot that waits for approval, if `approved` is its revision.
    pub(super) fn approve(&mut self, approved: Option<&str>, spec: &FeatureEnvironmentSpec) {
        if approved.is_none() || self.pending_revision().map(Revision::as_str) != approved {
            return;
        }
        if let Some(Blocked::Pending(compiled, _)) = self.blocked.take() {
            self.accept(*compiled, spec);
        }
    }
}
