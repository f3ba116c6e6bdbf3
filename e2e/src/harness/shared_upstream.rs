//! The upstream in the cluster, shared by all cases: each case has its own key, with its own document and faults.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams};
use serde_json::{Value, json};

use super::cluster::Cluster;
use super::pod_http::PodPort;
use super::wait::until;
use crate::upstream::LoggedRequest;

const NAMESPACE: &str = "remora-e2e";
const HOST: &str = "upstream.remora-e2e.svc";
const CAP: Duration = Duration::from_secs(180);

/// Returns the origins that the operator may request: HTTP, HTTPS, and a port without a listener.
pub(super) fn origins() -> [String; 3] {
    [format!("http://{HOST}:8000"), format!("https://{HOST}:8443"), format!("http://{HOST}:8009")]
}

/// Pod of the stub.
#[derive(Clone)]
pub struct SharedUpstream {
    control: PodPort,
}

impl SharedUpstream {
    /// Returns the value of `spec.source.flagsmith.apiUrl` for plain HTTP.
    #[must_use]
    pub fn api_url() -> String {
        format!("http://{HOST}:8000/api/v1/")
    }

    /// Returns the same for HTTPS, with a certificate of [`Self::authority`].
    #[must_use]
    pub fn api_url_tls() -> String {
        format!("https://{HOST}:8443/api/v1/")
    }

    /// Returns the value of `spec.source.flagsmith.realtime.url`.
    #[must_use]
    pub fn realtime_url() -> String {
        format!("http://{HOST}:8000/")
    }

    /// Returns an allowed address without a listener.
    #[must_use]
    pub fn api_url_nobody() -> String {
        format!("http://{HOST}:8009/api/v1/")
    }

    /// Restarts the upstream from the current image.
    pub(super) async fn deploy(cluster: &Cluster) -> anyhow::Result<()> {
        cluster.own_namespace(NAMESPACE, "upstream").await?;
        let labels = json!({"app": "upstream"});
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "upstream", "namespace": NAMESPACE},
            "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": {
                "metadata": {"labels": labels},
                "spec": {"terminationGracePeriodSeconds": 1, "containers": [{
                    "name": "upstream", "image": cluster.e2e_image(), "imagePullPolicy": "IfNotPresent",
                    "args": ["upstream", "--name", HOST],
                    "readinessProbe": {"httpGet": {"path": "/healthz", "port": 8001}, "periodSeconds": 1},
                }]},
            }},
        });
        let port = |name: &str, number: u16| json!({"name": name, "port": number});
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "upstream", "namespace": NAMESPACE},
            "spec": {"selector": labels, "ports": [port("http", 8000), port("https", 8443), port("nobody", 8009)]},
        });
        cluster.apply(&service).await?;
        let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), NAMESPACE);
        pods.delete_collection(&DeleteParams::default().grace_period(0), &ListParams::default()).await?;
        cluster.apply(&deployment).await?;
        let api: Api<Deployment> = Api::namespaced(cluster.client.clone(), NAMESPACE);
        until(&api, "upstream", "the upstream is available", CAP, |deployment| {
            let status = deployment.status.clone().unwrap_or_default();
            status.observed_generation >= deployment.metadata.generation && status.available_replicas == Some(1)
        })
        .await?;
        Ok(())
    }

    /// Returns the upstream that is already deployed.
    pub(super) async fn connect(cluster: &Cluster) -> anyhow::Result<Self> {
        let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), NAMESPACE);
        let found = pods.list(&ListParams::default().labels("app=upstream")).await?;
        let alive = found.items.into_iter().find(|pod| pod.metadata.deletion_timestamp.is_none());
        let name = alive.and_then(|pod| pod.metadata.name).context("the upstream has no pod")?;
        let control = PodPort::new(cluster.client.clone(), NAMESPACE, &name, 8001);
        Ok(Self { control })
    }

    /// Returns the upstream at its pod's present address, which needs no API server. Only the machine of the local
    /// cluster reaches it.
    ///
    /// # Errors
    ///
    /// Returns an error if the pod has no address.
    pub async fn without_api_server(&self) -> anyhow::Result<Self> {
        Ok(Self { control: self.control.without_api_server().await? })
    }

    /// Returns the certificate of the CA that signed the HTTPS certificate.
    ///
    /// # Errors
    ///
    /// Returns an error if the stub cannot be reached.
    pub async fn authority(&self) -> anyhow::Result<String> {
        self.control.text("/ca.pem").await
    }

    /// Serves a document to requests with this key.
    ///
    /// # Errors
    ///
    /// Returns an error if the stub refuses the document.
    pub async fn serve(&self, key: &str, document: &Value) -> anyhow::Result<()> {
        self.control.put(&format!("/environments/{key}"), document).await
    }

    /// Changes a flag: `{"enabled":…,"value":…}`.
    ///
    /// # Errors
    ///
    /// Returns an error if the stub refuses the change.
    pub async fn change(&self, key: &str, flag: &str, change: &Value) -> anyhow::Result<()> {
        self.control.put(&format!("/environments/{key}/flags/{flag}"), change).await
    }

    /// Applies a change that does not move `updated_at`: `{"kind":…}`.
    ///
    /// # Errors
    ///
    /// Returns an error if the stub refuses the change.
    pub async fn change_silently(&self, key: &str, change: &Value) -> anyhow::Result<()> {
        self.control.put(&format!("/environments/{key}/silent-change"), change).await
    }

    /// Sets `{"pageSize":…,"blocked":…,"usesFault":…}`. An absent member gets its default again.
    ///
    /// # Errors
    ///
    /// Returns an error if the stub refuses the settings.
    pub async fn set(&self, key: &str, settings: &Value) -> anyhow::Result<()> {
        self.control.put(&format!("/environments/{key}/settings"), settings).await
    }

    /// Scripts faults: `[{"fault":{"kind":…},"times":…}]`.
    ///
    /// # Errors
    ///
    /// Returns an error if the stub refuses the faults.
    pub async fn fail(&self, key: &str, faults: &Value) -> anyhow::Result<()> {
        self.control.put(&format!("/environments/{key}/faults"), faults).await
    }

    /// Returns the uses of flags that the operator sent with this key, by the flag's name.
    ///
    /// # Errors
    ///
    /// Returns an error if the stub cannot be reached, or does not know the key.
    pub async fn uses(&self, key: &str) -> anyhow::Result<BTreeMap<String, u64>> {
        self.control.get(&format!("/environments/{key}/uses")).await
    }

    /// Returns the requests with this key.
    ///
    /// # Errors
    ///
    /// Returns an error if the stub cannot be reached.
    pub async fn requests(&self, key: &str) -> anyhow::Result<Vec<LoggedRequest>> {
        self.control.get(&format!("/requests?key={key}")).await
    }
}
