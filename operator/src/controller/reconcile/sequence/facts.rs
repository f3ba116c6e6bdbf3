//! Collects the facts of one reconciliation, from which the report derives the status. Pure.

use crate::{
    api::ObjectKind,
    controller::{
        reconcile::{environment::Environment, observe::Observed, read::refresh, schedule, state::EnvironmentState},
        status::{Facts, FetchOutcome, TaskStates, WorkOutcome},
    },
};

/// Collects what the steps and the tasks returned. Without `observed`, no step ran.
pub(super) fn facts(
    environment: &Environment<'_>,
    state: &EnvironmentState,
    observed: Option<&Observed>,
    work: WorkOutcome,
    tasks: TaskStates,
    unfinished: Option<ObjectKind>,
) -> Facts {
    let published = work.revision.as_ref();
    let record = observed.and_then(|observed| state.desired.published(observed, published));
    Facts {
        generation: environment.generation(),
        suspended: environment.spec.suspend,
        refreshed: refresh::requested(environment).filter(|_| !matches!(work.fetch, FetchOutcome::NotRun)),
        unfinished,
        published_at: record.map(|record| record.published_at.clone()),
        changes: record.and_then(|record| record.changes.clone()),
        only_in: observed.and_then(|observed| observed.only_in),
        history: observed.map(|observed| state.desired.history(observed, published)).unwrap_or_default(),
        held: state.candidate.pending_revision().cloned(),
        core_bytes: core_bytes(state).and_then(|bytes| i64::try_from(bytes).ok()),
        stale_after: schedule::stale_after(environment.spec.refresh.interval.get()),
        work,
        tasks,
    }
}

/// Returns the size in bytes of the largest core: of the snapshots that are published, accepted, held back or withheld.
fn core_bytes(state: &EnvironmentState) -> Option<usize> {
    let desired = state.desired.snapshot.as_ref().map(|desired| desired.snapshot.core_bytes());
    desired.max(state.candidate.core_bytes()).max(state.room.withheld_bytes())
}
