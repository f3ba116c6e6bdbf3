//! Asks the pods of one environment in rounds.

use std::{
    collections::{HashMap, HashSet},
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt, stream};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{Deps, ObservationTarget, counts::Counts};
use crate::{
    api::{NamespacedName, Pods, Revision},
    rollout::{
        nudge::is_unnotified,
        pods::{Injected, staying},
        sidecar::Reply,
    },
    source::{back_off::around, trigger::Trigger},
};

/// Number of pods of one environment that are asked at a time.
const CONCURRENT_REQUESTS: usize = 16;
/// Largest number of pods that are asked. Of more pods, a sample of this size is asked.
const SAMPLE: usize = 500;
/// Pauses before the first rounds after a publication with notification, which pods follow within a second.
const PAUSES_WITH_NUDGE: [Duration; 4] =
    [Duration::from_secs(2), Duration::from_secs(3), Duration::from_secs(5), Duration::from_secs(8)];
/// Pauses before the first rounds without notification: kubelet updates volumes every 60 to 90 seconds.
const PAUSES_WITHOUT_NUDGE: [Duration; 3] = [Duration::from_secs(30), Duration::from_secs(60), Duration::from_secs(60)];
/// Pause between later rounds while pods serve another revision.
const PAUSE_WHILE_BEHIND: Duration = Duration::from_secs(60);
/// Pause between rounds while all pods serve the revision. New pods may not.
const PAUSE_WHEN_SETTLED: Duration = Duration::from_secs(300);
/// Number of rounds that notify pods again. Later rounds only count and report.
const NUDGE_ROUNDS: usize = 10;
/// Longest time for which the first round waits until all pods are notified: 5,000 pods take half a minute.
const NOTIFIED_WITHIN: Duration = Duration::from_secs(120);
/// Longest time without another notified pod: the others may have started after the notification, or refuse it.
const NOTIFICATION_STALLED: Duration = Duration::from_secs(30);
/// Time between two looks whether all pods are notified.
const NOTIFIED_LOOK: Duration = Duration::from_millis(500);
/// Number of rounds in a row in which a pod is asked though it is silent. Afterwards, only every third round asks it: each
/// of its questions takes until the timeout.
const SILENT_ROUNDS: u32 = 2;
/// First round, counted from 0, whose counts are reported even if some pods do not serve the revision yet.
const REPORT_FROM_ROUND: usize = 2;

/// Result of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// All pods serve the revision.
    Settled,
    /// The revision of some pods is unknown.
    Open,
    /// Some pods serve another revision.
    Behind,
}

/// Pause before a round.
fn pause(nudge: bool, round: usize, progress: Progress) -> Duration {
    let early: &[Duration] = if nudge { &PAUSES_WITH_NUDGE } else { &PAUSES_WITHOUT_NUDGE };
    match early.get(round) {
        Some(pause) if progress != Progress::Settled => *pause,
        None if progress == Progress::Behind => PAUSE_WHILE_BEHIND,
        // A pod that does not answer or start may never do so.
        _ => PAUSE_WHEN_SETTLED,
    }
}

/// True if pods have had enough time to follow.
fn is_late(nudge: bool, round: usize) -> bool {
    let early = if nudge { PAUSES_WITH_NUDGE.len() } else { PAUSES_WITHOUT_NUDGE.len() };
    round + 1 >= early
}

/// Observes the pods of `target` in rounds. The future never completes: dropping it ends the observation.
pub(super) async fn observe(target: ObservationTarget, deps: Arc<Deps>, found: Arc<Mutex<Option<Pods>>>) {
    let (namespace, environment) = (&target.namespace, &target.environment);
    let mut known = Known::default();
    let mut progress = Progress::Open;
    if target.nudge {
        // A pod that is not notified yet is neither late nor to be notified again. After the limit, the rounds count it.
        let limit = NOTIFIED_WITHIN.mul_f64(deps.pause_factor);
        let _ = tokio::time::timeout(limit, all_notified(&target, &deps)).await;
    }
    for round in 0.. {
        tokio::time::sleep(around(pause(target.nudge, round, progress), fastrand::f64()).mul_f64(deps.pause_factor))
            .await;
        deps.pods.ready().await;
        let all = staying(&deps.pods, namespace, environment);
        let counts = ask(&target, &deps, all, &mut known).await;
        progress = match &counts {
            counts if counts.is_settled() => Progress::Settled,
            counts if counts.is_behind() => Progress::Behind,
            _ => Progress::Open,
        };
        // A busy API server may take longer than the first round waits: another patch of each pod would double its work.
        let may_notify = target.nudge && !deps.nudger.is_notifying(namespace, environment);
        if may_notify && round < NUDGE_ROUNDS && !counts.behind.is_empty() {
            let (revision, behind) = (&target.revision, &counts.behind);
            let notified = deps.nudger.nudge_again(namespace, environment, revision, round + 2, behind).await;
            tracing::info!(namespace, %environment, pods = counts.behind.len(), notified, "notified pods again");
        }
        if progress == Progress::Settled || round >= REPORT_FROM_ROUND {
            let pods = counts.report(&target, is_late(target.nudge, round));
            let is_new = found.lock().replace(pods.clone()).as_ref() != Some(&pods);
            if is_new {
                deps.triggers.send(&NamespacedName::new(namespace, environment.as_str()), Trigger::Report).await;
            }
        }
    }
}

