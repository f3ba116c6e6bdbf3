//! Guard step (pure): accepts a compiled snapshot, or holds it back until a person approves its revision.

use super::{
    candidate::Candidate, desired::Desired, environment::Environment, observe::Observed, read::compile::Compiled,
};
use crate::{
    api::{Revision, names::annotation},
    controller::status::Failure,
    guard::{GuardBaseline, Violation},
};

/// Decision about a compiled snapshot.
#[derive(Debug)]
pub(super) enum Verdict {
    /// The snapshot may be published.
    Accepted(Compiled),
    /// The snapshot violates the guard, and waits for a person's approval.
    HeldBack(Compiled, Failure),
}

/// Accepts a compiled snapshot, or holds it back if it violates the guard.
pub(super) fn accept(
    environment: &Environment<'_>,
    observed: &Observed,
    desired: &Desired,
    candidate: &Candidate,
    compiled: Compiled,
) -> Verdict {
    let newest = candidate.newest();
    let newest_revision = newest.map(|newest| &newest.snapshot.revision);
    let published = observed.record.as_ref().map(|record| &record.document);
    let against = Against {
        known: [desired.revision(), newest_revision, observed.revision.as_ref()].into_iter().flatten().collect(),
        approved: environment.approved_revision(),
        baseline: newest.map(|newest| &newest.baseline).or(published),
        // The schema limits the value to 0 to 100.
        max_shrink_percent: usize::try_from(environment.spec.guard.max_shrink_percent).unwrap_or_default(),
    };
    match violation(&compiled, &against) {
        None => Verdict::Accepted(compiled),
        Some(violation) => {
            let failure = failure(environment, &violation, &compiled.snapshot.revision);
            Verdict::HeldBack(compiled, failure)
        }
    }
}

/// State that a compiled snapshot is compared with.
#[derive(Debug)]
struct Against<'a> {
    /// Revisions that are published, desired or accepted already.
    known: Vec<&'a Revision>,
    /// Revision that a person approved.
    approved: Option<&'a str>,
    /// Summary of the document that was accepted last.
    baseline: Option<&'a GuardBaseline>,
    /// Largest share that a document may lose, in percent.
    max_shrink_percent: usize,
}

/// Checks a compiled snapshot against the guard. Returns the violation, if any.
fn violation(compiled: &Compiled, against: &Against<'_>) -> Option<Violation> {
    let revision = &compiled.snapshot.revision;
    if against.known.contains(&revision) || against.approved == Some(revision.as_str()) {
        return None;
    }
    compiled.baseline.violation(against.baseline?, against.max_shrink_percent)
}

/// Describes a violation, with the command that approves the revision.
fn failure(environment: &Environment<'_>, violation: &Violation, revision: &Revision) -> Failure {
    let (namespace, name, approve) = (environment.namespace(), &environment.name.name, annotation::CONFIRM);
    let message = format!(
        "held back: {violation}. To publish the document all the same: kubectl -n {namespace} annotate fenv {name} --overwrite {approve}={revision}"
    );
    Failure { reason: violation.reason(), message }
}
