//! The sequence of steps, in the order of the table in [`super`].

use std::time::Duration;

use kube::runtime::controller::Action;
use tokio::time::Instant;

use super::{
    Context,
    collect::{collect, idle_flags},
    desired::BackOff,
    environment::Environment,
    error::Error,
    facts::facts,
    listen::listen,
    observe::{Observed, observe},
    outcome::{Upkeep, WorkOutcome},
    publish::{failed_publication, publish},
    read::read_if_due,
    receive::receive,
    recover::recover,
    refresh,
    report::{report, report_ahead},
    rollout::observe_pods,
    schedule,
    state::EnvironmentState,
    withdraw::unfinished,
};
use crate::{
    controller::report::{FETCHED, FetchOutcome, Pin, Publication},
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
        let fetched = status.conditions.iter().find(|condition| condition.type_ == FETCHED);
        status.observed_generation == state.generation && fetched.is_some_and(|fetched| fetched.status == "True")
    });
    if was_fetched && observed.revision.is_some() {
        let wait = schedule::first_fetch_delay(&environment.uid, environment.spec.refresh.interval.get());
        state.source.delay(wait);
    }
    state
}

/// Runs all steps of a reconciliation, and returns when to reconcile next.
pub(super) async fn run(environment: &Environment<'_>, context: &Context, state: &mut EnvironmentState) -> Action {
    state.start_generation(environment.generation());
    let Context { fetcher, webhook_receiver, trigger_sender, .. } = context;
    // The fetch may take long, and webhooks are accepted meanwhile.
    let webhook = receive(environment, fetcher, webhook_receiver, trigger_sender, &mut state.reception).await;
    let (observed, outcome) = match environment.destination(state.reported.status(environment)) {
        Ok(destination) => {
            state.desired.set_kind(destination.object_kind);
            let (observed, outcome) = work(environment, context, destination, state).await;
            (Some(observed), outcome)
        }
        Err(error) => {
            (None, WorkOutcome::without_work(failed_fetch(environment, state, &error.into()), Publication::None))
        }
    };
    let rest = fetcher.read_budget().webhook_rest(&environment.uid);
    webhook_receiver.pace(&environment.namespace, &environment.name, rest);
    let published = outcome.published(observed.as_ref());
    let upkeep = upkeep(environment, context, state, observed.as_ref(), published, webhook).await;
    let unfinished =
        unfinished(environment, &context.publisher, &state.reported, observed.as_ref(), &outcome.publication);
    let facts = facts(environment, state, observed.as_ref(), outcome, upkeep, unfinished);
    let is_published = facts.revision.is_some();
    report(environment, &context.reports, &context.metrics, facts, &mut state.reported).await;
    next(environment, state, is_published)
}

/// Starts, changes or ends the tasks that run beside the reconciliations, and returns their states.
async fn upkeep(
    environment: &Environment<'_>,
    context: &Context,
    state: &mut EnvironmentState,
    observed: Option<&Observed>,
    published: Option<&str>,
    webhook: Option<String>,
) -> Upkeep {
    let Context { observer, streams, collector, metrics, .. } = context;
    let EnvironmentState { source, desired, reported, uses, .. } = state;
    let pods = observed
        .and_then(|observed| observe_pods(environment, observer, metrics, &observed.destination, desired, published));
    let realtime = listen(environment, streams, source.provenance());
    let analytics = collect(environment, collector, source);
    let idle_flags = idle_flags(environment, collector, analytics.is_some(), desired, reported, uses).await;
    Upkeep { webhook, pods, realtime, analytics, idle_flags }
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
        return (
            Observed::cached(publisher, destination),
            WorkOutcome::without_work(FetchOutcome::NotRun, Publication::None),
        );
    }
    if let Some(BackOff { failure, is_blind: true, .. }) = state.desired.backs_off(Instant::now()) {
        let publication = Publication::Failed(failure.clone());
        return (
            Observed::cached(publisher, destination),
            WorkOutcome::without_work(FetchOutcome::NotRun, publication),
        );
    }
    let (observed, polled) = observe(publisher, destination, &mut state.desired.cache).await;
    if let Err(error) = polled {
        let failure = failed_publication(environment, state, &error.into(), Pin::None, true);
        return (observed, WorkOutcome::without_work(FetchOutcome::NotRun, Publication::Failed(failure)));
    }
    if state.desired.snapshot.is_some()
        && let Err(error) =
            report_ahead(environment, &context.reports, observed.destination.object_kind, &mut state.reported).await
    {
        let failure = failed_publication(environment, state, &error.into(), Pin::None, false);
        return (observed, WorkOutcome::without_work(FetchOutcome::NotRun, Publication::Failed(failure)));
    }
    let read = read_if_due(environment, context, &observed, state).await;
    let read_failed = read.is_err();
    let fetch = read.unwrap_or_else(|error| {
        let fetch = failed_fetch(environment, state, &error);
        state.source.failed(error.retry(), environment.spec.refresh.interval.get());
        fetch
    });
    state.candidate.approve(environment.approved_revision());
    recover(environment, publisher, &context.memory, &state.candidate, &observed, &mut state.desired, read_failed)
        .await;
    let outcome = match state.desired.backs_off(Instant::now()).cloned() {
        Some(BackOff { failure, pin, .. }) => {
            WorkOutcome { fetch, pin, publication: Publication::Failed(failure), revision: None }
        }
        None => publish(environment, context, &observed, state, fetch).await,
    };
    (observed, outcome)
}

/// Logs a failed fetch or compilation, and returns its outcome for the report.
fn failed_fetch(environment: &Environment<'_>, state: &EnvironmentState, error: &Error) -> FetchOutcome {
    error.log(environment, &state.reported);
    error.to_fetch()
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
    // No fetch happens while the published objects cannot be read.
    let fetch = fetch.chain(poll).filter(|_| !back_off.is_some_and(|back_off| back_off.is_blind));
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
