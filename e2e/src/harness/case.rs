//! A test case: a namespace, and the operations on it.

use std::panic::{AssertUnwindSafe, resume_unwind};

use anyhow::Context as _;
use futures::FutureExt as _;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::api::{Api, DeleteParams, DynamicObject};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::cluster::{Cluster, LABEL, say};
use super::cluster_lock::ClusterLock;
use super::dump::dump;
use super::release::Release;
use super::shared_upstream::SharedUpstream;
use super::wait::{CAP, until};

/// A case's own namespace, and access to the cluster and the upstream.
#[derive(Clone)]
pub struct Case {
    /// Cluster that the case runs on.
    pub cluster: Cluster,
    /// Name of the namespace.
    pub namespace: String,
    /// Upstream that all cases share.
    pub upstream: SharedUpstream,
    client_key: Option<String>,
}

/// Runs a case in parallel with others, with Remora installed.
///
/// # Errors
///
/// Returns the case's error, or the error of its setup. A panic of the case is resumed.
pub async fn with_namespace<C>(case: C) -> anyhow::Result<()>
where
    C: AsyncFnOnce(Case) -> anyhow::Result<()>,
{
    let lock = ClusterLock::shared().await?;
    prepare().await?;
    run(case, lock).await
}

/// Runs a case while no other case runs, because it removes parts of Remora. Remora is installed when the case starts.
///
/// # Errors
///
/// Returns the same errors as [`with_namespace`].
pub async fn alone_in_namespace<C>(case: C) -> anyhow::Result<()>
where
    C: AsyncFnOnce(Case) -> anyhow::Result<()>,
{
    let lock = ClusterLock::alone().await?;
    prepare().await?;
    // The previous case may have failed after it removed a part and before it restored it.
    Release::of(&Cluster::connect().await?).install().await?;
    run(case, lock).await
}

/// Installs Remora and the upstream, once per test program, from the current images.
async fn prepare() -> anyhow::Result<()> {
    static PREPARED: OnceCell<Result<(), String>> = OnceCell::const_new();
    let prepared = PREPARED.get_or_init(async || {
        let prepare = async {
            let cluster = Cluster::connect().await?;
            let release = Release::of(&cluster);
            release.clear().await?;
            tokio::try_join!(release.install(), SharedUpstream::deploy(&cluster))?;
            anyhow::Ok(())
        };
        prepare.await.map_err(|error| format!("{error:#}"))
    });
    prepared.await.clone().map_err(|error| anyhow::anyhow!("nothing to test with: {error}"))
}

async fn run<C>(case: C, lock: ClusterLock) -> anyhow::Result<()>
where
    C: AsyncFnOnce(Case) -> anyhow::Result<()>,
{
    let cluster = Cluster::connect().await?;
    let upstream = SharedUpstream::connect(&cluster).await?;
    let namespaces: Api<Namespace> = Api::all(cluster.client.clone());
    let made = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "remora-e2e-", "labels": {LABEL: "case"}}});
    let made = namespaces.create(&Default::default(), &serde_json::from_value(made)?).await?;
    let namespace = made.metadata.name.context("a namespace without a name")?;
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client.clone(), &namespace);
    until(&accounts, "default", "pods can be made", CAP, |_| true).await?;

    let given = Case { cluster: cluster.clone(), namespace: namespace.clone(), upstream, client_key: None };
    let ended = AssertUnwindSafe(case(given)).catch_unwind().await;
    if !matches!(ended, Ok(Ok(()))) {
        dump(&cluster, &namespace).await;
    }
    if std::env::var_os("REMORA_E2E_KEEP").is_some() {
        say(&format!("kept: kubectl -n {namespace} get all,fenv,cm"));
    } else {
        let deleted = namespaces.delete(&namespace, &DeleteParams::background()).await;
        // A case may have deleted its own namespace.
        if !matches!(&deleted, Err(kube::Error::Api(status)) if status.is_not_found()) {
            deleted?;
        }
    }
    drop(lock);
    ended.unwrap_or_else(|panic| resume_unwind(panic))
}

impl Case {
    /// Returns the server-side key of this case's document at the upstream.
    #[must_use]
    pub fn server_key(&self) -> String {
        format!("ser.{}", self.namespace)
    }

    /// Returns the client-side key of this case's documents.
    #[must_use]
    pub fn client_key(&self) -> String {
        self.client_key.clone().unwrap_or_else(|| format!("client-{}", self.namespace))
    }

    /// Returns the same case with the client-side key of an existing document.
    #[must_use]
    pub fn with_client_key(mut self, key: &str) -> Self {
        self.client_key = Some(key.to_owned());
        self
    }

    /// Returns the API of one kind of objects in the namespace.
    #[must_use]
    pub fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.cluster.client.clone(), &self.namespace)
    }

    /// Returns the API of the namespace's FeatureEnvironments, without their Rust type.
    #[must_use]
    pub fn environments(&self) -> Api<DynamicObject> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("remora.dev", "v1alpha1", "FeatureEnvironment"));
        Api::namespaced_with(self.cluster.client.clone(), &self.namespace, &resource)
    }

    /// Applies an object in the namespace.
    ///
    /// # Errors
    ///
    /// Returns an error if the API server refuses the object.
    pub async fn apply(&self, mut object: Value) -> anyhow::Result<DynamicObject> {
        object["metadata"]["namespace"] = json!(self.namespace);
        self.cluster.apply(&object).await
    }
}
