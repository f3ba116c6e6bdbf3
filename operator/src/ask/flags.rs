//! `kubectl remora flags`: the flags of a revision with their defaults, variants, overriding segments and uses.

use std::fmt;

use remora_snapshot::{FeatureDescription, Snapshot};
use remora_tools::{counted, shortened};
use serde::Serialize;

use super::{
    answer::{CommandOutput, TextOutput},
    cluster::Cluster,
    failure::Failure,
    published,
    used::{Used, used},
};
use crate::api::{IdleFlags, names::EnvironmentName};

/// List the flags of an environment with their defaults, variants, the segments that override them, and their uses.
///
/// Uses are those that SDKs report to sidecars, and single evaluations by OFREP.
#[derive(Debug, clap::Args)]
pub(super) struct Flags {
    /// Name of the FeatureEnvironment.
    environment: String,
    /// Revision to read. Default: the published revision.
    #[arg(long, value_name = "REVISION")]
    revision: Option<String>,
}

/// The flags of a revision.
#[derive(Debug, Serialize)]
pub(super) struct Listed {
    environment: String,
    revision: String,
    uses: Used,
    flags: Vec<Row>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    name: String,
    enabled: bool,
    /// Value as JSON.
    value: String,
    variants: Vec<Variant>,
    /// Names of the segments that override the flag, strongest first.
    segments: Vec<String>,
    server_only: bool,
    is_served: bool,
    /// Number of uses that running pods counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    uses: Option<u64>,
    /// Day since which the operator collected no use.
    #[serde(skip_serializing_if = "Option::is_none")]
    idle_since: Option<String>,
}

#[derive(Debug, Serialize)]
struct Variant {
    weight: String,
    value: String,
}

impl Row {
    fn of(feature: FeatureDescription<'_>, used: &Used, idle: Option<&IdleFlags>) -> Self {
        let idle = idle.and_then(|idle| idle.flags.iter().find(|idle| idle.flag == feature.name));
        let variants = feature.variants.into_iter();
        Self {
            uses: used.of(feature.name),
            idle_since: idle.map(|idle| idle.since.clone()),
            name: feature.name.to_owned(),
            enabled: feature.enabled,
            value: feature.value.into_owned(),
            variants: variants
                .map(|variant| Variant { weight: variant.weight.to_owned(), value: variant.value.into_owned() })
                .collect(),
            segments: feature.overrides.into_iter().map(|own| own.segment.to_owned()).collect(),
            server_only: feature.server_only,
            is_served: !feature.unserved,
        }
    }

    /// The uses as a table has them. Running pods may have counted uses that the operator has not collected yet.
    fn use_text(&self) -> String {
        match (self.uses, &self.idle_since) {
            (Some(uses @ 1..), _) => uses.to_string(),
            (_, Some(since)) => format!("none since {since}"),
            (Some(0), None) => "0".to_owned(),
            (None, None) => "-".to_owned(),
        }
    }
}

/// Lists the flags.
pub(super) async fn flags(cluster: &Cluster, asked: &Flags) -> Result<Listed, Failure> {
    let environment = cluster.environment(&asked.environment).await?;
    let found = published::read(cluster, &environment, asked.revision.as_deref()).await?;
    let name: EnvironmentName =
        asked.environment.parse().map_err(|error| Failure::Usage(format!("{:?}: {error}", asked.environment)))?;
    let flags = found.snapshot.describe().features.into_iter().map(|feature| feature.name.to_owned());
    let uses = used(cluster, &name, flags).await;
    let idle = environment.status.as_ref().and_then(|status| status.idle_flags.as_ref());
    Ok(listed(&asked.environment, &found.snapshot, uses, idle))
}

fn listed(environment: &str, snapshot: &Snapshot<Vec<u8>>, uses: Used, idle: Option<&IdleFlags>) -> Listed {
    let features = snapshot.describe().features.into_iter();
    Listed {
        environment: environment.to_owned(),
        revision: snapshot.revision().to_string(),
        flags: features.map(|feature| Row::of(feature, &uses, idle)).collect(),
        uses,
    }
}

impl CommandOutput for Listed {
    fn text(&self, output: &mut TextOutput) -> fmt::Result {
        output.line(format!("revision {}: {}", self.revision, counted(self.flags.len(), "flag")))?;
        let mut rows = vec![["FLAG", "STATE", "VALUE", "VARIANTS", "USES", "SEGMENTS", ""].map(str::to_owned).to_vec()];
        rows.extend(self.flags.iter().map(|flag| {
            let notes = [(flag.server_only, "server keys only"), (!flag.is_served, "not served")];
            let notes: Vec<&str> = notes.into_iter().filter(|(applies, _)| *applies).map(|(_, note)| note).collect();
            vec![
                flag.name.clone(),
                if flag.enabled { "on" } else { "off" }.to_owned(),
                shortened(&flag.value),
                flag.variants.len().to_string(),
                flag.use_text(),
                shortened(&flag.segments.join(", ")),
                notes.join(", "),
            ]
        }));
        output.table(&rows)?;
        output.line(self.uses.to_string())
    }
}
