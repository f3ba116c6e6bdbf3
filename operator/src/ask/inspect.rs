//! `kubectl remora inspect`: the content of a revision.

use std::fmt;

use remora_tools::inspect::Content;

use super::{
    answer::{CommandOutput, TextOutput},
    cluster::Cluster,
    failure::Failure,
    published,
};

/// Print the content of a revision: features, segments that can change an answer, sizes, and notes of the operator.
#[derive(Debug, clap::Args)]
pub(super) struct Inspect {
    /// Name of the FeatureEnvironment.
    environment: String,
    /// Revision to read. Default: the published revision.
    #[arg(long, value_name = "REVISION")]
    revision: Option<String>,
}

/// Describes a revision.
pub(super) async fn inspect(cluster: &Cluster, asked: &Inspect) -> Result<Content, Failure> {
    let environment = cluster.environment(&asked.environment).await?;
    let found = published::read(cluster, &environment, asked.revision.as_deref()).await?;
    Ok(Content::of(&found.snapshot))
}

impl CommandOutput for Content {
    fn text(&self, output: &mut TextOutput) -> fmt::Result {
        self.lines().iter().try_for_each(|line| output.line(line))
    }
}
