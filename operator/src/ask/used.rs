//! Uses of flags that the sidecars of running pods counted.

use std::{collections::BTreeMap, fmt};

use futures::{StreamExt, stream};
use serde::Serialize;

use super::{
    cluster::Cluster,
    failure::Failure,
    pods::{CONCURRENT, Seen, requesting},
};
use crate::{api::names::EnvironmentName, rollout::sidecar::Uses};

/// Largest number of pods that are asked.
const ASKED_MAX: usize = 200;

/// Largest number of characters of an error about what a sidecar sent.
const QUOTED_MAX: usize = 1_000;

/// Uses of the flags of a snapshot, summed over the sidecars that answered.
#[derive(Debug, Default, Serialize)]
pub(super) struct Used {
    /// Number of pods whose sidecars run.
    pods: usize,
    /// Number of them that answered.
    answered: usize,
    /// Why the others did not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    #[serde(skip)]
    flags: BTreeMap<String, u64>,
}

impl Used {
    /// Number of uses of a flag. `None` if no pod answered.
    pub(super) fn of(&self, flag: &str) -> Option<u64> {
        (self.answered > 0).then(|| self.flags.get(flag).copied().unwrap_or_default())
    }

    fn add(&mut self, answer: Result<String, Failure>) {
        let uses = answer.and_then(|text| {
            serde_json::from_str::<Uses>(&text).map_err(|error| {
                // The error may quote all that the pod sent.
                let error: String = error.to_string().chars().take(QUOTED_MAX).collect();
                Failure::Unreadable(format!("a sidecar answers as no sidecar of this version does: {error}"))
            })
        });
        match uses {
            Ok(uses) => {
                self.answered += 1;
                for (flag, count) in uses.flags {
                    // A pod may name any flags, in any number.
                    if let Some(sum) = self.flags.get_mut(&flag) {
                        *sum = sum.saturating_add(count);
                    }
                }
            }
            Err(failure) => {
                self.problem.get_or_insert_with(|| failure.to_string());
            }
        }
    }
}

impl fmt::Display for Used {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pods, answered, problem, .. } = self;
        write!(f, "uses: as {answered} of {pods} running pods counted them since their sidecars started")?;
        if *pods > ASKED_MAX {
            write!(f, "; at most {ASKED_MAX} pods are asked")?;
        }
        problem.iter().try_for_each(|problem| write!(f, "; {problem}"))
    }
}

/// Asks the sidecars about these flags, through the API server. Never fails: without answers, [`Used`] says why.
pub(super) async fn used(
    cluster: &Cluster,
    environment: &EnvironmentName,
    flags: impl Iterator<Item = String>,
) -> Used {
    let pods = match requesting(cluster, environment).await {
        Ok(pods) => pods,
        Err(failure) => return Used { problem: Some(failure.to_string()), ..Used::default() },
    };
    let running: Vec<Seen> = pods.into_iter().filter(Seen::is_running).collect();
    let flags = flags.map(|flag| (flag, 0)).collect();
    let mut used = Used { pods: running.len(), flags, ..Used::default() };
    let path = format!("/uses/{environment}");
    let asking = running.iter().take(ASKED_MAX).map(|pod| pod.ask(cluster, &path));
    let mut answers = stream::iter(asking).buffer_unordered(CONCURRENT);
    while let Some(answer) = answers.next().await {
        used.add(answer);
    }
    used
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_that_the_snapshot_lacks_are_not_kept() {
        let mut used = Used { flags: BTreeMap::from([("banner".to_owned(), 0)]), ..Used::default() };
        let names: Vec<String> = (0..1_000).map(|number| format!("\"x{number}\": 1")).collect();
        for _ in 0..2 {
            used.add(Ok(format!(r#"{{"process": "p", "ageMs": 1, "uses": {{"banner": 3, {}}}}}"#, names.join(","))));
        }
        assert_eq!((used.of("banner"), used.of("x1"), used.flags.len()), (Some(6), Some(0), 1));
    }

    #[test]
    fn error_about_what_a_sidecar_sent_is_bounded() {
        let mut used = Used::default();
        used.add(Ok(format!(r#"{{"process": "p", "ageMs": "{}"}}"#, "x".repeat(1 << 20))));
        let shown = used.to_string();
        assert!(
            shown.contains("answers as no sidecar of this version does") && shown.len() < 2 * QUOTED_MAX,
            "{}",
            shown.len()
        );
    }
}
