//! Reads the counters of all pods of an environment once.

use std::{collections::HashSet, net::SocketAddr, sync::Arc, time::Duration};

use futures::{StreamExt, stream};

use super::{Collecting, day, today};
use crate::{
    api::NamespacedName,
    usage::metrics::{Fate, Reading},
};

/// Number of pods of one environment that are asked at a time.
const CONCURRENT_REQUESTS: usize = 8;
/// Pause before each request: at most 200 pods of an environment are asked in a second.
const PACE: Duration = Duration::from_millis(40);
/// Number of used flags that are remembered for the next report of the environment.
const NAMES_MAX: usize = 16 << 10;

impl Collecting {
    /// Reads the counters of all pods. Returns the number of pods whose counts have no room in memory.
    pub(super) async fn read(&mut self) -> usize {
        let Self { target, context, collection, ledger, pending, reads, began, .. } = self;
        let environment = &target.environment;
        context.pods.ready().await;
        let all = context.pods.of(&NamespacedName::new(&target.namespace, environment.as_str()));
        let runs = all.iter().filter(|pod| pod.admin.is_some());
        reads.start(&runs.map(|pod| (pod.uid.as_str(), pod.created.map(day))).collect::<Vec<_>>(), today());
        let running: Vec<(String, SocketAddr)> =
            all.iter().filter_map(|pod| Some((pod.uid.clone(), pod.admin?))).collect();
        let mut answers = stream::iter(running)
            .map(async |(pod, admin)| {
                tokio::time::sleep(PACE.mul_f64(context.pause_factor)).await;
                // A process that is younger than this began after the collection did.
                let age = began.elapsed();
                (pod, age, context.sidecars.uses(admin, &target.namespace, environment).await)
            })
            .buffer_unordered(CONCURRENT_REQUESTS);
        let mut left_out = 0;
        while let Some((pod, age, answer)) = answers.next().await {
            let Some(answer) = answer else {
                context.metrics.count_reading(Reading::Silent);
                continue;
            };
            let is_young = Duration::from_millis(answer.age_ms) < age;
            let mut dropped = 0_u64;
            let today = today();
            let add = |name: &Arc<str>, uses| {
                let used = &mut collection.0.lock().used;
                if used.len() < NAMES_MAX || used.contains_key(name) {
                    used.insert(Arc::clone(name), today);
                }
                dropped = dropped.saturating_add(pending.add(name, uses));
            };
            let reading = match ledger.take(&pod, answer, is_young, add) {
                Ok(()) => {
                    reads.read(&pod, today);
                    Reading::Read
                }
                Err(_) => Reading::OutOfMemory,
            };
            context.metrics.count_uses(Fate::Dropped, dropped);
            left_out += usize::from(reading == Reading::OutOfMemory);
            context.metrics.count_reading(reading);
        }
        ledger.retain(&all.iter().map(|pod| pod.uid.as_str()).collect::<HashSet<_>>());
        left_out
    }
}
