//! Replacement of the desired snapshot by the chosen one: the record that is published with it, and the revisions that it
//! keeps. Pure.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::{
    api::Changes,
    controller::reconcile::{
        desired::{Deletions, DesiredSnapshot, PublishState},
        observe::Observed,
    },
    guard::GuardBaseline,
    publish::{ArchivedRevision, Evicted, Record, Snapshot},
};

/// Chosen snapshot beside the desired one so far.
#[derive(Debug)]
pub(super) struct Replacement {
    chosen: Arc<Snapshot>,
    record: Option<Record>,
    /// True if the chosen revision is the desired one, or without one the published one.
    is_same: bool,
    state: PublishState,
    /// Desired snapshot so far, if it is published and another one.
    outgoing: Option<DesiredSnapshot>,
    /// Deletions of the copies of revisions that the record listed as dropped.
    deletions: Deletions,
}

/// Outcome of the copies of the outgoing snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Archiving {
    /// No snapshot leaves, or no earlier revisions are kept.
    NotWanted,
    /// All copies are written.
    Done,
    /// Some copies may exist, although their writes failed.
    Failed,
}

/// Revisions that the record keeps besides the chosen one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Retention<'a> {
    /// Number of earlier revisions in the history.
    pub(super) limit: usize,
    /// Revision that `spec.pin` names. Empty if it names none.
    pub(super) pin: &'a str,
    /// True if copies of the other kind may exist.
    pub(super) other_kind: bool,
}

impl Replacement {
    /// Compares the chosen snapshot with the `desired` one so far. `accepted` summarizes the document that was accepted
    /// last.
    pub(super) fn of(
        chosen: Arc<Snapshot>,
        desired: Option<DesiredSnapshot>,
        observed: &Observed,
        accepted: Option<&GuardBaseline>,
    ) -> Self {
        let Some(desired) = desired else {
            let is_same = observed.revision.as_ref() == Some(&chosen.revision);
            let record = next_record(observed.record.clone(), accepted, is_same, &chosen);
            let state = PublishState::of(is_same, None);
            return Self { chosen, record, is_same, state, outgoing: None, deletions: Deletions::Pending };
        };
        let is_same = desired.snapshot.revision == chosen.revision;
        Self {
            record: next_record(desired.record.clone(), accepted, is_same, &chosen),
            chosen,
            is_same,
            state: PublishState::of(is_same && desired.is_published(), desired.in_pods()),
            deletions: desired.deletions,
            outgoing: Some(desired).filter(|desired| !is_same && desired.is_published()),
        }
    }

    /// Returns the published snapshot whose flags the record compares with those of the chosen one. `None` if that is the
    /// published one again.
    pub(super) fn compared(&self) -> Option<&Arc<Snapshot>> {
        let replaced = match &self.state {
            PublishState::Unpublished { replaces, .. } if !self.is_same && self.record.is_some() => replaces.as_ref(),
            PublishState::Unpublished { .. } | PublishState::Published => None,
        };
        replaced.filter(|replaced| replaced.revision != self.chosen.revision)
    }

    /// Returns the snapshot that becomes an earlier revision.
    pub(super) fn outgoing(&self) -> Option<&Arc<Snapshot>> {
        self.outgoing.as_ref().filter(|_| self.record.is_some()).map(|outgoing| &outgoing.snapshot)
    }

