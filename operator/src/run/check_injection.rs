//! `remora-operator check-injection`: one self-check from the command line, for `helm test`.

use std::io::Write;

use anyhow::Context as _;
use kube::{Api, Client};

use super::process::{self, BAD_CONFIGURATION};
use crate::injection::self_check;

/// Check once by a dry run that a new pod gets its sidecar. Fails with the cause if it does not.
#[derive(Debug, clap::Args)]
pub struct CheckInjection {
    /// Namespace of the operator. Only its controller's service account may send the dry run.
    #[arg(long, env = "POD_NAMESPACE", default_value = "remora-system")]
    namespace: String,
    /// Image of the pod in the dry run. It never runs, but the namespace has to admit it.
    #[arg(long)]
    image: String,
}

impl CheckInjection {
    /// Sends the dry run and writes the result to `out`.
    ///
    /// # Errors
    /// If the pod would not get a sidecar, or the API server cannot be reached.
    pub fn run(&self, out: &mut impl Write) -> anyhow::Result<()> {
        tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
            let client = Client::try_from(process::configuration().await?).context(BAD_CONFIGURATION)?;
            self_check::check(&Api::namespaced(client, &self.namespace), &self.image).await?;
            Ok::<_, anyhow::Error>(())
        })?;
        writeln!(out, "injection works: a pod that asks for a sidecar gets one")?;
        Ok(())
    }
}
