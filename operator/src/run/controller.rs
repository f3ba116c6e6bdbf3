//! Command `controller`: reconciles FeatureEnvironments while this replica holds the lease.

use std::{convert::Infallible, future::pending, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context as _, bail};
use clap::Args;
use jiff::Timestamp;
use kube::{Client, Config};
use tokio::sync::watch;

use super::{
    process::{self, BAD_CONFIGURATION, Process, ProcessArguments},
    receiver,
};
use crate::{
    api::names::LEASE,
    compiler::Compiler,
    controller::{
        leader::{self, Election, LeaseFence},
        metrics::Metrics,
        reconcile::{self, SNAPSHOTS_MAX},
    },
    injection::{
        auditor::{self, Auditor},
        self_check::{self, SelfCheck},
    },
    memory::Memory,
    rollout::sidecar::SidecarClient,
    source::{
        fetch::{
            AllowedOrigins, CaFile, DOCUMENT_MAX, Fetcher, FetcherOptions, Origin, Proxies, ProxyRule, SystemLookup,
        },
        receiver::WebhookReceiver,
    },
};

/// Longest time for reconciliations under way to finish after the signal.
const DRAIN: Duration = Duration::from_secs(15);

/// Reconcile FeatureEnvironments: publish their snapshots, notify pods, and report.
#[derive(Debug, Args)]
pub struct Controller {
    #[command(flatten)]
    process: ProcessArguments,
    /// Name of this replica in the lease and in Events. Default: `remora-operator`. A random suffix makes it unique.
    #[arg(long, env = "POD_NAME")]
    instance: Option<String>,
    /// Name of the Lease that the replicas of this controller compete for. Two releases in one namespace need two Leases.
    #[arg(long, value_name = "NAME", default_value = LEASE)]
    lease: String,
    /// Watch this namespace only (repeatable). The operator neither reads nor writes FeatureEnvironments in other
    /// namespaces. Default: all namespaces.
    #[arg(long = "watch-namespace", value_name = "NAME")]
    watch_namespaces: Vec<String>,
    /// Address and port on which the controller accepts signed webhooks of Flagsmith over HTTP. Default: it accepts none.
    #[arg(long, value_name = "ADDRESS")]
    receiver_listen: Option<SocketAddr>,
    /// Verify every 30 s by a dry run that a new pod with this image gets its sidecar. The image never runs, but the
    /// namespace has to admit it. The replica is ready after the first success.
    #[arg(long, value_name = "IMAGE")]
    self_check: Option<String>,
    /// Evict pods that ask for a sidecar and have none, if a controller will replace them and the self-check succeeds.
    #[arg(long, requires = "self_check")]
    evict_uninjected: bool,
    /// Namespace that the webhook's registration excludes from injection (repeatable). The operator does not look
    /// for pods without a sidecar in it. Default: none.
    #[arg(long = "excluded-namespace", value_name = "NAME")]
    excluded_namespaces: Vec<String>,
    /// Origin (scheme, host and port) of a server that FeatureEnvironments may use as their source (repeatable). The
    /// server may be in a private network. Default: only Flagsmith's own service.
    #[arg(long = "allowed-origin", value_name = "URL")]
    allowed_origins: Vec<Origin>,
    /// Proxy for connections to servers with https, as a tunnel (CONNECT): a URL, or ORIGIN=URL for one origin, or
    /// ORIGIN=direct for none (repeatable). `,DIRECTORY` after the URL names a directory with the files `username` and
    /// `password`. Default: direct connections; environment variables have no effect.
    #[arg(long = "proxy", value_name = "[ORIGIN=]URL[,DIRECTORY]")]
    proxies: Vec<ProxyRule>,
    /// File with CA certificates in PEM that the controller trusts for every server, besides the public CAs and those of
    /// `caBundleRef`. A changed file is in use within a minute. Default: none.
    #[arg(long, value_name = "FILE")]
    ca_bundle: Option<PathBuf>,
    /// Size of the largest document that the operator reads, in bytes, over all its pages. It is also the total size of
    /// the documents that the operator holds in memory at one time. The process that compiles a document may use 64 MiB
    /// plus three times this size.
    #[arg(long, value_name = "BYTES", default_value_t = DOCUMENT_MAX)]
    max_document_bytes: usize,
    /// Memory in bytes for the snapshots of all environments, which the controller keeps to restore objects that somebody
    /// deletes. Namespaces share it.
    #[arg(long, value_name = "BYTES", default_value_t = SNAPSHOTS_MAX)]
    max_snapshot_bytes: usize,
    /// Publish no Secrets: do not accept FeatureEnvironments with `spec.delivery.as: Secret`. The controller then needs no
    /// right to write Secrets.
    #[arg(long)]
    no_secret_delivery: bool,
}

impl Controller {
    /// Runs until SIGTERM or SIGINT. Every replica serves the receiver of webhooks and checks the injection; only the
    /// replica with the lease reconciles.
    ///
    /// # Errors
    /// If there is no usable cluster configuration, a port cannot be served, or the lease is lost.
    pub fn run(self) -> anyhow::Result<()> {
        process::run(&self.process, |process| self.start(process))
    }

