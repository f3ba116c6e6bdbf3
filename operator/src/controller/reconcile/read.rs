//! Fetch, compile and guard steps: reads the source if a fetch is due.

use tokio::time::Instant;

use super::{
    Context,
    compile::compile,
    environment::Environment,
    error::Error,
    fetch::{FetchStep, fetch, record_read},
    guard, memory,
    observe::Observed,
    refresh, restore,
    state::EnvironmentState,
};
use crate::{
    compiler,
    controller::{
        metrics::{Outcome, Step},
        report::FetchOutcome,
    },
    source::trigger::Trigger,
};

/// Number of fetches in one reconciliation if the environment changes between two pages of its document.
const FETCHES: usize = 3;

/// Fetches and compiles the document if a fetch is due, and checks the result against the guard.
pub(super) async fn read_if_due(
    environment: &Environment<'_>,
    context: &Context,
    observed: &Observed,
    state: &mut EnvironmentState,
) -> Result<FetchOutcome, Error> {
    let mut trigger = context.states.take_trigger(&environment.namespace, &environment.name);
    if refresh::is_pending(environment, state.reported.status(environment)) {
        // The fetch that serves the request may be a later one, if this one has to wait for room.
        state.source.forget_for_request();
        if state.requests.start(Instant::now()) {
            trigger = Some(Trigger::Requested);
        }
    }
    state.source.apply_trigger(trigger, Instant::now());
    let is_lost = state.candidate.newest().is_none()
        && state.candidate.pending_revision().is_none()
        && state.desired.snapshot.is_none()
        && observed.revision.is_none();
    if !state.source.is_due(trigger, is_lost, Instant::now()) {
        return Ok(FetchOutcome::NotRun);
    }
    let Some(_place) = context.documents.begin(&environment.namespace) else {
        state.source.waits_for_room();
        context.metrics.begin(Step::Fetch).end(Outcome::Busy);
        return Ok(FetchOutcome::NotRun);
    };
    // Invalid rules are reported before the source is asked; the child process applies the rules.
    compiler::rules(&environment.spec.prune)?;
    for _ in 1..FETCHES {
        match read(environment, context, observed, state).await {
            Err(Error::Compile(compiler::Error::ChangedBetweenPages)) => {}
            done => return done,
        }
    }
    read(environment, context, observed, state).await
}

/// Fetches and compiles the document, and checks the result against the guard. The published objects are kept in place
/// meanwhile.
async fn read(
    environment: &Environment<'_>,
    context: &Context,
    observed: &Observed,
    state: &mut EnvironmentState,
) -> Result<FetchOutcome, Error> {
    let Context { fetcher, compiler, publisher, metrics, .. } = context;
    let EnvironmentState { source, candidate, desired, .. } = state;
    // A pinned snapshot may have taken the memory of the newest one, which is not published before an edit of the spec.
    let is_pinned = desired.revision().is_some_and(|revision| revision == environment.spec.pin);
    let fetching = fetch(environment, fetcher, metrics, source, candidate.newest().is_some() || is_pinned);
    let document =
        match restore::run_and_restore(fetching, environment, publisher, &observed.destination, desired).await? {
            FetchStep::Postponed => return Ok(FetchOutcome::NotRun),
            FetchStep::Unchanged => return Ok(FetchOutcome::Done),
            FetchStep::Document(document) => *document,
        };
    let compiling = compile(environment, compiler, metrics, document);
    match restore::run_and_restore(compiling, environment, publisher, &observed.destination, desired).await {
        Ok((mut compiled, version, provenance)) => {
            record_read(environment, metrics, source);
            if let Err(error) =
                memory::keep(environment, &context.memory, &mut compiled.snapshot, candidate, desired, observed)
            {
                let error = Error::from(error);
                candidate.not_compiled(error.to_failure());
                return Err(error);
            }
            source.record_compiled(version, provenance);
            guard::check(environment, observed, desired, candidate, compiled);
            Ok(FetchOutcome::Done)
        }
        // Without a document, the source said nothing new about the last one, so what is known of it stays.
        Err(error @ (compiler::Error::Malformed(_) | compiler::Error::ChangedBetweenPages)) => Err(error.into()),
        Err(error) => {
            record_read(environment, metrics, source);
            let error = Error::from(error);
            candidate.not_compiled(error.to_failure());
            Err(error)
        }
    }
}