    /// Returns the new desired snapshot, and the revisions that its record has no room for. `changes` are the flags that
    /// differ from those of the compared snapshot.
    pub(super) fn finish(
        self,
        changes: Option<Changes>,
        archiving: Archiving,
        kept: Retention<'_>,
    ) -> (DesiredSnapshot, Evicted) {
        let is_compared = self.compared().is_some();
        let Self { chosen, record, is_same, state, outgoing, deletions } = self;
        let Some(mut record) = record else {
            let deletions = if is_same { deletions } else { Deletions::Pending };
            return (DesiredSnapshot { snapshot: chosen, record: None, state, deletions }, Evicted::default());
        };
        if is_compared {
            record.changes = changes;
        }
        let needed = [kept.pin, chosen.revision.as_str()];
        let lost = outgoing.and_then(|outgoing| add_outgoing(&mut record, outgoing, archiving));
        let dropped: Vec<ArchivedRevision> = lost.into_iter().chain(record.trim(kept.limit, &needed)).collect();
        let is_rewritten = !is_same || !dropped.is_empty();
        // A record that lists deleted copies is not written again only to list them no more.
        if deletions == Deletions::Done && is_rewritten {
            record.dropped.clear();
        }
        record.dropped.splice(..0, dropped);
        if !(is_same || kept.other_kind) {
            record.archived_in_other_kind.clear();
        }
        let evicted = record.evict(&needed);
        let has_new_deletions = is_rewritten || !evicted.current.is_empty();
        let deletions = if has_new_deletions { Deletions::Pending } else { deletions };
        (DesiredSnapshot { snapshot: chosen, record: Some(record), state, deletions }, evicted)
    }
}

/// Adds the outgoing snapshot to the history of `record` if it is archived. Returns its entry if some of its copies may
/// exist without an entry in the history.
fn add_outgoing(record: &mut Record, outgoing: DesiredSnapshot, archiving: Archiving) -> Option<ArchivedRevision> {
    let (since, changes) = match outgoing.record {
        Some(record) => (record.published_at, record.changes),
        None => (record.published_at.clone(), None),
    };
    let past = ArchivedRevision::of(&outgoing.snapshot, since, changes);
    let is_listed = |known: &ArchivedRevision| known.revision == past.revision;
    match archiving {
        Archiving::NotWanted => None,
        Archiving::Done => {
            record.history.retain(|known| !is_listed(known));
            record.history.insert(0, past);
            None
        }
        Archiving::Failed if record.history.iter().any(is_listed) => None,
        Archiving::Failed => Some(past),
    }
}

/// Builds the record of the chosen snapshot from the record `before`. `is_same` is true if the chosen revision is the
/// one of `before`; `accepted` summarizes the document that was accepted last. Dropped revisions stay in the record until
/// their copies are deleted: a process that ends before leaves them to the next one.
fn next_record(
    before: Option<Record>,
    accepted: Option<&GuardBaseline>,
    is_same: bool,
    chosen: &Snapshot,
) -> Option<Record> {
    let files = chosen.digests();
    match (before, accepted) {
        // The snapshot stays published since the same time, so the record is not written again only for a newer time.
        (Some(before), Some(accepted)) if is_same && !before.document.has_source_of(accepted) => {
            Some(Record { document: accepted.clone(), files, ..before })
        }
        (Some(before), _) if is_same => Some(Record { files, ..before }),
        (before, accepted) => {
            let (document, history, dropped, archived_in_other_kind) = match before {
                Some(Record { document, history, dropped, archived_in_other_kind, .. }) => {
                    (accepted.cloned().unwrap_or(document), history, dropped, archived_in_other_kind)
                }
                None => (accepted?.clone(), Vec::new(), Vec::new(), Vec::new()),
            };
            Some(Record {
                published_at: Time(this_second()),
                document,
                changes: None,
                history,
                dropped,
                archived_in_other_kind,
                files,
            })
        }
    }
}