    fn start<'a>(
        &'a self,
        process: &mut Process,
    ) -> anyhow::Result<impl Future<Output = anyhow::Result<()>> + use<'a>> {
        let ca_file = self.ca_bundle.as_deref().map(CaFile::open).transpose()?;
        let (since, works_since) = watch::channel(None);
        let self_check = self.self_check.as_ref().map(|image| {
            let ready = process.gate("injection");
            let metrics = process.metrics.register_part(self_check::Metrics::register);
            SelfCheck::new(process.client.clone(), &self.process.namespace, image, metrics, ready, since)
        });
        let self_check = async {
            match self_check {
                Some(check) => check.run().await,
                None => pending::<Infallible>().await,
            }
        };
        let webhook_receiver = WebhookReceiver::new(process.metrics.receiver.clone());
        let receiving = self.receive(webhook_receiver.clone(), process.stopping.clone());
        let leading = Leading {
            config: process.config.clone(),
            client: process.client.clone(),
            metrics: process.metrics.clone(),
            webhook_receiver,
            ca_file,
            works_since,
            stopping: process.stopping.clone(),
        };
        let reconciling = self.reconcile(leading);
        Ok(async {
            tokio::select! {
                done = async { tokio::try_join!(receiving, reconciling) } => done.map(|_| ()),
                never = self_check => match never {},
            }
        })
    }

    /// Serves the receiver of webhooks, if there is one, until the signal.
    async fn receive(&self, receiver: WebhookReceiver, mut stopping: watch::Receiver<bool>) -> anyhow::Result<()> {
        let Some(address) = self.receiver_listen else {
            let _ = stopping.wait_for(|stop| *stop).await;
            return Ok(());
        };
        receiver::serve(address, receiver, stopping)
            .await
            .with_context(|| format!("cannot serve the receiver of webhooks on {address}"))
    }

    /// Waits for the lease, reconciles while this replica holds it, and releases it at the end.
    async fn reconcile(&self, leading: Leading) -> anyhow::Result<()> {
        let Leading { config, client, metrics, webhook_receiver, ca_file, works_since, stopping } = leading;
        let allowed = AllowedOrigins::new(&self.allowed_origins)?;
        let fence = LeaseFence::default();
        let fenced = fence.client(config).context(BAD_CONFIGURATION)?;
        let (proxies, limit) = (Proxies::new(&self.proxies), self.max_document_bytes);
        let options = FetcherOptions { allowed, proxies, ca_file, limit };
        let fetcher = Fetcher::new(fenced.clone(), options, Arc::new(SystemLookup));
        let sidecars = SidecarClient::new()?;
        let (namespace, instance) = (&self.process.namespace, self.unique_name());
        let owner = leader::account(client.clone(), namespace).await;
        let election = Election::new(client, namespace, &self.lease, instance.clone(), owner, fence);
        let mut stop_waiting = stopping.clone();
        tokio::select! {
            () = election.acquire() => {}
            _ = stop_waiting.wait_for(|stop| *stop) => return Ok(()),
        }
        tracing::info!(instance, "acquired the lease; reconciling");
        let deps = reconcile::Deps {
            client: fenced.clone(),
            fetcher: Arc::new(fetcher),
            compiler: Arc::new(Compiler::new(self.max_document_bytes)),
            sidecars,
            webhook_receiver: webhook_receiver.clone(),
            metrics: metrics.clone(),
            memory: Memory::with_reserve(self.max_snapshot_bytes),
            publishes_secrets: !self.no_secret_delivery,
            instance: instance.clone(),
        };
        metrics.set_leading(true);
        let audits = metrics.register_part(auditor::Metrics::register);
        let auditor = Auditor::new(fenced, self.auditor(), instance, audits, works_since);
        let mut drained = stopping.clone();
        let drain_timeout = async {
            let _ = drained.wait_for(|stop| *stop).await;
            tokio::time::sleep(DRAIN).await;
        };
        tokio::select! {
            () = reconcile::run(deps, &self.watch_namespaces, stopping.clone()) => {}
            never = auditor.run() => match never {},
            lost = election.renew_until_lost() => return Err(lost.into()),
            () = drain_timeout => tracing::warn!("aborted reconciliations that did not finish within {} s", DRAIN.as_secs()),
        }
        metrics.set_leading(false);
        webhook_receiver.set_leading(false);
        election.release().await;
        if !*stopping.borrow() {
            bail!("the reconciliations ended before the signal: the last log lines have the cause");
        }
        Ok(())
    }

    /// Returns a name that no other process has: the instance's name with a random suffix.
    fn unique_name(&self) -> String {
        let name = self.instance.as_deref().unwrap_or("remora-operator");
        format!("{name}-{:08x}", fastrand::u32(..))
    }

    fn auditor(&self) -> auditor::Options {
        auditor::Options {
            own_namespace: self.process.namespace.clone(),
            watch_namespaces: self.watch_namespaces.clone(),
            excluded_namespaces: self.excluded_namespaces.clone(),
            evict: self.evict_uninjected,
        }
    }
}

/// Dependencies of a replica that may become the leader.
struct Leading {
    config: Config,
    client: Client,
    metrics: Metrics,
    webhook_receiver: WebhookReceiver,
    /// CAs of the whole installation.
    ca_file: Option<CaFile>,
    /// Time since when the self-check has succeeded, for the auditor.
    works_since: watch::Receiver<Option<Timestamp>>,
    stopping: watch::Receiver<bool>,
}
