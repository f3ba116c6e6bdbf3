//! The sequence of steps, in the order of the table in [`super`]. Only its modules see the whole state of an
//! environment.

mod document;
mod facts;
mod publication;
mod tasks;

use std::time::Duration;

use kube::runtime::controller::Action;
use tokio::time::Instant;

use self::{
    document::{failed_fetch, read, store},
    facts::facts,
    publication::{back_off_after, publish},
    tasks::start_tasks,
};
use super::{
    Context,
    background::receive::receive,
    desired::BackOffScope,
    environment::Environment,
    error::Error,
    observe::{Observed, observe},
    publication::{recover, withdraw::unfinished},
    read::refresh,
    report::{report, report_ahead},
    schedule,
    state::EnvironmentState,
};
use crate::{
    api::ObjectKind,
    controller::status::{FETCHED, FetchOutcome, Pin, Publication, WorkOutcome},
    publish::Destination,
};

/// Shortest wait before a reconciliation that is scheduled by time.
const LEAST_WAIT: Duration = Duration::from_millis(100);

/// Creates the state of an environment that is new to this process. If its last fetch before a restart succeeded and its
/// snapshot is published, its next fetch is delayed, so that fetches are spread.
pub(super) async fn first_state(environment: &Environment<'_>, context: &Context) -> EnvironmentState {
    let mut state = EnvironmentState { generation: environment.generation(), ..EnvironmentState::default() };
    let status = environment.object.status.as_ref();
    let Ok(destination) = environment.destination(status) else { return state };
    // A failure here repeats in the reconciliation, and is reported then.
    let (observed, _) = observe(&context.publisher, destination, &mut state.desired.cache).await;
    let was_fetched = status.is_some_and(|status| {
        let is_fetched = status.condition(FETCHED).is_some_and(|fetched| fetched.status == "True");
        status.observed_generation == state.generation && is_fetched
    });
    if was_fetched && observed.revision.is_some() {
        let wait = schedule::first_fetch_delay(&environment.uid, environment.spec.refresh.interval.get());
        state.source.fetch_at(Instant::now() + wait);
    }
    state
}

/// Runs all steps of a reconciliation, and returns when to reconcile next.
pub(super) async fn run(environment: &Environment<'_>, context: &Context, state: &mut EnvironmentState) -> Action {
    state.start_generation(environment.generation());
    let Context { fetcher, webhook_receiver, trigger_sender, .. } = context;
    // The fetch may take long, and webhooks are accepted meanwhile.
    receive(environment, fetcher, webhook_receiver, trigger_sender, &mut state.reception).await;
    let (observed, work) = match allowed_destination(environment, context, state) {
        Ok(destination) => {
            state.desired.set_kind(destination.object_kind);
            let (observed, work) = work(environment, context, destination, state).await;
            (Some(observed), work)
        }
        Err(error) => {
            let fetch = failed_fetch(environment, state, &error);
            (None, WorkOutcome { fetch, pin: Pin::None, publication: Publication::None, revision: None })
        }
    };
    let rest = fetcher.read_budget().webhook_rest(&environment.uid);
    webhook_receiver.pace(&environment.name, rest);
    let tasks = start_tasks(environment, context, state, observed.as_ref(), work.revision.as_ref()).await;
    let unfinished = unfinished(environment, &context.publisher, &state.reported, observed.as_ref(), &work.publication);
    let facts = facts(environment, state, observed.as_ref(), work, tasks, unfinished);
    let is_published = facts.work.revision.is_some();
    report(environment, &context.status_writer, &context.metrics, facts, &mut state.reported).await;
    next(environment, state, is_published)
}

/// Returns the place where the snapshot is published.
///
/// # Errors
/// If the environment's name cannot be part of object names, or the controller may not write objects of this kind.
fn allowed_destination(
    environment: &Environment<'_>,
    context: &Context,
    state: &EnvironmentState,
) -> Result<Destination, Error> {
    let destination = environment.destination(state.reported.status(environment))?;
    if destination.object_kind == ObjectKind::Secret && !context.publishes_secrets {
        return Err(Error::SecretsNotAllowed);
    }
    Ok(destination)
}