/// Returns the current time in whole seconds, the precision in which the API server stores times.
fn this_second() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::Revision;
    use crate::{controller::reconcile::environment::Environment, publish::File};

    fn snapshot(revision: &str) -> Arc<Snapshot> {
        Arc::new(Snapshot::new(
            Revision::new(revision),
            vec![File::new("core".to_owned(), revision.as_bytes().to_vec())],
        ))
    }

    fn baseline() -> GuardBaseline {
        let summary = json!({"source": "s", "environment": "e", "features": 1, "segments": 0, "overrides": 0});
        serde_json::from_value(summary).unwrap()
    }

    /// Returns an environment of which nothing is published.
    fn observed() -> Observed {
        let object = serde_json::from_value(json!({
            "apiVersion": "remora.dev/v1alpha1", "kind": "FeatureEnvironment",
            "metadata": {"name": "storefront", "namespace": "shop", "uid": "uid-1"},
            "spec": {"source": {"document": {"configMapKeyRef": {"name": "flags", "key": "environment.json"}}}},
        }));
        let destination = Environment::new(&object.unwrap()).destination(None).unwrap();
        Observed { destination, revision: None, record: None, only_in: None }
    }

    const RETENTION: Retention<'static> = Retention { limit: 2, pin: "", other_kind: false };

    /// Replaces `desired` by a snapshot of this revision, as if its publication succeeded.
    fn publish(revision: &str, desired: Option<DesiredSnapshot>, archiving: Archiving) -> DesiredSnapshot {
        let replacement = Replacement::of(snapshot(revision), desired, &observed(), Some(&baseline()));
        let (next, _) = replacement.finish(None, archiving, RETENTION);
        DesiredSnapshot { state: PublishState::Published, ..next }
    }

    fn history(desired: &DesiredSnapshot) -> Vec<&str> {
        let record = desired.record.as_ref().unwrap();
        record.history.iter().map(|past| past.revision.as_str()).collect()
    }

    #[test]
    fn replaced_revision_is_first_in_history_and_oldest_is_dropped() {
        let mut desired = publish("a", None, Archiving::NotWanted);
        for revision in ["b", "c", "d"] {
            desired = publish(revision, Some(desired), Archiving::Done);
        }
        assert_eq!(history(&desired), ["c", "b"]);
        let record = desired.record.as_ref().unwrap();
        assert_eq!(record.dropped[0].revision.as_str(), "a");
        assert_eq!(desired.deletions, Deletions::Pending, "the copies of the dropped revision are still to be deleted");
    }

    #[test]
    fn revision_that_comes_back_is_in_history_once() {
        let mut desired = publish("a", None, Archiving::NotWanted);
        for revision in ["b", "a", "b"] {
            desired = publish(revision, Some(desired), Archiving::Done);
        }
        assert_eq!(history(&desired), ["a", "b"]);
    }

    #[test]
    fn copies_of_failed_archiving_are_listed_for_deletion() {
        let desired = publish("b", Some(publish("a", None, Archiving::NotWanted)), Archiving::Failed);
        assert!(history(&desired).is_empty());
        assert_eq!(desired.record.unwrap().dropped[0].revision.as_str(), "a");
    }

    #[test]
    fn snapshot_that_was_never_published_leaves_no_history() {
        let published = publish("a", None, Archiving::NotWanted);
        let replacement = Replacement::of(snapshot("b"), Some(published), &observed(), None);
        let (unpublished, _) = replacement.finish(None, Archiving::Done, RETENTION);
        assert!(!unpublished.is_published());
        let next = Replacement::of(snapshot("c"), Some(unpublished), &observed(), None);
        assert!(next.outgoing().is_none(), "pods never had b");
        assert_eq!(next.compared().map(|compared| compared.revision.as_str()), Some("a"), "pods have a");
    }

    #[test]
    fn published_revision_in_place_of_unpublished_one_is_compared_with_none() {
        let published = publish("a", None, Archiving::NotWanted);
        let (unpublished, _) = Replacement::of(snapshot("b"), Some(published), &observed(), Some(&baseline())).finish(
            None,
            Archiving::Done,
            RETENTION,
        );
        let again = Replacement::of(snapshot("a"), Some(unpublished), &observed(), Some(&baseline()));
        assert!(again.compared().is_none() && again.outgoing().is_none(), "pods have a");
        let (next, _) = again.finish(None, Archiving::NotWanted, RETENTION);
        assert_eq!(next.in_pods().map(|in_pods| in_pods.revision.as_str()), Some("a"));
    }

    #[test]
    fn same_revision_keeps_its_record() {
        let before = publish("a", None, Archiving::NotWanted);
        let record = before.record.clone();
        let again = Replacement::of(snapshot("a"), Some(before), &observed(), Some(&baseline()));
        assert!(again.outgoing().is_none() && again.compared().is_none());
        assert_eq!(again.finish(None, Archiving::NotWanted, RETENTION).0.record, record);
    }
}
