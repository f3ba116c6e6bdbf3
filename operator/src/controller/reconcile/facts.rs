//! Facts of one reconciliation, from which the report derives the status. Pure.

use super::{
    environment::Environment,
    observe::Observed,
    outcome::{Upkeep, WorkOutcome},
    refresh, schedule,
    state::EnvironmentState,
};
use crate::{
    api::ObjectKind,
    controller::report::{Facts, FetchOutcome},
};

/// Collects what the steps and the upkeep returned. Without `observed`, no step ran.
pub(super) fn facts(
    environment: &Environment<'_>,
    state: &EnvironmentState,
    observed: Option<&Observed>,
    outcome: WorkOutcome,
    upkeep: Upkeep,
    unfinished: Option<ObjectKind>,
) -> Facts {
    let revision = outcome.published(observed).map(str::to_owned);
    let WorkOutcome { fetch, pin, publication, revision: _ } = outcome;
    let Upkeep { webhook, pods, realtime, analytics, idle_flags } = upkeep;
    let history = observed.map(|observed| state.desired.history(observed, revision.as_deref())).unwrap_or_default();
    let record = observed.and_then(|observed| state.desired.published(observed, revision.as_deref()));
    Facts {
        unfinished,
        published_at: record.map(|record| record.published_at.clone()),
        changes: record.and_then(|record| record.changes.clone()),
        generation: environment.generation(),
        suspended: environment.spec.suspend,
        only_in: observed.and_then(|observed| observed.only_in),
        held: state.candidate.pending_revision().map(str::to_owned),
        core_bytes: core_bytes(state).and_then(|bytes| i64::try_from(bytes).ok()),
        pods,
        webhook,
        analytics,
        idle_flags,
        realtime,
        stale_after: schedule::stale_after(environment.spec.refresh.interval.get()),
        refreshed: refresh::requested(environment).filter(|_| !matches!(fetch, FetchOutcome::NotRun)),
        fetch,
        pin,
        publication,
        history,
        revision,
    }
}

/// Returns the size in bytes of the largest core: of the snapshots that are published, accepted, held back or withheld.
fn core_bytes(state: &EnvironmentState) -> Option<usize> {
    let desired = state.desired.snapshot.as_ref().map(|desired| desired.snapshot.core_bytes());
    desired.max(state.candidate.core_bytes()).max(state.room.withheld_bytes())
}
