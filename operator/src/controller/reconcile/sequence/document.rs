//! Fetch, compile and guard steps: reads the document, and stores its snapshot, accepted or held back.

use std::sync::Arc;

use crate::{
    controller::{
        reconcile::{
            Context,
            accept::{Verdict, accept},
            environment::Environment,
            error::Error,
            memory::reserve,
            observe::Observed,
            publication::restore::run_and_restore,
            read::{
                KnownState, ReadOutcome,
                compile::CompiledDocument,
                source_state::{SourceChange, Timing},
            },
            state::EnvironmentState,
        },
        status::{Failure, FetchOutcome},
    },
    memory::Memory,
};

/// Reads the source if a fetch is due. The published objects are kept in place meanwhile.
pub(super) async fn read(
    environment: &Environment<'_>,
    context: &Context,
    observed: &Observed,
    state: &mut EnvironmentState,
) -> Result<ReadOutcome, Error> {
    let EnvironmentState { source, requests, candidate, desired, reported, .. } = state;
    let has_newest = candidate.newest().is_some();
    // A pinned snapshot may have taken the memory of the newest one, which is not published before an edit of the spec.
    let is_pinned = desired.revision().is_some_and(|revision| *revision == *environment.spec.pin);
    let is_elsewhere =
        candidate.pending_revision().is_some() || desired.snapshot.is_some() || observed.revision.is_some();
    let known = KnownState {
        status: reported.status(environment),
        has_snapshot: has_newest || is_pinned,
        is_lost: !has_newest && !is_elsewhere,
    };
    let triggers = context.states.take_triggers(&environment.name);
    let reading = context.reader.read_if_due(environment, triggers, known, source, requests);
    run_and_restore(reading, environment, &context.publisher, &observed.destination, desired).await
}

/// Stores a compiled document, accepted or held back. Returns the outcome of the fetch for the report.
///
/// # Errors
/// The namespace has used up its share of memory. The previous snapshot stays in use.
pub(super) fn store(
    environment: &Environment<'_>,
    memory: &Arc<Memory>,
    observed: &Observed,
    state: &mut EnvironmentState,
    read: ReadOutcome,
) -> Result<FetchOutcome, Error> {
    let CompiledDocument { mut compiled, version, provenance } = match read {
        ReadOutcome::NotRun => return Ok(FetchOutcome::NotRun),
        ReadOutcome::Unchanged => return Ok(FetchOutcome::Done),
        ReadOutcome::Compiled(document) => *document,
    };
    let record_bytes = state.desired.record_bytes(observed);
    reserve(memory, environment.namespace(), &mut compiled.snapshot, record_bytes, || state.release_snapshots())?;
    let timing = Timing::of(environment.spec.refresh.interval.get());
    state.source.apply(SourceChange::Compiled { version, provenance }, timing);
    match accept(environment, observed, &state.desired, &state.candidate, compiled) {
        Verdict::Accepted(compiled) => state.candidate.accept(compiled, environment.spec),
        Verdict::HeldBack(compiled, failure) => {
            if state.candidate.hold_back(compiled, failure.clone()) {
                let (namespace, environment) = (environment.namespace(), &environment.name.name);
                let Failure { reason, message } = failure;
                tracing::warn!(namespace, environment, %reason, message, "the document is not published");
            }
        }
    }
    Ok(FetchOutcome::Done)
}

/// Logs a failed fetch or compilation, and schedules the next attempt. Returns its outcome for the report. The previous
/// snapshot stays in use.
pub(super) fn failed_fetch(environment: &Environment<'_>, state: &mut EnvironmentState, error: &Error) -> FetchOutcome {
    // Without a document, the source said nothing new about the last one, so what is known of it stays.
    if error.is_of_document() {
        state.candidate.not_compiled(error.to_failure());
    }
    state.source.apply(SourceChange::Failed(error), Timing::of(environment.spec.refresh.interval.get()));
    error.log(environment, &state.reported);
    error.to_fetch()
}
