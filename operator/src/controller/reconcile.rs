//! Keeps the published snapshot of each FeatureEnvironment in step with its spec.
//!
//! | step | file | what it does |
//! |---|---|---|
//! | receive | `background/receive` | registers the environment for webhooks |
//! | observe | `observe` | reads which revision the cluster has |
//! | fetch | `read/source_state`, `read/refresh`, `read/fetch` | decides whether a fetch is due or requested, and fetches the document |
//! | compile | `read/compile` | compiles the document in a child process |
//! | guard | `accept` | accepts the snapshot, or holds it back until a person approves it (`candidate`) |
//! | recover | `publication/recover` | reads the published snapshot from the cluster if this process needs it and does not have it |
//! | choose | `publication/choose` | selects the newest, the pinned, or the last good snapshot |
//! | fit | `publication/fit` | withholds the selected snapshot while running pods have no room for its core |
//! | apply | `publication/apply` | publishes the selected snapshot, and archives the one that it replaces |
//! | withdraw | `publication/withdraw` | deletes objects that no pod mounts any more |
//! | notify | `publication/notify` | notifies pods of the revision |
//! | observe pods | `background/observe_pods` | starts the task that asks pods which revision they serve, and reads its latest counts |
//! | listen | `background/listen` | starts the task that follows the stream of changes |
//! | collect | `background/collect` | starts the task that sends the uses of flags to the source |
//! | report | `report` | writes the status, and an Event for each change of it |
//!
//! `sequence` runs the steps in this order, and collects what they return as the facts of the report. The state
//! between two reconciliations is a value for each step that needs one (`state`). While a source or a compilation is slow,
//! `publication/restore` restores published objects. `run` watches the objects whose changes
//! cause reconciliations.
//!
//! A failure of any step leaves the published snapshot as it is. The step is retried with a growing back-off. A
//! published object that somebody deletes or alters is restored at once from memory, without the source or the
//! compiler.

mod accept;
mod background;
mod bounds;
mod candidate;
mod context;
mod deletion;
mod desired;
mod environment;
mod error;
mod memory;
mod observe;
mod publication;
mod read;
mod report;
mod run;
mod schedule;
mod sequence;
mod state;
mod turns;

use std::{convert::Infallible, sync::Arc};

use kube::{core::DeserializeGuard, runtime::controller::Action};

use self::environment::Environment;
pub use self::{
    context::{Context, Deps},
    error::Error,
    memory::SNAPSHOTS_MAX,
    run::run,
};
use crate::api::FeatureEnvironment;

/// Reconciles one FeatureEnvironment and returns when to reconcile it next. It never fails: each failure sets its own
/// back-off.
pub async fn reconcile(
    object: Arc<DeserializeGuard<FeatureEnvironment>>,
    context: Arc<Context>,
) -> Result<Action, Infallible> {
    let environment = match &object.0 {
        Ok(environment) => environment,
        Err(invalid) => {
            // The schema rejects such objects, so the environment waits for the next edit.
            let (namespace, name) = (invalid.metadata.namespace.as_deref(), invalid.metadata.name.as_deref());
            tracing::error!(
                namespace,
                environment = name,
                error = invalid.error,
                "cannot read the FeatureEnvironment: correct the field that the error names"
            );
            return Ok(Action::await_change());
        }
    };
    if environment.metadata.deletion_timestamp.is_some() {
        // Kubernetes' garbage collector deletes the published objects by their owner reference.
        return Ok(Action::await_change());
    }
    context.publisher.ready().await;
    let environment = Environment::new(environment);
    let Some(_turn) = context.turns.begin(&environment.name) else {
        // `ReconciliationTurns` sends a trigger when the turn comes. The requeue covers a trigger that is lost.
        return Ok(Action::requeue(schedule::UPKEEP));
    };
    let _under_way = context.under_way.begin(&environment.name, &environment.uid, &environment.deletion);
    let mut state = match context.states.take(&environment.uid) {
        Some(state) => state,
        None => sequence::first_state(&environment, &context).await,
    };
    let next = sequence::run(&environment, &context, &mut state).await;
    context.states.put(environment.uid, state);
    Ok(next)
}
