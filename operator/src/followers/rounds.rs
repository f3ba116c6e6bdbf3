//! Asking the pods of one environment, round after round.

use std::{
    collections::HashSet,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::{StreamExt, stream};

use super::{Means, Subject, ask::Reply, lock, pods, pods::Injected, tally::Tally};
use crate::{api::Pods, wake::Haste};

/// Pods of one environment that are asked at one time.
const AT_ONCE: usize = 16;
/// Of more pods than this, as many are asked.
const SAMPLE: usize = 500;
/// Pauses before the rounds after a publication: a nudged pod follows within a second.
const NUDGED: [Duration; 4] =
    [Duration::from_secs(2), Duration::from_secs(3), Duration::from_secs(5), Duration::from_secs(8)];
/// The same where nobody is nudged: a kubelet comes by every 60 to 90 seconds.
const UNHURRIED: [Duration; 3] = [Duration::from_secs(30), Duration::from_secs(60), Duration::from_secs(60)];
/// Between rounds while some are behind after all those.
const LATER: Duration = Duration::from_secs(60);
/// Between rounds while all is well: pods come and go.
const CALM: Duration = Duration::from_secs(300);
/// Pods are nudged again so often, and then left to whoever reads the report.
const NUDGES: usize = 10;
/// Counts of a publication under way are told from this round on, if they have not settled before.
const TELL_FROM: usize = 2;

/// What the last round found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outlook {
    /// All serve the revision.
    Settled,
    /// Of some it is not known.
    Open,
    /// Some serve another.
    Behind,
}

/// The pace of an environment.
fn pause(nudge: bool, round: usize, outlook: Outlook) -> Duration {
    let early: &[Duration] = if nudge { &NUDGED } else { &UNHURRIED };
    match early.get(round) {
        Some(pause) if outlook != Outlook::Settled => *pause,
        None if outlook == Outlook::Behind => LATER,
        // Who does not answer, or does not start, may never.
        _ => CALM,
    }
}

/// Whether pods had their time.
fn is_late(nudge: bool, round: usize) -> bool {
    let early = if nudge { NUDGED.len() } else { UNHURRIED.len() };
    round + 1 >= early
}

/// Asks for as long as the environment is what it is; whoever wants an end to it drops it.
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
                tracing::warn!(namespace, %environment, %error, "cannot list the pods to ask");
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
            tracing::info!(namespace, %environment, pods = tally.behind.len(), told = again, "pods are nudged again");
        }
        if outlook == Outlook::Settled || round >= TELL_FROM {
            let pods = tally.report(&(&subject).into(), is_late(subject.nudge, round));
            let news = lock(&found).replace(pods.clone()).as_ref() != Some(&pods);
            if news {
                means.wake.call(namespace, environment.as_str(), Haste::Look).await;
            }
        }
    }
}

/// Asks those that are not known to be current, and can be.
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

/// At most `most` of them: for one revision always the same, for another others.
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
    fn rounds_become_rarer() {
        assert_eq!(pause(true, 0, Outlook::Open), NUDGED[0]);
        assert_eq!(pause(false, 0, Outlook::Open), UNHURRIED[0]);
        assert_eq!(pause(true, 50, Outlook::Behind), LATER);
        assert_eq!(pause(true, 1, Outlook::Settled), CALM);
        assert_eq!(pause(true, 50, Outlook::Open), CALM);
        assert!(!is_late(true, 2) && is_late(true, 3) && !is_late(false, 1) && is_late(false, 2));
    }

    #[test]
    fn a_sample_stays_for_a_revision_and_changes_with_it() {
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
