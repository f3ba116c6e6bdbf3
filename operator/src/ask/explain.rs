//! `kubectl remora explain`: the value of flags for one identity, and the rule that decided it.

use std::fmt;

use remora_snapshot::{Decision, Explanation};
use serde::Serialize;
use serde_json::{Value, json};

use super::{
    answer::{Answer, Page, printable},
    cluster::Cluster,
    failure::Failure,
    published,
};
use crate::tools::explain::{Explained, Identity, explain as explain_snapshot, lines};

/// Print the value of flags for one identity, and the rule that decided it.
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
}

/// The explanations, with the revision that they are about.
pub(super) struct Answered {
    revision: String,
    explained: Explained,
}

/// Evaluates the flags.
pub(super) async fn explain(cluster: &Cluster, asked: &Explain) -> Result<Answered, Failure> {
    let environment = cluster.environment(&asked.environment).await?;
    let found = published::read(cluster, &environment, asked.revision.as_deref()).await?;
    let explained = explain_snapshot(&found.snapshot, &asked.identity, &asked.flags);
    Ok(Answered {
        revision: found.snapshot.revision().to_string(),
        explained: explained.map_err(|error| Failure::Usage(error.to_string()))?,
    })
}

impl Answer for Answered {
    fn text(&self, page: &mut Page) -> fmt::Result {
        page.line(format!("revision {}", self.revision))?;
        if let Some(overrun) = &self.explained.overrun {
            page.line(printable(overrun))?;
        }
        for explanation in &self.explained.flags {
            lines(explanation).iter().try_for_each(|line| page.line(printable(line)))?;
        }
        Ok(())
    }
}

impl Serialize for Answered {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let flags: Vec<Value> = self.explained.flags.iter().map(flag).collect();
        json!({"revision": self.revision, "overrun": self.explained.overrun, "flags": flags}).serialize(serializer)
    }
}

fn flag(explanation: &Explanation) -> Value {
    let Explanation { feature, enabled, value, reason, variant, decision, percentage, server_only } = explanation;
    let decision = match decision {
        Decision::Default => json!({"by": "default"}),
        Decision::IdentityOverride => json!({"by": "identity"}),
        Decision::Segment { name, rank } => json!({"by": "segment", "segment": name, "strongerOverrides": rank}),
    };
    json!({
        "flag": feature, "enabled": enabled, "value": value, "reason": reason, "variant": variant,
        "percentage": percentage, "decision": decision, "serverOnly": server_only,
    })
}
