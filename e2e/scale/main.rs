//! Measures the controller at the size of a large company: `make scale`. See README.md.

mod admission;
mod chart;
mod control_plane;
mod controller;
mod fleet;
mod goals;
mod meter;
mod phases;
mod pods;
mod requests;
mod sidecars;
mod table;
mod usage;
mod wait;

use std::{io::Write as _, path::PathBuf, time::Duration};

use clap::Parser;
use fleet::Size;
use tokio::signal::unix::{SignalKind, signal};
use wait::until;

/// Measures the operator against a control plane with many environments and pods, prints tables, and fails if a goal is missed.
#[derive(Debug, Parser)]
struct Arguments {
    /// Number of FeatureEnvironments.
    #[arg(long, default_value_t = 200)]
    environments: usize,
    /// Number of pods. Half of them serve one environment.
    #[arg(long, default_value_t = 2000)]
    pods: usize,
    /// Number of nodes that the pods name.
    #[arg(long, default_value_t = 100)]
    nodes: usize,
    /// Seconds for which the steady state is measured.
    #[arg(long, default_value_t = 60)]
    steady: u64,
    /// Directory with etcd, kube-apiserver, kube-controller-manager, kubectl and helm.
    #[arg(long)]
    bin: PathBuf,
    /// The operator's program.
    #[arg(long)]
    operator: PathBuf,
    /// Directory for the state and the logs. It must not exist.
    #[arg(long)]
    directory: PathBuf,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    // kube needs the process-wide crypto provider; a provider that is installed already is the same.
    let _ = rustls::crypto::ring::default_provider().install_default();
    anyhow::ensure!(!arguments.directory.exists(), "{} exists", arguments.directory.display());
    let size = Size { environments: arguments.environments, pods: arguments.pods, nodes: arguments.nodes.max(1) };
    let steady = Duration::from_secs(arguments.steady);
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let report = tokio::select! {
        report = phases::run(size, steady, &arguments.bin, &arguments.operator, &arguments.directory) => report?,
        // The processes of the control plane end with the phases.
        _ = interrupt.recv() => anyhow::bail!("interrupted"),
        _ = terminate.recv() => anyhow::bail!("terminated"),
    };
    std::io::stdout().write_all(report.text.as_bytes())?;
    let missed = report.goals.missed();
    anyhow::ensure!(missed.is_empty(), "goals missed: {}", missed.join("; "));
    Ok(())
}

/// Writes a line about the progress to standard error.
fn say(text: &str) -> anyhow::Result<()> {
    writeln!(std::io::stderr(), "{text}")?;
    Ok(())
}
