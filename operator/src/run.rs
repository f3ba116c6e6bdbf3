//! Runs the operator: admin port, webhook and controller in one process, which ends on SIGTERM or SIGINT.
//!
//! Every replica serves the webhook; only the replica with the lease runs the controller. If a part ends before the
//! signal, the whole process ends, so that the kubelet restarts it in a complete state.

pub mod admin;
mod arguments;
mod check_injection;
mod log;
mod receiver;

use std::{convert::Infallible, future::pending, sync::Arc, time::Duration};

use anyhow::{Context as _, bail};
use jiff::Timestamp;
use kube::{Client, Config};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
};

use self::admin::Gates;
pub use self::{arguments::Arguments, check_injection::CheckInjection};
use crate::{
    compiler::Compiler,
    controller::{
        leader::{self, Election, LeaseFence},
        metrics::Metrics,
        reconcile,
    },
    injection::{
        self,
        auditor::{self, Auditor},
        certificates,
        self_check::{self, SelfCheck},
        webhook,
    },
    memory::Memory,
    rollout::sidecar::SidecarClient,
    source::{
        fetch::{AllowedOrigins, CaFile, Fetcher, Proxies, SystemLookup},
        receiver::WebhookReceiver,
    },
};

const BAD_CONFIGURATION: &str =
    "cannot use the cluster's address or credentials: check the service account or the kubeconfig";
/// Longest time for reconciliations under way to finish after the signal.
const DRAIN: Duration = Duration::from_secs(15);

/// Runs the operator until it receives SIGTERM or SIGINT.
///
/// # Errors
/// If there is no usable cluster configuration, a part of the operator fails, or the lease is lost.
pub fn run(arguments: Arguments) -> anyhow::Result<()> {
    log::start(&arguments.log_level, arguments.log_json)?;
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(serve(arguments))
}

async fn serve(arguments: Arguments) -> anyhow::Result<()> {
    let webhook_options = arguments.webhook()?;
    let ca_file = arguments.ca_bundle.as_deref().map(CaFile::open).transpose()?;
    let config = configuration().await?;
    let client = Client::try_from(config.clone()).context(BAD_CONFIGURATION)?;
    let metrics = Metrics::default();
    let (stop, stopping) = watch::channel(false);
    let (serving, gate) = watch::channel(true);
    let mut gates: Gates = vec![("running", gate)];

    let webhook = webhook_options.map(|options| {
        let (ready, gate) = watch::channel(false);
        gates.push(("webhook", gate));
        let metrics = metrics.register_part(webhook::Metrics::register);
        webhook::run(client.clone(), options, metrics, ready, stopping.clone())
    });
    let (since, works_since) = watch::channel(None);
    let self_check = arguments.self_check.then(|| {
        let (ready, gate) = watch::channel(false);
        gates.push(("injection", gate));
        let metrics = metrics.register_part(self_check::Metrics::register);
        SelfCheck::new(client.clone(), &arguments.namespace, metrics, ready, since)
    });
    let admin = admin::serve(arguments.admin_listen, metrics.clone(), gates, stopping.clone());
    let admin = async {
        admin.await.with_context(|| format!("cannot serve the admin port {}", arguments.admin_listen))?;
        // The admin port has ended because of the signal, and the other parts may still be busy.
        std::future::pending::<anyhow::Result<()>>().await
    };
    let webhook = async {
        match webhook {
            Some(webhook) => Ok(webhook.await?),
            // Without a webhook this part ends with the signal.
            None => {
                let _ = stopping.clone().wait_for(|stop| *stop).await;
                Ok(())
            }
        }
    };
    let webhook_receiver = WebhookReceiver::new(metrics.receiver.clone());
    let receiver = async {
        match arguments.receiver_listen {
            Some(address) => receiver::serve(address, webhook_receiver.clone(), stopping.clone())
                .await
                .with_context(|| format!("cannot serve the receiver of webhooks on {address}"))?,
            None => {
                let _ = stopping.clone().wait_for(|stop| *stop).await;
            }
        }
        Ok(())
    };
    let controller = controller(
        &arguments,
        config,
        client.clone(),
        metrics,
        webhook_receiver.clone(),
        works_since,
        ca_file,
        stopping.clone(),
    );
    let self_check = async {
        match self_check {
            Some(check) => check.run().await,
            None => pending::<Infallible>().await,
        }
    };
    let signal_handler = async {
        shutdown_signal().await?;
        tracing::info!("shutting down");
        serving.send_replace(false);
        // The webhook stays for some seconds more, until every node knows that this replica is not ready.
        stop.send_replace(true);
        std::future::pending::<anyhow::Result<()>>().await
    };
    let work = async { tokio::try_join!(webhook, receiver, controller).map(|_| ()) };
    tokio::select! {
        done = work => done?,
        failed = admin => failed?,
        failed = signal_handler => failed?,
        never = self_check => match never {},
    }
    if !*stopping.borrow() {
        bail!("a part of the operator ended before the signal: its last log lines have the cause");
    }
    tracing::info!("stopped");
    Ok(())
}

