//! The sequence of steps: receive → observe → fetch → compile → guard → recover → choose → fit → apply → notify → report.

use std::time::Duration;

use kube::runtime::controller::Action;
use tokio::time::Instant;

use super::{
    Context,
    apply::{Applied, Apply},
    choose::{Choice, archived, choose},
    collect::{collect, idle_flags},
    compile::{Compiled, compile},
    desired::{BackOff, Desired},
    environment::Environment,
    error::Error,
    fetch::{Fetched, fetch, was_read},
    guard::{self, Against, Candidate},
    keep,
    listen::listen,
    observe::{Observed, observe},
    obsolete,
    receive::receive,
    recover::recover,
    refresh,
    report::{contents, report},
    rollout::{notify, observe_pods},
    room, schedule,
    state::EnvironmentState,
};
use crate::{
    api::{Delivered, Pods},
    compiler,
    controller::report::{FETCHED, Facts, Failure, Fetch, Pin, Publication},
    publish::Destination,
    source::trigger::Trigger,
};

/// Shortest wait before a reconciliation that is scheduled by time.
const LEAST_WAIT: Duration = Duration::from_millis(100);

/// Number of fetches in one reconciliation if the environment changes between two pages of its document.
const FETCHES: usize = 3;

/// Outcome of the steps that a suspended environment skips.
struct Outcome {
    fetch: Fetch,
    pin: Pin,
    publication: Publication,
    /// Revision that was published.
    revision: Option<String>,
}

impl Outcome {
    /// Returns the outcome if no document was read and no snapshot was chosen.
    fn without_work(fetch: Fetch, publication: Publication) -> Self {
        Self { fetch, pin: Pin::None, publication, revision: None }
    }
}

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
        let wait = schedule::phase(&environment.uid, environment.spec.refresh.interval.get());
        state.source.delay(wait);
    }
    state
}

/// Runs all steps of a reconciliation, and returns when to reconcile next.
pub(super) async fn run(environment: &Environment<'_>, context: &Context, state: &mut EnvironmentState) -> Action {
    state.start_generation(environment.generation());
    let Context { fetcher, receiver, sender, .. } = context;
    // The fetch may take long, and webhooks are accepted meanwhile.
    let webhook = receive(environment, fetcher, receiver, sender, &mut state.reception).await;
    let (observed, outcome) = match environment.destination(state.reported.status(environment)) {
        Ok(destination) => {
            state.desired.set_kind(destination.object_kind);
            let (observed, outcome) = work(environment, context, destination, state).await;
            (Some(observed), outcome)
        }
        Err(error) => (None, Outcome::without_work(failed_fetch(environment, state, &error.into()), Publication::None)),
    };
    let rest = fetcher.read_budget().webhook_rest(&environment.uid);
    receiver.pace(&environment.namespace, &environment.name, rest);
    let analytics = collect(environment, &context.collector, &state.source);
    let EnvironmentState { desired, reported, uses, .. } = state;
    let idle_flags = idle_flags(environment, &context.collector, analytics.is_some(), desired, reported, uses);
    let facts =
        Facts { webhook, analytics, idle_flags, ..facts(environment, context, state, observed.as_ref(), outcome) };
    let is_published = facts.revision.is_some();
    report(environment, &context.reports, &context.metrics, facts, &mut state.reported).await;
    next(environment, state, is_published)
}

/// Observes, reads the source, and publishes. The last good snapshot stays published if a step fails.
async fn work(
    environment: &Environment<'_>,
    context: &Context,
    destination: Destination,
    state: &mut EnvironmentState,
) -> (Observed, Outcome) {
    let publisher = &context.publisher;
    if environment.spec.suspend {
        return (Observed::cached(publisher, destination), Outcome::without_work(Fetch::NotDue, Publication::None));
    }
    if let Some(BackOff { failure, is_blind: true, .. }) = state.desired.backs_off(Instant::now()) {
        let publication = Publication::Failed(failure.clone());
        return (Observed::cached(publisher, destination), Outcome::without_work(Fetch::NotDue, publication));
    }
    let (observed, polled) = observe(publisher, destination, &mut state.desired.cache).await;
    if let Err(error) = polled {
        let failure = failed_publication(environment, state, &error.into(), Pin::None, true);
        return (observed, Outcome::without_work(Fetch::NotDue, Publication::Failed(failure)));
    }
    let read = read_if_due(environment, context, &observed, state).await;
    let read_failed = read.is_err();
    let fetch = read.unwrap_or_else(|error| {
        let fetch = failed_fetch(environment, state, &error);
        state.source.failed(error.retry(), environment.spec.refresh.interval.get());
        fetch
    });
    state.candidate.approve(environment.approved_revision());
    recover(environment, publisher, &state.candidate, &observed, &mut state.desired, read_failed).await;
    let outcome = match state.desired.backs_off(Instant::now()).cloned() {
        Some(BackOff { failure, pin, .. }) => {
            Outcome { fetch, pin, publication: Publication::Failed(failure), revision: None }
        }
        None => publish(environment, context, &observed, state, fetch).await,
    };
    (observed, outcome)
}

