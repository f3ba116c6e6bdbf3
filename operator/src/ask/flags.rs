//! `kubectl remora flags`: the flags of a revision with their defaults, variants and overriding segments.

use std::fmt;

use remora_snapshot::{FeatureDescription, Snapshot};
use serde::Serialize;

use super::{
    answer::{Answer, Page, printable},
    cluster::Cluster,
    failure::Failure,
    published,
};
use crate::tools::shortened;

/// List the flags of an environment with their defaults, variants, and the segments that override them.
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
}

#[derive(Debug, Serialize)]
struct Variant {
    weight: String,
    value: String,
}

impl From<FeatureDescription> for Row {
    fn from(feature: FeatureDescription) -> Self {
        let variants = feature.variants.into_iter();
        Self {
            name: feature.name,
            enabled: feature.enabled,
            value: feature.value,
            variants: variants.map(|variant| Variant { weight: variant.weight, value: variant.value }).collect(),
            segments: feature.overrides.into_iter().map(|own| own.segment).collect(),
            server_only: feature.server_only,
            is_served: !feature.unserved,
        }
    }
}

/// Lists the flags.
pub(super) async fn flags(cluster: &Cluster, asked: &Flags) -> Result<Listed, Failure> {
    let environment = cluster.environment(&asked.environment).await?;
    let found = published::read(cluster, &environment, asked.revision.as_deref()).await?;
    Ok(listed(&asked.environment, &found.snapshot))
}

fn listed(environment: &str, snapshot: &Snapshot<Vec<u8>>) -> Listed {
    Listed {
        environment: environment.to_owned(),
        revision: snapshot.revision().to_string(),
        flags: snapshot.describe().features.into_iter().map(Row::from).collect(),
    }
}

impl Answer for Listed {
    fn text(&self, page: &mut Page) -> fmt::Result {
        page.line(format!("revision {}: {} flags", self.revision, self.flags.len()))?;
        let mut rows = vec![["FLAG", "STATE", "VALUE", "VARIANTS", "SEGMENTS", ""].map(str::to_owned).to_vec()];
        rows.extend(self.flags.iter().map(|flag| {
            let notes = [(flag.server_only, "server keys only"), (!flag.is_served, "not served")];
            let notes: Vec<&str> = notes.into_iter().filter(|(applies, _)| *applies).map(|(_, note)| note).collect();
            vec![
                printable(&flag.name),
                if flag.enabled { "on" } else { "off" }.to_owned(),
                printable(&shortened(&flag.value)),
                flag.variants.len().to_string(),
                printable(&shortened(&flag.segments.join(", "))),
                notes.join(", "),
            ]
        }));
        page.table(&rows)
    }
}
