//! `kubectl remora diff`: the differences between two revisions.

use std::fmt;

use remora_tools::diff::Differences;
use serde::Serialize;

use super::{
    answer::{CommandOutput, TextOutput},
    cluster::Cluster,
    failure::Failure,
    published,
};

/// Print the differences between two revisions of an environment. Exit code 1 if there are any.
#[derive(Debug, clap::Args)]
pub(super) struct Diff {
    /// Name of the FeatureEnvironment.
    environment: String,
    /// Earlier revision. Default: the revision that was published before the published one.
    #[arg(value_name = "REVISION")]
    before: Option<String>,
    /// Later revision. Default: the published revision.
    #[arg(value_name = "REVISION")]
    after: Option<String>,
}

/// The differences between two revisions.
#[derive(Debug, Serialize)]
pub(super) struct Compared {
    before: String,
    after: String,
    #[serde(flatten)]
    differences: Differences,
}

/// Compares two revisions.
pub(super) async fn diff(cluster: &Cluster, asked: &Diff) -> Result<Compared, Failure> {
    let environment = cluster.environment(&asked.environment).await?;
    let history = environment.status.as_ref().map(|status| status.history.as_slice()).unwrap_or_default();
    let Some(earlier) = asked.before.clone().or_else(|| history.first().map(|past| past.revision.to_string())) else {
        return Err(Failure::Usage(format!("no earlier revision of {:?} is kept", asked.environment)));
    };
    let before = published::read(cluster, &environment, Some(&earlier)).await?.snapshot;
    let after = published::read(cluster, &environment, asked.after.as_deref()).await?.snapshot;
    Ok(Compared {
        before: before.revision().to_string(),
        after: after.revision().to_string(),
        differences: Differences::between(&before, &after),
    })
}

impl CommandOutput for Compared {
    fn text(&self, output: &mut TextOutput) -> fmt::Result {
        output.line(format!("revision {} -> {}", self.before, self.after))?;
        if self.before == self.after {
            output.line("the revisions are the same")?;
        }
        self.differences.lines().iter().try_for_each(|line| output.line(line))
    }

    fn exit_code(&self) -> u8 {
        u8::from(self.before != self.after)
    }
}
