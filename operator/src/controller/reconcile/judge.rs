//! Guard check between compile and publish: a compiled snapshot is accepted, or held back until a person approves it.

use std::sync::Arc;

use kube::ResourceExt;

use super::memory::{Candidate, Withheld};
use super::{memory::Memory, turn::Turn};
use crate::{api::names::annotation, compile::guard::Objection, controller::report::Failure, publish::Owner};

impl Turn<'_> {
    /// Accepts the newest snapshot, or holds it back if it violates the guard.
    pub(super) fn judge(&self, owner: &Owner, memory: &mut Memory, candidate: Candidate) {
        memory.uncompiled = None;
        memory.failures = 0;
        let Some(objection) = self.objection(owner, memory, &candidate) else {
            return self.accept(memory, candidate);
        };
        let failure = self.failure(&objection, &candidate.snapshot.revision);
        if memory.withheld.as_ref().is_none_or(|withheld| withheld.failure != failure) {
            let (namespace, environment, reason) = (&self.namespace, &self.name, failure.reason);
            tracing::warn!(namespace, environment, reason, message = failure.message, "held back");
        }
        memory.withheld = Some(Withheld { candidate, failure });
    }

    /// Accepts the held-back snapshot once the annotation approves its revision.
    pub(super) fn confirm(&self, memory: &mut Memory) {
        if let Some(confirmed) = memory.withheld.take_if(|withheld| self.is_confirmed(withheld.revision())) {
            self.accept(memory, confirmed.candidate);
        }
    }

    fn objection(&self, owner: &Owner, memory: &Memory, candidate: &Candidate) -> Option<Objection> {
        let revision = &candidate.snapshot.revision;
        let at_hand = memory.carried_snapshot().into_iter().chain(memory.newest.clone());
        let mut known = at_hand.map(|snapshot| snapshot.revision.clone()).chain(self.context.publisher.revision(owner));
        if known.any(|known| known == *revision) || self.is_confirmed(revision) {
            return None;
        }
        let before = match &memory.outline {
            Some(outline) => Some(outline.clone()),
            None => self.context.publisher.record(owner).map(|record| record.document),
        };
        // The schema limits the value to 0 to 100.
        let percent = usize::try_from(self.spec.guard.max_shrink_percent).unwrap_or_default();
        candidate.outline.objection(&before?, percent)
    }

    fn accept(&self, memory: &mut Memory, candidate: Candidate) {
        let Candidate { snapshot, contents, outline } = candidate;
        memory.withheld = None;
        memory.contents = Some(contents);
        memory.reported = None;
        memory.outline = Some(outline);
        memory.newest = Some(Arc::new(snapshot));
    }

    fn is_confirmed(&self, revision: &str) -> bool {
        self.environment.annotations().get(annotation::CONFIRM).map(String::as_str) == Some(revision)
    }

    fn failure(&self, objection: &Objection, revision: &str) -> Failure {
        let (namespace, name, confirm) = (&self.namespace, &self.name, annotation::CONFIRM);
        let message = format!(
            "held back: {objection}. If it is meant so: kubectl -n {namespace} annotate fenv {name} --overwrite {confirm}={revision}"
        );
        Failure { reason: objection.reason(), message }
    }
}