/// Fetches and compiles the document if a fetch is due, and checks the result against the guard.
async fn read_if_due(
    environment: &Environment<'_>,
    context: &Context,
    observed: &Observed,
    state: &mut EnvironmentState,
) -> Result<Fetch, Error> {
    let mut trigger = context.states.take_trigger(&environment.namespace, &environment.name);
    if refresh::is_pending(environment, state.reported.status(environment)) {
        // The fetch that serves the request may be a later one, if this one has to wait for room.
        state.source.is_requested();
        if state.requests.start(Instant::now()) {
            trigger = Some(Trigger::Requested);
        }
    }
    state.source.is_triggered(trigger);
    let is_lost = state.candidate.newest().is_none()
        && state.candidate.pending_revision().is_none()
        && state.desired.snapshot.is_none()
        && observed.revision.is_none();
    if !state.source.is_due(trigger, is_lost, Instant::now()) {
        return Ok(Fetch::NotDue);
    }
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
) -> Result<Fetch, Error> {
    let Context { fetcher, compiler, publisher, metrics, .. } = context;
    let EnvironmentState { source, candidate, desired, .. } = state;
    let fetching = fetch(environment, fetcher, metrics, source, candidate.newest().is_some());
    let document =
        match keep::published_during(fetching, environment, publisher, &observed.destination, desired).await? {
            Fetched::Postponed => return Ok(Fetch::NotDue),
            Fetched::Unchanged => return Ok(Fetch::Done),
            Fetched::Document(document) => *document,
        };
    let compiling = compile(environment, compiler, metrics, document);
    match keep::published_during(compiling, environment, publisher, &observed.destination, desired).await {
        Ok((compiled, version, provenance)) => {
            was_read(environment, metrics, source);
            source.was_compiled(version, provenance);
            check(environment, observed, desired, candidate, compiled);
            Ok(Fetch::Done)
        }
        // Without a document, the source said nothing new about the last one, so what is known of it stays.
        Err(error @ (compiler::Error::Malformed(_) | compiler::Error::ChangedBetweenPages)) => Err(error.into()),
        Err(error) => {
            was_read(environment, metrics, source);
            let error = Error::from(error);
            candidate.not_compiled(error.to_failure());
            Err(error)
        }
    }
}

/// Accepts a compiled snapshot, or holds it back if it violates the guard.
fn check(
    environment: &Environment<'_>,
    observed: &Observed,
    desired: &Desired,
    candidate: &mut Candidate,
    compiled: Compiled,
) {
    let newest = candidate.newest();
    let newest_revision = newest.map(|newest| newest.snapshot.revision.as_str());
    let published = observed.record.as_ref().map(|record| &record.document);
    let against = Against {
        known: [desired.revision(), newest_revision, observed.revision.as_deref()].into_iter().flatten().collect(),
        approved: environment.approved_revision(),
        summary: newest.map(|newest| &newest.summary).or(published),
        // The schema limits the value to 0 to 100.
        max_shrink_percent: usize::try_from(environment.spec.guard.max_shrink_percent).unwrap_or_default(),
    };
    let Some(violation) = guard::check(&compiled, &against) else { return candidate.accept(compiled) };
    let failure = guard::failure(environment, &violation, &compiled.snapshot.revision);
    if candidate.hold_back(compiled, failure.clone()) {
        let (namespace, environment, reason) = (&environment.namespace, &environment.name, failure.reason);
        tracing::warn!(namespace, environment, %reason, message = failure.message, "the document is not published");
    }
}

