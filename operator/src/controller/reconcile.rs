//! Keeps what is published in step with what each FeatureEnvironment asks for:
//! [fetch](crate::source::fetch) → [compile](crate::compiler) → [publish](crate::publish) →
//! [report](crate::controller::report), and between the last two it [nudges](crate::rollout::nudge) the pods that wait for it.
//!
//! A failure anywhere leaves what is published as it is, and is tried again later and later. A published object that somebody
//! deletes or alters is written again at once, from memory: nobody else is needed for it.

mod bring;
mod carry;
mod controller;
mod error;
mod judge;
mod memory;
mod schedule;
mod turn;

use std::{
    convert::Infallible,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use kube::{ResourceExt, core::DeserializeGuard, runtime::controller::Action};
use tokio::sync::mpsc;

pub use self::{
    controller::{Means, run},
    error::Error,
};
use self::{
    memory::{Memories, Uid},
    turn::Turn,
};
use crate::{
    api::FeatureEnvironment,
    compiler::Compiler,
    controller::{metrics::Metrics, report::Reports},
    publish::{Objects, Publisher},
    rollout::{followers::Followers, nudge::Nudger},
    source::{
        fetch::Fetcher,
        realtime::Streams,
        wake::{Call, Wake},
    },
};

/// What every reconciliation shares.
pub struct Context {
    fetcher: Arc<Fetcher>,
    compiler: Arc<Compiler>,
    publisher: Publisher,
    nudger: Nudger,
    reports: Reports,
    metrics: Metrics,
    memories: Memories,
    streams: Streams,
    followers: Followers,
    /// Where calls for a reconciliation arrive, until the controller takes it.
    calls: Mutex<Option<mpsc::Receiver<Call>>>,
}

impl Context {
    /// A context that works with `means`, knows the published objects by `objects`, and deletes surplus after `grace`.
    pub fn new(means: Means, objects: Objects, grace: Duration) -> Self {
        let Means { client, fetcher, compiler, asker, metrics, instance } = means;
        let (wake, calls) = Wake::new();
        let nudger = Nudger::new(client.clone());
        Self {
            followers: Followers::new(client.clone(), nudger.clone(), asker, wake.clone()),
            streams: Streams::new(Arc::clone(&fetcher), wake, metrics.realtime.clone()),
            calls: Mutex::new(Some(calls)),
            fetcher,
            compiler,
            publisher: Publisher::new(client.clone(), objects, grace),
            nudger,
            reports: Reports::new(client, instance),
            metrics,
            memories: Memories::default(),
        }
    }

    /// The calls for reconciliations before their time. There is one who hears them: it is none for the second who asks.
    pub fn calls(&self) -> Option<mpsc::Receiver<Call>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Brings one FeatureEnvironment up to date, and says when it wants to be looked at again: also after a failure, each of
/// which has a back-off of its own.
pub async fn reconcile(
    object: Arc<DeserializeGuard<FeatureEnvironment>>,
    context: Arc<Context>,
) -> Result<Action, Infallible> {
    let environment = match &object.0 {
        Ok(environment) => environment,
        Err(invalid) => {
            // The schema keeps these out; it will come again when it is edited.
            let (namespace, name) = (invalid.metadata.namespace.as_deref(), invalid.metadata.name.as_deref());
            tracing::error!(namespace, name, error = invalid.error, "not a FeatureEnvironment that this version reads");
            return Ok(Action::await_change());
        }
    };
    if environment.metadata.deletion_timestamp.is_some() {
        // What it owns goes with it.
        return Ok(Action::await_change());
    }
    context.publisher.ready().await;
    let turn = Turn::new(&context, environment);
    let uid = Uid(environment.uid().unwrap_or_default());
    let mut memory = match context.memories.take(&uid) {
        Some(memory) => memory,
        None => turn.first_memory(&uid).await,
    };
    let next = turn.run(&mut memory).await;
    context.memories.put(uid, memory);
    Ok(next)
}
