//! Choose, fit, apply, withdraw and notify steps: publishes the newest accepted snapshot, or the pinned one.

use std::sync::Arc;

use crate::{
    api::Delivered,
    controller::{
        reconcile::{
            Context,
            desired::{BackOff, BackOffScope},
            environment::Environment,
            error::Error,
            memory::reserve,
            observe::Observed,
            publication::{
                apply::{Applied, Apply},
                choose::{Choice, archived, choose},
                fit::{self, Fit, Room},
                notify::Notice,
                served::contents,
                withdraw,
            },
            report::report_ahead,
            state::EnvironmentState,
        },
        status::{Failure, FetchOutcome, Pin, Publication, WorkOutcome},
    },
    memory::Memory,
    publish::{self, Destination, Publisher, Snapshot},
};

/// Publishes the newest accepted snapshot, or the pinned one, and notifies pods.
pub(super) async fn publish(
    environment: &Environment<'_>,
    context: &Context,
    observed: &Observed,
    state: &mut EnvironmentState,
    fetch: FetchOutcome,
) -> WorkOutcome {
    let selected = select(environment, &context.publisher, &context.memory, observed, state).await;
    let (pin, applied) = match selected {
        Ok(Choice { snapshot, pin }) => (pin, fit_and_apply(environment, context, observed, state, snapshot).await),
        Err(error) => (Pin::None, Err(error.into())),
    };
    let applied = match applied {
        Ok(applied) => applied,
        Err(error) => {
            let back_off = back_off_after(environment, state, &error, pin, BackOffScope::Publication);
            return back_off.outcome(fetch, observed);
        }
    };
    state.desired.succeeded();
    let failure = state.candidate.failure().or(state.room.failure()).cloned();
    let Some(applied) = applied else {
        let publication = failure.map_or(Publication::None, Publication::Failed);
        return WorkOutcome { fetch, pin, publication, revision: observed.revision.clone() };
    };
    let revision = Some(applied.snapshot.revision.clone());
    let publication = deliver(environment, context, &observed.destination, state, applied, failure).await;
    WorkOutcome { fetch, pin, publication, revision }
}

/// Selects the snapshot that should be published.
///
/// # Errors
/// If the pinned revision is archived, and cannot be read, or has no room in memory.
async fn select(
    environment: &Environment<'_>,
    publisher: &Publisher,
    memory: &Arc<Memory>,
    observed: &Observed,
    state: &mut EnvironmentState,
) -> Result<Choice, publish::Error> {
    let pin = &environment.spec.pin;
    let mut restored = None;
    if let Some(past) = archived(pin, &state.candidate, &state.desired, observed).cloned() {
        restored = match publisher.read_archived(&observed.destination, &past).await {
            Err(publish::Error::OutOfMemory { .. }) => {
                // Memory is released as in `reserve`, because the published snapshot stays in the cluster.
                state.release_snapshots();
                publisher.read_archived(&observed.destination, &past).await?
            }
            read => read?,
        };
    }
    if let Some(restored) = &mut restored {
        let record_bytes = state.desired.record_bytes(observed);
        reserve(memory, environment.namespace(), restored, record_bytes, || state.release_snapshots())?;
    }
    Ok(choose(environment.spec, &state.candidate, &state.desired, observed, restored))
}

/// Publishes the selected snapshot, or the last good one while running pods have no room for it. `None` if there is
/// neither.
///
/// # Errors
/// If the status is not written ahead of the first Secret, or the snapshot cannot be published.
async fn fit_and_apply(
    environment: &Environment<'_>,
    context: &Context,
    observed: &Observed,
    state: &mut EnvironmentState,
    selected: Option<Arc<Snapshot>>,
) -> Result<Option<Applied>, Error> {
    let Context { publisher, lister, metrics, status_writer, .. } = context;
    let EnvironmentState { candidate, desired, reported, room, .. } = state;
    let Some(selected) = selected else {
        *room = Room::default();
        return Ok(None);
    };
    let last_good = desired.snapshot.as_ref().filter(|desired| desired.is_published()).map(|desired| &desired.snapshot);
    let fit = Fit {
        chosen: &selected,
        published: last_good.map(|last_good| &last_good.revision).or(observed.revision.as_ref()),
        parts_of_new_pods: fit::parts_of_new_pods(&environment.spec.delivery, reported.written(environment)),
    };
    *room = fit::fit(lister, &observed.destination.owner, &fit, std::mem::take(room)).await;
    let fitting = if room.failure().is_none() { Some(selected) } else { last_good.cloned() };
    let Some(fitting) = fitting else { return Ok(None) };
    report_ahead(environment, status_writer, observed.destination.object_kind, reported).await?;
    let accepted = candidate.newest().map(|newest| &newest.baseline);
    let apply = Apply { environment, publisher, metrics, observed };
    Ok(Some(apply.run(fitting, accepted, desired).await?))
}

/// Withdraws obsolete objects, notifies pods of the published snapshot, and describes the publication. `failure` keeps
/// the last document from being published.
async fn deliver(
    environment: &Environment<'_>,
    context: &Context,
    destination: &Destination,
    state: &mut EnvironmentState,
    applied: Applied,
    failure: Option<Failure>,
) -> Publication {
    let Context { publisher, lister, nudger, metrics, .. } = context;
    let Applied { snapshot, objects } = applied;
    let delivered = Delivered {
        object_kind: destination.object_kind,
        overrides_files: i32::try_from(snapshot.overrides_files()).unwrap_or(i32::MAX),
        core_bytes: i64::try_from(snapshot.core_bytes()).ok(),
        formerly: withdraw::withdraw(environment, publisher, lister, destination, &mut state.desired).await,
    };
    if environment.spec.delivery.nudge {
        let notice = Notice {
            namespace: destination.owner.namespace.clone(),
            environment: destination.owner.environment.clone(),
            revision: snapshot.revision.clone(),
            published_at: state.desired.published_at(),
        };
        state.rollout.notify(nudger, metrics, notice);
    } else {
        state.rollout.stop();
    }
    if let Some(failure) = failure {
        return Publication::Failed(failure);
    }
    let mut contents = contents(&snapshot, &state.candidate, state.reported.status(environment)).await;
    if let (Some(contents), Some(finding)) = (&mut contents, state.room.finding(&snapshot)) {
        contents.add(finding);
    }
    Publication::Done { objects, delivered, contents }
}

/// Logs a failure to publish, or to observe what is published, and begins the back-off after it.
pub(super) fn back_off_after<'a>(
    environment: &Environment<'_>,
    state: &'a mut EnvironmentState,
    error: &Error,
    pin: Pin,
    scope: BackOffScope,
) -> &'a BackOff {
    error.log(environment, &state.reported);
    state.desired.back_off(error, pin, scope, environment.spec.refresh.interval.get())
}