/// Publishes the newest accepted snapshot, or the pinned one, and notifies pods.
async fn publish(
    environment: &Environment<'_>,
    context: &Context,
    observed: &Observed,
    state: &mut EnvironmentState,
    fetch: Fetch,
) -> Outcome {
    let Context { publisher, observer, nudger, metrics, .. } = context;
    let destination = &observed.destination;
    let restored = match archived(&environment.spec.pin, &state.candidate, &state.desired, observed) {
        Some(past) => publisher.restore(destination, past).await,
        None => Ok(None),
    };
    let (pin, applied) = match restored {
        Ok(restored) => {
            let Choice { snapshot, pin } =
                choose(&environment.spec.pin, &state.candidate, &state.desired, observed, restored);
            let accepted = state.candidate.newest().map(|newest| &newest.summary);
            let fitting = match snapshot {
                Some(chosen) => {
                    let EnvironmentState { desired, reported, room, .. } = state;
                    room::fitting(environment, observer, observed, chosen, desired, reported, room).await
                }
                None => {
                    state.room = room::Room::default();
                    None
                }
            };
            let applied = match fitting {
                Some(chosen) => {
                    let apply = Apply { environment, publisher, metrics, observed };
                    apply.run(chosen, accepted, &mut state.desired).await.map(Some)
                }
                None => Ok(None),
            };
            (pin, applied)
        }
        Err(error) => (Pin::None, Err(error)),
    };
    let applied = match applied {
        Ok(applied) => applied,
        Err(error) => {
            let failure = failed_publication(environment, state, &error.into(), pin.clone(), false);
            return Outcome { fetch, pin, publication: Publication::Failed(failure), revision: None };
        }
    };
    state.desired.succeeded();
    let failure = state.candidate.failure().or(state.room.failure()).cloned();
    let Some(Applied { snapshot, objects }) = applied else {
        let publication = failure.map_or(Publication::None, Publication::Failed);
        return Outcome { fetch, pin, publication, revision: None };
    };
    let delivered = Delivered {
        object_kind: destination.object_kind,
        overrides_files: i32::try_from(snapshot.overrides_files()).unwrap_or(i32::MAX),
        core_bytes: i64::try_from(snapshot.core_bytes()).ok(),
        formerly: obsolete::withdraw(environment, publisher, observer, destination, &mut state.desired).await,
    };
    let published_at = state.desired.published_at();
    notify(environment, nudger, metrics, &destination.owner, &snapshot.revision, published_at, &mut state.rollout);
    let publication = match failure {
        Some(failure) => Publication::Failed(failure),
        None => {
            let mut contents = contents(&snapshot, &state.candidate, state.reported.status(environment));
            if let (Some(contents), Some(finding)) = (&mut contents, state.room.finding(&snapshot)) {
                contents.add(finding);
            }
            Publication::Done { objects, delivered, contents }
        }
    };
    Outcome { fetch, pin, publication, revision: Some(snapshot.revision.clone()) }
}

/// Collects what the steps returned. Without `observed`, no step ran.
fn facts(
    environment: &Environment<'_>,
    context: &Context,
    state: &EnvironmentState,
    observed: Option<&Observed>,
    outcome: Outcome,
) -> Facts {
    let Outcome { fetch, pin, publication, revision } = outcome;
    let revision = revision.or_else(|| observed.and_then(|observed| observed.revision.clone()));
    let history = observed.map(|observed| state.desired.history(observed, revision.as_deref())).unwrap_or_default();
    let record = observed.and_then(|observed| state.desired.published(observed, revision.as_deref()));
    Facts {
        published_at: record.map(|record| record.published_at.clone()),
        changes: record.and_then(|record| record.changes.clone()),
        generation: environment.generation(),
        suspended: environment.spec.suspend,
        only_in: observed.and_then(|observed| observed.only_in),
        held: state.candidate.pending_revision().map(str::to_owned),
        core_bytes: core_bytes(state).and_then(|bytes| i64::try_from(bytes).ok()),
        pods: observed
            .and_then(|observed| pods(environment, context, &observed.destination, state, revision.as_deref())),
        webhook: None,
        analytics: None,
        idle_flags: None,
        realtime: listen(environment, &context.streams, state.source.provenance()),
        stale_after: schedule::stale_after(environment.spec.refresh.interval.get()),
        refreshed: refresh::requested(environment).filter(|_| !matches!(fetch, Fetch::NotDue)),
        fetch,
        pin,
        publication,
        history,
        revision,
    }
}

/// Returns the size of the newest core in bytes: of the snapshots that are published, accepted, or not published yet.
fn core_bytes(state: &EnvironmentState) -> Option<usize> {
    let desired = state.desired.snapshot.as_ref().map(|desired| desired.snapshot.core_bytes());
    desired.max(state.candidate.core_bytes()).max(state.room.withheld_bytes())
}

/// Returns the latest counts of pods, if the published revision is the desired one.
fn pods(
    environment: &Environment<'_>,
    context: &Context,
    destination: &Destination,
    state: &EnvironmentState,
    published: Option<&str>,
) -> Option<Pods> {
    if environment.spec.suspend {
        context.observer.stop(&environment.namespace, &environment.name);
        return None;
    }
    let desired = state.desired.snapshot.as_ref().map(|desired| &desired.snapshot);
    let snapshot = desired.filter(|desired| published == Some(desired.revision.as_str()))?;
    let published_at = state.desired.published_at();
    observe_pods(environment, &context.observer, &context.metrics, destination, snapshot, published_at)
}

/// Logs a failed fetch or compilation, and returns its outcome for the report.
fn failed_fetch(environment: &Environment<'_>, state: &EnvironmentState, error: &Error) -> Fetch {
    error.log(environment, &state.reported);
    error.to_fetch()
}

/// Logs a failed publication, and starts its back-off. `is_blind` is true if the published objects cannot be read.
fn failed_publication(
    environment: &Environment<'_>,
    state: &mut EnvironmentState,
    error: &Error,
    pin: Pin,
    is_blind: bool,
) -> Failure {
    error.log(environment, &state.reported);
    let failure = error.to_failure();
    let interval = environment.spec.refresh.interval.get();
    let wait = schedule::after_failure(error.retry(), state.desired.failures, interval, fastrand::f64());
    let until = Instant::now() + wait;
    state.desired.failed(BackOff { until, failure: failure.clone(), pin, is_blind });
    failure
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