/// Observes, reads the source, and publishes. The last good snapshot stays published if a step fails.
async fn work(
    environment: &Environment<'_>,
    context: &Context,
    destination: Destination,
    state: &mut EnvironmentState,
) -> (Observed, WorkOutcome) {
    let publisher = &context.publisher;
    if environment.spec.suspend {
        let observed = Observed::cached(publisher, destination);
        let (publication, revision) = (Publication::None, observed.revision.clone());
        return (observed, WorkOutcome { fetch: FetchOutcome::NotRun, pin: Pin::None, publication, revision });
    }
    let back_off = state.desired.backs_off(Instant::now());
    if let Some(back_off) = back_off.filter(|back_off| back_off.scope == BackOffScope::ReadAndPublication) {
        let observed = Observed::cached(publisher, destination);
        let outcome = back_off.outcome(FetchOutcome::NotRun, &observed);
        return (observed, outcome);
    }
    let (observed, prepared) = prepare(environment, context, destination, state).await;
    if let Err(error) = prepared {
        let back_off = back_off_after(environment, state, &error, Pin::None, BackOffScope::ReadAndPublication);
        let outcome = back_off.outcome(FetchOutcome::NotRun, &observed);
        return (observed, outcome);
    }
    let read = read(environment, context, &observed, state).await;
    let stored = read.and_then(|read| store(environment, &context.memory, &observed, state, read));
    let read_failed = stored.is_err();
    let fetch = stored.unwrap_or_else(|error| failed_fetch(environment, state, &error));
    state.candidate.approve(environment.approved_revision(), environment.spec);
    let pin = &environment.spec.pin;
    let is_needed = recover::is_needed(pin, &state.candidate, &state.desired, &observed, read_failed);
    if state.desired.starts_recovery(is_needed, Instant::now()) {
        let recovery = recover::recover(environment, publisher, &context.memory, &observed.destination).await;
        state.desired.recovered(recovery, Instant::now());
    }
    let outcome = match state.desired.backs_off(Instant::now()) {
        Some(back_off) => back_off.outcome(fetch, &observed),
        None => publish(environment, context, &observed, state, fetch).await,
    };
    (observed, outcome)
}

/// Observes what is published, and writes the status that has to be written before it is restored.
async fn prepare(
    environment: &Environment<'_>,
    context: &Context,
    destination: Destination,
    state: &mut EnvironmentState,
) -> (Observed, Result<(), Error>) {
    let (observed, polled) = observe(&context.publisher, destination, &mut state.desired.cache).await;
    if let Err(error) = polled {
        return (observed, Err(error.into()));
    }
    if state.desired.snapshot.is_none() {
        return (observed, Ok(()));
    }
    let kind = observed.destination.object_kind;
    let ahead = report_ahead(environment, &context.status_writer, kind, &mut state.reported).await;
    (observed, ahead.map_err(Error::from))
}

/// Returns when to reconcile next if nothing triggers a reconciliation before. What `is_published` needs upkeep, however
/// long the interval is: Secrets are polled, failed notifications are repeated, and obsolete objects are deleted.
fn next(environment: &Environment<'_>, state: &EnvironmentState, is_published: bool) -> Action {
    let back_off = state.desired.back_off.as_ref();
    let is_requested = refresh::is_pending(environment, state.reported.status(environment));
    let requested = is_requested.then(|| state.requests.next(Instant::now()));
    let fetch = state.source.next_fetch().into_iter().chain(requested);
    let destination = environment.destination(state.reported.status(environment)).ok();
    let poll = destination.and_then(|destination| state.desired.cache.next_poll(&destination));
    // No fetch happens while the published objects cannot be read, or the status that has to be written before them.
    let fetch = fetch
        .chain(poll)
        .filter(|_| !back_off.is_some_and(|back_off| back_off.scope == BackOffScope::ReadAndPublication));
    // The pods are looked at only by a publication.
    let look = state.room.next_look().filter(|_| back_off.is_none());
    let upkeep = is_published.then(|| Instant::now() + schedule::upkeep(fastrand::f64()));
    let work = fetch.chain(back_off.map(|back_off| back_off.until)).chain(look).chain(upkeep);
    let work = work.filter(|_| !environment.spec.suspend);
    match work.chain(state.reported.retry()).chain(state.reception.next()).min() {
        Some(next) => Action::requeue(next.saturating_duration_since(Instant::now()).max(LEAST_WAIT)),
        None => Action::await_change(),
    }
}
