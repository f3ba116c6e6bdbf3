//! `kubectl remora explain`: the value of flags for one identity, the override that decided it, and the requirements of
//! the segments that override the flag.

use std::fmt;

use remora_snapshot::{Check, Decision, Explanation, Hash, SegmentExplanation};
use remora_tools::explain::{
    Explained, ExplainedFlag, Identity, explain as explain_snapshot, lines, segments::Verdict,
};
use serde::Serialize;
use serde_json::{Value, json};

use super::{
    answer::{CommandOutput, TextOutput},
    cluster::Cluster,
    failure::Failure,
    pods, published,
};
use crate::api::{FeatureEnvironment, names::annotation};

/// Print the value of flags for one identity, and the override that decided it. For a named flag, print also each segment
/// that overrides it: its requirements, the identity's values, and the percentages with the hash behind them.
#[derive(Debug, clap::Args)]
pub(super) struct Explain {
    /// Name of the FeatureEnvironment.
    environment: String,
    /// Names of flags. Default: all flags.
    flags: Vec<String>,
    #[command(flatten)]
    identity: Identity,
    /// Revision to evaluate. Default: the published revision.
    #[arg(long, value_name = "REVISION")]
    revision: Option<String>,
    /// Evaluate the revision that this pod serves. It must be published or kept: no port of a pod serves its files. A
    /// revision is the hash of its content, so both copies are the same.
    #[arg(long, value_name = "NAME", conflicts_with = "revision")]
    pod: Option<String>,
}

/// The explanations, with the revision that they are about.
pub(super) struct Answered {
    revision: String,
    explained: Explained,
    /// Flags that the pod answers otherwise.
    overridden: Vec<String>,
}

/// Evaluates the flags.
pub(super) async fn explain(cluster: &Cluster, asked: &Explain) -> Result<Answered, Failure> {
    let environment = cluster.environment(&asked.environment).await?;
    let (found, overridden) = match &asked.pod {
        Some(pod) => of_pod(cluster, &environment, pod).await?,
        None => (published::read(cluster, &environment, asked.revision.as_deref()).await?, Vec::new()),
    };
    let explained = explain_snapshot(&found.snapshot, &asked.identity, &asked.flags);
    Ok(Answered {
        overridden,
        revision: found.snapshot.revision().to_string(),
        explained: explained.map_err(|error| Failure::Usage(error.to_string()))?,
    })
}

/// Reads the revision that a pod serves from the objects of the cluster, and names the flags that the pod overrides.
async fn of_pod(
    cluster: &Cluster,
    environment: &FeatureEnvironment,
    pod: &str,
) -> Result<(published::Published, Vec<String>), Failure> {
    let pods::Served { revision, overrides } = pods::served(cluster, environment, pod).await?;
    let found = published::read(cluster, environment, Some(&revision)).await.map_err(|failure| match failure {
        Failure::Usage(message) => Failure::Unreadable(format!(
            "pod {pod} serves a revision that the cluster does not keep, and no port of the pod serves its files: {message}"
        )),
        other => other,
    })?;
    Ok((found, overrides))
}

impl CommandOutput for Answered {
    fn text(&self, output: &mut TextOutput) -> fmt::Result {
        output.line(format!("revision {}", self.revision))?;
        if let Some(overrun) = &self.explained.overrun {
            output.line(overrun)?;
        }
        for explanation in &self.explained.flags {
            let name = &explanation.result.feature;
            if self.is_overridden(name) {
                output.line(format!("{name}: overridden by the pod, by {}; without it:", annotation::OVERRIDES))?;
            }
            lines(explanation).iter().try_for_each(|line| output.line(line))?;
        }
        Ok(())
    }
}

impl Serialize for Answered {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let flags: Vec<Value> = self.explained.flags.iter().map(|explained| self.flag(explained)).collect();
        json!({"revision": self.revision, "overrun": self.explained.overrun, "flags": flags}).serialize(serializer)
    }
}

impl Answered {
    fn is_overridden(&self, flag: &str) -> bool {
        self.overridden.iter().any(|name| name == flag)
    }

    fn flag(&self, explained: &ExplainedFlag) -> Value {
        let mut value = flag(explained);
        if self.is_overridden(&explained.result.feature) {
            value["overriddenByPod"] = true.into();
        }
        value
    }
}

fn flag(explained: &ExplainedFlag) -> Value {
    let ExplainedFlag { result, segments } = explained;
    let Explanation { feature, enabled, value, reason, variant, decision, percentage, hash, server_only } = result;
    let by = match decision {
        Decision::Default => json!({"by": "default"}),
        Decision::IdentityOverride => json!({"by": "identity"}),
        Decision::Segment { name, rank } => json!({"by": "segment", "segment": name, "strongerOverrides": rank}),
    };
    let segments = segments.as_ref().map(|all| all.iter().map(|own| segment(own, decision)).collect::<Vec<_>>());
    json!({
        "flag": feature, "enabled": enabled, "value": value, "reason": reason, "variant": variant,
        "percentage": percentage, "hash": hash.as_ref().map(hashed), "decision": by, "serverOnly": server_only,
        "segments": segments,
    })
}

fn segment(own: &SegmentExplanation, decision: &Decision) -> Value {
    let checks = |checks: &[Check]| checks.iter().map(check).collect::<Vec<_>>();
    json!({
        "segment": own.name, "rank": own.rank, "verdict": Verdict::of(own, decision),
        "requirements": checks(&own.trace.requirements), "otherRulesAccept": own.trace.accepted,
        "conditions": checks(&own.trace.conditions), "conditionsNotNeeded": own.trace.skipped,
    })
}

fn check(check: &Check) -> Value {
    let Check { attribute, value, comparison, holds, hash } = check;
    json!({
        "attribute": attribute, "value": value, "comparison": comparison, "holds": holds,
        "hash": hash.as_ref().map(hashed),
    })
}

fn hashed(hash: &Hash) -> Value {
    json!({"text": hash.text, "md5": hash.md5, "percentage": hash.percentage})
}
