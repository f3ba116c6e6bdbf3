//! Remora's Helm release, managed by the real `helm` program.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use super::cluster::{Cluster, SYSTEM};
use super::shared_upstream;
use super::wait::eventually;

const NAME: &str = "remora";
const PREVIOUS: &str =
    "run `e2e/cluster/previous.sh cargo test ...`, which brings the previous version to upgrade from";
const CAP: Duration = Duration::from_secs(120);

/// Helm release in [`SYSTEM`].
#[derive(Clone)]
pub struct Release {
    cluster: Cluster,
}

impl Release {
    /// Returns the release of this cluster, installed or not.
    #[must_use]
    pub fn of(cluster: &Cluster) -> Self {
        Self { cluster: cluster.clone() }
    }

    /// Installs or upgrades the chart and waits until it serves.
    ///
    /// # Errors
    ///
    /// Returns helm's error.
    pub async fn install(&self) -> anyhow::Result<()> {
        self.install_with(&json!({})).await
    }

    /// Does the same with additional values. Each top-level value replaces the usual one.
    ///
    /// # Errors
    ///
    /// Returns helm's error.
    pub async fn install_with(&self, more: &Value) -> anyhow::Result<()> {
        self.install_chart(&CHART, self.cluster.tag(), more).await
    }

    /// Installs the chart and the images of the previous version.
    ///
    /// # Errors
    ///
    /// Returns helm's error, or an error if the previous version is not available.
    pub async fn install_previous(&self) -> anyhow::Result<()> {
        let variable = |name| std::env::var(name).with_context(|| format!("{name} is not set: {PREVIOUS}"));
        let (chart, tag) = (variable("REMORA_PREVIOUS_CHART")?, variable("REMORA_PREVIOUS_TAG")?);
        self.install_chart(&chart, &tag, &json!({})).await
    }

    /// Returns to the chart and the images of the installation before, as a user does after a bad upgrade.
    ///
    /// # Errors
    ///
    /// Returns helm's error.
    pub async fn roll_back(&self) -> anyhow::Result<()> {
        self.helm(&["rollback", NAME, "--wait", "--timeout", "2m"], &Value::Null).await?;
        self.settled().await
    }

    async fn install_chart(&self, chart: &str, tag: &str, more: &Value) -> anyhow::Result<()> {
        self.cluster.own_namespace(SYSTEM, "system").await?;
        let image = |name: &str| json!({"repository": self.cluster.repository(name), "tag": tag});
        let mut values = json!({
            "image": {"operator": image("remora-operator"), "sidecar": image("remora-sidecar")},
            "allowedOrigins": shared_upstream::origins(),
        });
        for (name, value) in more.as_object().into_iter().flatten() {
            values[name] = value.clone();
        }
        self.helm(&["upgrade", "--install", NAME, chart, "--wait", "--timeout", "2m", "--values", "-"], &values)
            .await?;
        self.settled().await
    }

    /// Waits until all pods of the operator are of the present installation and ready. Helm waits for one replica only,
    /// and pods of the previous installation answer with its values until they end.
    ///
    /// # Errors
    ///
    /// Returns an error if this does not happen in time.
    pub async fn settled(&self) -> anyhow::Result<()> {
        let cluster = &self.cluster;
        eventually("only what was installed now runs", CAP, async || {
            let deployments: Api<Deployment> = Api::namespaced(cluster.client.clone(), SYSTEM);
            let deployments = deployments.list(&ListParams::default()).await?;
            let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), SYSTEM);
            let pods = pods.list_metadata(&ListParams::default()).await?;
            let is_going = pods.items.iter().any(|pod| pod.metadata.deletion_timestamp.is_some());
            Ok((!is_going && deployments.items.iter().all(is_rolled_out)).then_some(()))
        })
        .await
    }

    /// Uninstalls the release and waits until its objects are deleted, including the controller's lease: the next
    /// controller would wait until that expires.
    ///
    /// # Errors
    ///
    /// Returns helm's error, or an error if an object remains.
    pub async fn uninstall(&self) -> anyhow::Result<()> {
        self.helm(&["uninstall", NAME, "--ignore-not-found", "--wait", "--timeout", "2m"], &Value::Null).await?;
        eventually("the lease went with the release", CAP, async || {
            Ok(self.leases().list_metadata(&ListParams::default()).await?.items.is_empty().then_some(()))
        })
        .await
    }

    /// Does the same for what an earlier run, perhaps of another version, installed.
    pub(super) async fn clear(&self) -> anyhow::Result<()> {
        self.helm(&["uninstall", NAME, "--ignore-not-found", "--wait", "--timeout", "2m"], &Value::Null).await?;
        self.leases().delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
        Ok(())
    }

    fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.cluster.client.clone(), SYSTEM)
    }

    /// Removes the operator, controller and webhook, as an outage would: the objects that it created stay, its pods are
    /// deleted. [`Self::install`] restores it.
    ///
    /// # Errors
    ///
    /// Returns an error if the pods are not deleted in time.
    pub async fn stop(&self) -> anyhow::Result<()> {
        let cluster = &self.cluster;
        let api: Api<Deployment> = Api::namespaced(cluster.client.clone(), SYSTEM);
        let found = api.list_metadata(&ListParams::default()).await?;
        anyhow::ensure!(!found.items.is_empty(), "no Deployment in {SYSTEM}");
        for name in found.items.into_iter().filter_map(|deployment| deployment.metadata.name) {
            let nobody = Patch::Merge(json!({"spec": {"replicas": 0}}));
            api.patch_scale(&name, &PatchParams::default(), &nobody).await?;
        }
        eventually("the operator's pods are gone", CAP, async || {
            Ok(cluster.pods(SYSTEM, "").await?.is_empty().then_some(()))
        })
        .await
    }

    async fn helm(&self, arguments: &[&str], values: &Value) -> anyhow::Result<()> {
        let mut helm = Command::new("helm");
        helm.args(arguments)
            .args(["--namespace", SYSTEM])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = helm.kill_on_drop(true).spawn().context("helm is not on PATH: `source e2e/cluster/env.sh`")?;
        let mut input = child.stdin.take().context("helm's input")?;
        input.write_all(values.to_string().as_bytes()).await?;
        drop(input);
        let output = child.wait_with_output().await?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        anyhow::ensure!(
            output.status.success(),
            "helm {} failed: {}{}",
            arguments.join(" "),
            text(&output.stdout),
            text(&output.stderr)
        );
        Ok(())
    }
}

/// True if every replica is updated and available, and no other replica exists.
pub(super) fn is_rolled_out(deployment: &Deployment) -> bool {
    let wanted = deployment.spec.replicas;
    deployment.status.as_ref().is_some_and(|status| {
        status.observed_generation == deployment.metadata.generation
            && [status.replicas, status.updated_replicas, status.available_replicas]
                .iter()
                .all(|count| *count == wanted)
    })
}

static CHART: std::sync::LazyLock<String> = std::sync::LazyLock::new(|| {
    let chart: PathBuf = [env!("CARGO_MANIFEST_DIR"), "..", "charts", "remora"].iter().collect();
    chart.display().to_string()
});