/// Waits until all pods that run now are notified of the revision. A pod that starts later, or started with the
/// revision, is not notified.
async fn all_notified(target: &ObservationTarget, deps: &Deps) {
    let is_waiting = |pod: &Arc<Injected>| is_unnotified(pod, &target.revision, target.published_at);
    let unnotified = || {
        let all = staying(&deps.pods, &target.namespace, &target.environment);
        all.into_iter().filter(is_waiting).map(|pod| pod.uid.clone()).collect::<HashSet<String>>()
    };
    deps.pods.ready().await;
    let (mut waiting, mut since) = (unnotified(), Instant::now());
    while !waiting.is_empty() && since.elapsed() < NOTIFICATION_STALLED.mul_f64(deps.pause_factor) {
        tokio::time::sleep(NOTIFIED_LOOK.mul_f64(deps.pause_factor)).await;
        let before = waiting.len();
        let still = unnotified();
        waiting.retain(|uid| still.contains(uid));
        // Pods of other environments may come first.
        if waiting.len() < before || deps.nudger.is_notifying(&target.namespace, &target.environment) {
            since = Instant::now();
        }
    }
}

/// UIDs of pods by what earlier rounds have found.
#[derive(Debug, Default)]
struct Known {
    /// Pods that serve the revision.
    current: HashSet<String>,
    /// Silent pods, with the number of rounds since they answered.
    silent: HashMap<String, u32>,
}

/// True if a pod is asked that has not answered for this many rounds.
fn is_asked(silent_rounds: u32) -> bool {
    silent_rounds < SILENT_ROUNDS || silent_rounds % 3 == 1
}

/// Asks the pods that may serve the revision and are not known to serve it. A pod that is not asked because it was silent
/// counts as silent.
async fn ask(target: &ObservationTarget, deps: &Deps, all: Vec<Arc<Injected>>, known: &mut Known) -> Counts {
    let Known { current, silent } = known;
    let total = all.len();
    let sample = sample(all, &target.revision, SAMPLE);
    let sample: Vec<Injected> = sample.iter().map(|pod| Injected::clone(pod)).collect();
    let uids: HashSet<&str> = sample.iter().map(|pod| pod.uid.as_str()).collect();
    current.retain(|uid| uids.contains(uid.as_str()));
    silent.retain(|uid, _| uids.contains(uid.as_str()));
    let mut counts = Counts { total, asked: sample.len(), current: current.len(), ..Counts::default() };
    counts.inspect(&sample, target);
    let is_unknown = |pod: &Injected| !current.contains(&pod.uid) && !counts.other_format.contains(pod);
    let unknown: Vec<Injected> = sample.into_iter().filter(is_unknown).collect();
    let before = silent.clone();
    let silent_rounds = |pod: &Injected| before.get(&pod.uid).copied().unwrap_or_default();
    let mut replies = stream::iter(unknown)
        .map(async |pod| match pod.admin {
            Some(_) if !is_asked(silent_rounds(&pod)) => (pod, Reply::Silent),
            Some(admin) => {
                let reply = deps.sidecars.ask(admin, &target.namespace, &target.environment).await;
                (pod, reply)
            }
            None => (pod, Reply::Serves(None)),
        })
        .buffer_unordered(CONCURRENT_REQUESTS);
    while let Some((pod, reply)) = replies.next().await {
        if reply == Reply::Serves(Some(target.revision.clone())) {
            current.insert(pod.uid.clone());
        }
        if reply == Reply::Silent {
            *silent.entry(pod.uid.clone()).or_default() += 1;
        } else {
            silent.remove(&pod.uid);
        }
        counts.count(pod, &reply, &target.revision);
    }
    counts
}

/// Selects at most `most` pods: always the same ones for one revision, others for another.
fn sample(mut all: Vec<Arc<Injected>>, revision: &Revision, most: usize) -> Vec<Arc<Injected>> {
    if all.len() > most {
        all.sort_by_cached_key(|pod| {
            let mut hasher = DefaultHasher::new();
            (&pod.uid, revision).hash(&mut hasher);
            hasher.finish()
        });
        all.truncate(most);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pod_that_was_silent_twice_is_asked_in_every_third_round() {
        let asked: Vec<u32> = (0..12).filter(|rounds| is_asked(*rounds)).collect();
        assert_eq!(asked, [0, 1, 4, 7, 10]);
    }

    #[test]
    fn pause_grows_after_first_rounds() {
        assert_eq!(pause(true, 0, Progress::Open), PAUSES_WITH_NUDGE[0]);
        assert_eq!(pause(false, 0, Progress::Open), PAUSES_WITHOUT_NUDGE[0]);
        assert_eq!(pause(true, 50, Progress::Behind), PAUSE_WHILE_BEHIND);
        assert_eq!(pause(true, 1, Progress::Settled), PAUSE_WHEN_SETTLED);
        assert_eq!(pause(true, 50, Progress::Open), PAUSE_WHEN_SETTLED);
        assert!(!is_late(true, 2) && is_late(true, 3) && !is_late(false, 1) && is_late(false, 2));
    }

    #[test]
    fn sample_depends_on_revision_and_not_on_order() {
        let pod = |number: u32| Injected::named(&format!("uid-{number}"));
        let pods: Vec<Arc<Injected>> = (0..100).map(|number| Arc::new(pod(number))).collect();
        let mut turned = pods.clone();
        turned.reverse();
        let [a, b] = ["a", "b"].map(Revision::new);
        assert_eq!(sample(pods.clone(), &a, 10), sample(turned, &a, 10));
        assert_ne!(sample(pods.clone(), &a, 10), sample(pods.clone(), &b, 10));
        assert_eq!(sample(pods.clone(), &a, 10).len(), 10);
        assert_eq!(sample(pods.clone(), &a, 100), pods);
    }
}
