//! Process of a command: its log, its client, its admin port, and its end.

use std::{future::pending, net::SocketAddr};

use anyhow::{Context as _, bail};
use clap::Args;
use kube::{Client, Config};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
};

use super::{
    admin::{self, Gates},
    log,
};
use crate::controller::metrics::Metrics;

pub(super) const BAD_CONFIGURATION: &str =
    "cannot use the cluster's address or credentials: check the service account or the kubeconfig";

/// Arguments that both commands have.
#[derive(Debug, Args)]
pub(crate) struct ProcessArguments {
    /// Namespace of the operator itself. Its lease, its certificates and its self-check use this namespace.
    #[arg(long, env = "POD_NAMESPACE", default_value = "remora-system")]
    pub(super) namespace: String,
    /// Address and port on which the operator serves `/healthz`, `/readyz` and `/metrics` over HTTP.
    #[arg(long, value_name = "ADDRESS", default_value = "[::]:8080")]
    admin_listen: SocketAddr,
    /// Log level: error, warn, info, debug or trace, or directives such as `info,remora_operator=debug`.
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub(crate) log_level: String,
    /// Write the log as JSON, one object per line. Default: text.
    #[arg(long)]
    pub(crate) log_json: bool,
}

/// Configuration, client, metrics and shutdown signal of a command.
pub(super) struct Process {
    pub(super) config: Config,
    pub(super) client: Client,
    pub(super) metrics: Metrics,
    /// Becomes true with SIGTERM or SIGINT.
    pub(super) stopping: watch::Receiver<bool>,
    gates: Gates,
}

impl Process {
    /// Adds a condition of readiness, which is false until the sender says otherwise.
    pub(super) fn gate(&mut self, name: &'static str) -> watch::Sender<bool> {
        let (ready, gate) = watch::channel(false);
        self.gates.push((name, gate));
        ready
    }
}

/// Runs the work that `start` returns, beside the admin port, until the work has ended after SIGTERM or SIGINT.
///
/// # Errors
/// If there is no usable cluster configuration, the admin port cannot be served, `start` or the work fails, or the work
/// ends before the signal: the kubelet then starts the whole process again.
pub(super) fn run<W>(
    arguments: &ProcessArguments,
    start: impl FnOnce(&mut Process) -> anyhow::Result<W>,
) -> anyhow::Result<()>
where
    W: Future<Output = anyhow::Result<()>>,
{
    log::start(&arguments.log_level, arguments.log_json)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let config = configuration().await?;
        let client = Client::try_from(config.clone()).context(BAD_CONFIGURATION)?;
        let (stop, stopping) = watch::channel(false);
        let (running, gate) = watch::channel(true);
        let metrics = Metrics::default();
        let mut process = Process { config, client, metrics, stopping, gates: vec![("running", gate)] };
        let work = start(&mut process)?;
        let Process { metrics, stopping, gates, .. } = process;
        let admin = admin::serve(arguments.admin_listen, metrics, gates, stopping.clone());
        let admin = async {
            admin.await.with_context(|| format!("cannot serve the admin port {}", arguments.admin_listen))?;
            // The admin port has ended because of the signal, and the work may go on for some seconds.
            pending::<anyhow::Result<()>>().await
        };
        let signals = async {
            shutdown_signal().await?;
            tracing::info!("shutting down");
            running.send_replace(false);
            stop.send_replace(true);
            pending::<anyhow::Result<()>>().await
        };
        tokio::select! {
            done = work => done?,
            failed = admin => failed?,
            failed = signals => failed?,
        }
        if !*stopping.borrow() {
            bail!("the work of the operator ended before the signal: its last log lines have the cause");
        }
        tracing::info!("stopped");
        Ok(())
    })
}

/// Loads the client configuration without the client's own retries, which could delay a call for many minutes. The
/// operator retries itself.
pub(super) async fn configuration() -> anyhow::Result<Config> {
    let mut config = Config::infer().await.context("no cluster configuration: run in a pod, or set KUBECONFIG")?;
    config.default_retry = false;
    Ok(config)
}

async fn shutdown_signal() -> anyhow::Result<()> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}
