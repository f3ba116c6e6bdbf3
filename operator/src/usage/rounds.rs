//! Reads the counters of one environment's sidecars in rounds, and sends what is new to the source.

mod read;
mod send;

use std::{sync::Arc, time::Duration};

use jiff::{Timestamp, civil::Date, tz::TimeZone};
use tokio::time::Instant;

use self::send::Failures;
use super::{
    Collection, CollectionTarget, Context, Unread, ledger::Ledger, pending::Pending, reads::Reads,
    state::CollectionState,
};
use crate::{
    api::NamespacedName,
    source::{back_off::around, trigger::Trigger},
};

/// Time between two rounds. A pod that ends loses the uses since the last one.
const INTERVAL: Duration = Duration::from_secs(60);

/// A collection that runs.
pub(super) struct Collecting {
    target: CollectionTarget,
    context: Arc<Context>,
    collection: Arc<Collection>,
    ledger: Ledger,
    pending: Pending,
    reads: Reads,
    failures: Failures,
    began: Instant,
}

impl Collecting {
    /// Begins to collect the uses of `target`'s flags, and shares the results in `collection`.
    pub(super) fn new(target: CollectionTarget, context: Arc<Context>, collection: Arc<Collection>) -> Self {
        let ledger = Ledger::new(context.memory.share(&target.namespace));
        Self {
            target,
            context,
            collection,
            ledger,
            pending: Pending::default(),
            reads: Reads::default(),
            failures: Failures::default(),
            began: Instant::now(),
        }
    }

    /// Reads and sends in rounds. The future never completes: dropping it ends the collection.
    pub(super) async fn run(mut self) {
        // The first round is soon, because uses of running pods count from it on.
        let mut pause = INTERVAL.mul_f64(0.1 * fastrand::f64());
        loop {
            tokio::time::sleep(pause.mul_f64(self.context.pause_factor)).await;
            pause = around(INTERVAL, fastrand::f64());
            let without_room = self.read().await;
            let day = today();
            let unread = self.reads.unread(day);
            self.collection.0.lock().unread = Some(Unread { day, pods: unread });
            self.send().await;
            self.show(CollectionState::of(self.failures.problem(), without_room, unread)).await;
        }
    }

    /// Shares the state. A state that changed is logged and reported.
    async fn show(&self, state: CollectionState) {
        let before = std::mem::replace(&mut self.collection.0.lock().state, state.clone());
        if before != state {
            let (namespace, environment) = (&self.target.namespace, &self.target.environment);
            tracing::info!(namespace, %environment, %state, "the state of the collection of flag uses changed");
            let environment = NamespacedName::new(namespace, environment.as_str());
            self.context.triggers.send(&environment, Trigger::Report).await;
        }
    }
}

/// Returns the current day in UTC.
pub(crate) fn today() -> Date {
    day(Timestamp::now())
}

fn day(time: Timestamp) -> Date {
    time.to_zoned(TimeZone::UTC).date()
}
