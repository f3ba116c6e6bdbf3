//! The cluster that `KUBECONFIG` names, and the names that the tests use in it.

use std::io::Write as _;

use anyhow::Context as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, Config};
use serde_json::{Value, json};

use super::pod_http::PodPort;

/// Namespace that Remora is installed in.
pub const SYSTEM: &str = "remora-system";
/// Label on every namespace that the tests create.
pub(super) const LABEL: &str = "remora.dev/e2e";
const MANAGER: &str = "remora-e2e";

/// Cluster client, and the names of the images.
#[derive(Clone)]
pub struct Cluster {
    /// Client with all permissions of the user who runs the tests.
    pub client: Client,
    prefix: String,
    tag: String,
}

impl Cluster {
    /// Connects to the cluster. An unreachable cluster is a failure, never a reason to skip.
    ///
    /// # Errors
    ///
    /// Returns an error if no cluster is reachable; the error says how to start one.
    pub async fn connect() -> anyhow::Result<Self> {
        let hint =
            "no cluster to test on: run `make cluster-up images` and `source e2e/cluster/env.sh`, or set KUBECONFIG";
        let mut config = Config::infer().await.context(hint)?;
        // Each case states how long it waits. Fifteen hidden retries would only mask the result.
        config.default_retry = false;
        let client = Client::try_from(config).context(hint)?;
        client.apiserver_version().await.context(hint)?;
        let variable = |name, or: &str| std::env::var(name).unwrap_or_else(|_| or.to_owned());
        Ok(Self {
            client,
            prefix: variable("REMORA_IMAGE_PREFIX", "remora.local"),
            tag: variable("REMORA_IMAGE_TAG", "dev"),
        })
    }

    /// Returns the repository of one of the project's images, without the tag.
    #[must_use]
    pub fn repository(&self, name: &str) -> String {
        format!("{}/{name}", self.prefix)
    }

    /// Returns the tag of the project's images.
    #[must_use]
    pub fn tag(&self) -> &str {
        &self.tag
    }

    /// Returns the image of the application and the upstream.
    #[must_use]
    pub fn e2e_image(&self) -> String {
        format!("{}:{}", self.repository("remora-e2e"), self.tag)
    }

    /// Returns a port of one of Remora's own pods.
    #[must_use]
    pub fn system_port(&self, pod: &str, port: u16) -> PodPort {
        PodPort::new(self.client.clone(), SYSTEM, pod, port)
    }

    /// Applies an object that states its kind, name and namespace.
    ///
    /// # Errors
    ///
    /// Returns an error if one of these is missing, or the API server's error with its message.
    pub async fn apply(&self, object: &Value) -> anyhow::Result<DynamicObject> {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
        let (kind, name) = (
            text("/kind").context("an object without kind")?,
            text("/metadata/name").context("an object without name")?,
        );
        let (group, version) =
            text("/apiVersion").context("an object without apiVersion")?.rsplit_once('/').unwrap_or(("", "v1"));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let api: Api<DynamicObject> = match text("/metadata/namespace") {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        };
        let applied = api.patch(name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(object)).await;
        applied.with_context(|| format!("{kind} {name} was refused"))
    }

    /// Creates the namespace, or refuses one that the tests do not own.
    ///
    /// # Errors
    ///
    /// Returns an error if the tests do not own the namespace, or the API server's error.
    pub async fn own_namespace(&self, name: &str, role: &str) -> anyhow::Result<()> {
        let api: Api<Namespace> = Api::all(self.client.clone());
        if let Some(found) = api.get_opt(name).await? {
            let ours = found.metadata.labels.is_some_and(|labels| labels.contains_key(LABEL));
            anyhow::ensure!(
                ours,
                "the namespace {name} exists and was not made by these tests (no label {LABEL}): an installation of somebody's? Use another cluster"
            );
            return Ok(());
        }
        self.apply(
            &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {LABEL: role}}}),
        )
        .await?;
        Ok(())
    }

    /// Changes an annotation of these pods, after which the kubelet updates their volumes at once instead of within 90 seconds.
    ///
    /// # Errors
    ///
    /// Returns the API server's error.
    pub async fn poke(&self, namespace: &str, selector: &str) -> anyhow::Result<()> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let patch =
            Patch::Merge(json!({"metadata": {"annotations": {"remora.dev-e2e/poked": Timestamp::now().to_string()}}}));
        for pod in self.pods(namespace, selector).await? {
            api.patch_metadata(&pod, &PatchParams::default(), &patch).await?;
        }
        Ok(())
    }

    /// Returns the names of the pods that a selector matches.
    ///
    /// # Errors
    ///
    /// Returns the API server's error.
    pub async fn pods(&self, namespace: &str, selector: &str) -> anyhow::Result<Vec<String>> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let found = api.list_metadata(&ListParams::default().labels(selector)).await?;
        Ok(found.items.into_iter().filter_map(|pod| pod.metadata.name).collect())
    }
}

/// Prints a line for the person who runs the tests, also if the case succeeds.
pub fn say(line: &str) {
    let _nobody_listens = writeln!(std::io::stderr(), "e2e: {line}");
}
