//! Asks the pods of one environment in rounds.

use std::{
    collections::HashSet,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt, stream};
use parking_lot::Mutex;

use super::{Means, Subject, ask::Reply, pods, pods::Injected, tally::Tally};
use crate::{api::Pods, source::wake::Haste};

/// Number of pods of one environment that are asked at a time.
const AT_ONCE: usize = 16;
/// Largest number of pods that are asked. Of more pods, a sample of this size is asked.
const SAMPLE: usize = 500;
/// Pauses before the first rounds after a publication with notification, which pods follow within a second.
const NUDGED: [Duration; 4] =
    [Duration::from_secs(2), Duration::from_secs(3), Duration::from_secs(5), Duration::from_secs(8)];
/// Pauses before the first rounds without notification: kubelet updates volumes every 60 to 90 seconds.
const UNHURRIED: [Duration; 3] = [Duration::from_secs(30), Duration::from_secs(60), Duration::from_secs(60)];
/// Pause between later rounds while pods serve another revision.
const LATER: Duration = Duration::from_secs(60);
/// Pause between rounds while all pods serve the revision. New pods may not.
const CALM: Duration = Duration::from_secs(300);
/// Number of rounds that notify pods again. After them the status names the pods.
const NUDGES: usize = 10;
/// First round whose counts are reported even if pods are still on their way.
const TELL_FROM: usize = 2;

/// Result of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outlook {
    /// All pods serve the revision.
    Settled,
    /// The revision of some pods is unknown.
    Open,
    /// Some pods serve another revision.
    Behind,
}

/// Pause before a round.
fn pause(nudge: bool, round: usize, outlook: Outlook) -> Duration {
    let early: &[Duration] = if nudge { &NUDGED } else { &UNHURRIED };
    match early.get(round) {
        Some(pause) if outlook != Outlook::Settled => *pause,
        None if outlook == Outlook::Behind => LATER,
        // A pod that does not answer or start may never do so.
        _ => CALM,
    }
}

/// True if pods have had enough time to follow.
fn is_late(nudge: bool, round: usize) -> bool {
    let early = if nudge { NUDGED.len() } else { UNHURRIED.len() };
    round + 1 >= early
}

/// Observes the pods of `subject` in rounds. The future never completes: dropping it ends the observation.
pub(super) async fn attend(subject: Subject, means: Arc<Means>, found: Arc<Mutex<Option<Pods>>>) {
    let (namespace, environment) = (&subject.namespace, &subject.environment);
    let mut current = HashSet::new();
    let mut outlook = Outlook::Open;
    for round in 0.. {
        tokio::time::sleep(pause(subject.nudge, round, outlook).mul_f64(means.pace * (0.9 + 0.2 * fastrand::f64())))
            .await;
        let all = match pods::list(&means.client, namespace, environment).await {
            Ok(all) => all,
            Err(error) => {
                tracing::warn!(namespace, %environment, %error, "cannot list the pods of the environment");
                continue;
            }
        };
        let tally = ask(&subject, &means, all, &mut current).await;
        outlook = match &tally {
            tally if tally.is_settled() => Outlook::Settled,
            tally if tally.is_behind() => Outlook::Behind,
            _ => Outlook::Open,
        };
        if subject.nudge && round < NUDGES && !tally.behind.is_empty() {
            let names = tally.behind.iter().map(|pod| pod.name.clone()).collect();
            let again = means.nudger.again(namespace, environment, &subject.revision, round + 2, names).await;
            tracing::info!(namespace, %environment, pods = tally.behind.len(), told = again, "notified pods again");
        }
        if outlook == Outlook::Settled || round >= TELL_FROM {
            let pods = tally.report(&(&subject).into(), is_late(subject.nudge, round));
            let news = found.lock().replace(pods.clone()).as_ref() != Some(&pods);
            if news {
                means.wake.call(namespace, environment.as_str(), Haste::Look).await;
            }
        }
    }
}

/// Asks the pods that may serve the revision and are not known to serve it.
async fn ask(subject: &Subject, means: &Means, all: Vec<Injected>, current: &mut HashSet<String>) -> Tally {
    let total = all.len();
    let sample = sample(all, &subject.revision, SAMPLE);
    current.retain(|uid| sample.iter().any(|pod| pod.uid == *uid));
    let mut tally = Tally { total, asked: sample.len(), current: current.len(), ..Tally::default() };
    tally.inspect(&sample, &subject.into());
    let is_unknown = |pod: &Injected| !current.contains(&pod.uid) && !tally.other_format.contains(pod);
    let unknown: Vec<Injected> = sample.into_iter().filter(is_unknown).collect();
    let mut replies = stream::iter(unknown)
        .map(async |pod| match pod.admin {
            Some(admin) => {
                let reply = means.asker.ask(admin, subject.environment.as_str()).await;
                (pod, reply)
            }
            None => (pod, Reply::Serves(None)),
        })
        .buffer_unordered(AT_ONCE);
    while let Some((pod, reply)) = replies.next().await {
        if reply == Reply::Serves(Some(subject.revision.clone())) {
            current.insert(pod.uid.clone());
        }
        tally.count(pod, &reply, &subject.revision);
    }
    tally
}

/// Selects at most `most` pods: always the same ones for one revision, others for another.
fn sample(mut all: Vec<Injected>, revision: &str, most: usize) -> Vec<Injected> {
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
    fn pause_grows_after_first_rounds() {
        assert_eq!(pause(true, 0, Outlook::Open), NUDGED[0]);
        assert_eq!(pause(false, 0, Outlook::Open), UNHURRIED[0]);
        assert_eq!(pause(true, 50, Outlook::Behind), LATER);
        assert_eq!(pause(true, 1, Outlook::Settled), CALM);
        assert_eq!(pause(true, 50, Outlook::Open), CALM);
        assert!(!is_late(true, 2) && is_late(true, 3) && !is_late(false, 1) && is_late(false, 2));
    }

    #[test]
    fn sample_depends_on_revision_and_not_on_order() {
        let pods: Vec<Injected> = (0..100)
            .map(|number| Injected {
                uid: format!("uid-{number}"),
                name: String::new(),
                admin: None,
                room: None,
                volume: None,
            })
            .collect();
        let mut turned = pods.clone();
        turned.reverse();
        assert_eq!(sample(pods.clone(), "a", 10), sample(turned, "a", 10));
        assert_ne!(sample(pods.clone(), "a", 10), sample(pods.clone(), "b", 10));
        assert_eq!(sample(pods.clone(), "a", 10).len(), 10);
        assert_eq!(sample(pods.clone(), "a", 100), pods);
    }
}