/// Loads the client configuration without the client's own retries, which could delay a call for many minutes. The
/// operator retries itself.
async fn configuration() -> anyhow::Result<Config> {
    let mut config = Config::infer().await.context("no cluster configuration: run in a pod, or set KUBECONFIG")?;
    config.default_retry = false;
    Ok(config)
}

/// Waits for the lease, reconciles while this replica holds it, and releases it at the end.
async fn controller(
    arguments: &Arguments,
    config: Config,
    client: Client,
    metrics: Metrics,
    webhook_receiver: WebhookReceiver,
    works_since: watch::Receiver<Option<Timestamp>>,
    ca_file: Option<CaFile>,
    mut stopping: watch::Receiver<bool>,
) -> anyhow::Result<()> {
    if arguments.no_controller {
        let _ = stopping.wait_for(|stop| *stop).await;
        return Ok(());
    }
    let allowed = AllowedOrigins::new(&arguments.allowed_origins)?;
    let fence = LeaseFence::default();
    let fenced = fence.client(config).context(BAD_CONFIGURATION)?;
    let fetcher = Fetcher::new(fenced.clone(), allowed, Arc::new(SystemLookup), arguments.max_document_bytes)
        .with_proxies(Proxies::new(&arguments.proxies))
        .with_ca_file(ca_file);
    let sidecars = SidecarClient::new()?;
    let instance = arguments.unique_name();
    let owner = leader::account(client.clone(), &arguments.namespace).await;
    let election = Election::new(client, &arguments.namespace, &arguments.lease, instance.clone(), owner, fence);
    let mut stop_waiting = stopping.clone();
    tokio::select! {
        () = election.acquire() => {}
        _ = stop_waiting.wait_for(|stop| *stop) => return Ok(()),
    }
    tracing::info!(instance, "acquired the lease; reconciling");
    let reconciling = reconcile::Deps {
        client: fenced.clone(),
        fetcher: Arc::new(fetcher),
        compiler: Arc::new(Compiler::new(arguments.max_document_bytes)),
        sidecars,
        webhook_receiver: webhook_receiver.clone(),
        metrics: metrics.clone(),
        memory: Memory::for_long(arguments.max_snapshot_bytes),
        publishes_secrets: !arguments.no_secret_delivery,
        instance: Some(instance.clone()),
    };
    metrics.set_leading(true);
    webhook_receiver.set_leading(true);
    let mut drained = stopping.clone();
    let auditor = Auditor::new(
        fenced,
        arguments.auditor(),
        Some(instance),
        metrics.register_part(auditor::Metrics::register),
        works_since,
    );
    let drain_timeout = async {
        let _ = drained.wait_for(|stop| *stop).await;
        tokio::time::sleep(DRAIN).await;
    };
    tokio::select! {
        () = reconcile::run(reconciling, &arguments.watch_namespaces, stopping) => {}
        never = auditor.run() => match never {},
        lost = election.renew_until_lost() => return Err(lost.into()),
        () = drain_timeout => tracing::warn!("aborted reconciliations that did not finish within {} s", DRAIN.as_secs()),
    }
    metrics.set_leading(false);
    webhook_receiver.set_leading(false);
    election.release().await;
    Ok(())
}

impl Arguments {
    /// Returns a name that no other process has: the instance's name with a random suffix.
    fn unique_name(&self) -> String {
        let name = self.instance.as_deref().unwrap_or("remora-operator");
        format!("{name}-{:08x}", fastrand::u32(..))
    }

    fn auditor(&self) -> auditor::Options {
        auditor::Options {
            own_namespace: self.namespace.clone(),
            watch_namespaces: self.watch_namespaces.clone(),
            excluded_namespaces: self.excluded_namespaces.clone(),
            evict: self.evict_uninjected,
        }
    }

    /// Returns the options of the webhook. `None` if this process does not serve it.
    fn webhook(&self) -> anyhow::Result<Option<webhook::Options>> {
        let Some(sidecar_image) = self.sidecar_image.clone().filter(|_| !self.no_webhook) else {
            return Ok(None);
        };
        self.sidecar_defaults.check()?;
        Ok(Some(webhook::Options {
            listen: self.webhook_listen,
            inject: injection::Config {
                sidecar_image,
                sidecar_pull_policy: self.sidecar_pull_policy.clone(),
                own_namespace: self.namespace.clone(),
                defaults: self.sidecar_defaults.clone(),
            },
            certificates: match &self.certificate_directory {
                Some(directory) => certificates::Source::Directory(directory.clone()),
                None => certificates::Source::SelfManaged(certificates::Names {
                    namespace: self.namespace.clone(),
                    service: self.webhook_service.clone(),
                    configuration: self.webhook_configuration.clone(),
                    secret: self.certificate_secret.clone(),
                }),
            },
        }))
    }
}

async fn shutdown_signal() -> anyhow::Result<()> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}
