//! One case: a namespace, and what one does in it.

use std::panic::{AssertUnwindSafe, resume_unwind};

use anyhow::Context as _;
use futures::FutureExt as _;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::api::{Api, DeleteParams, DynamicObject};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::cluster::{Cluster, LABEL, say};
use super::dump::dump;
use super::release::Release;
use super::shared_upstream::SharedUpstream;
use super::turn::Turn;
use super::wait::{CAP, until};

/// A namespace of its own, and the means to fill it.
#[derive(Clone)]
pub struct Case {
    /// The cluster.
    pub cluster: Cluster,
    /// The namespace.
    pub namespace: String,
    /// The upstream that all cases share.
    pub upstream: SharedUpstream,
    client_key: Option<String>,
}

/// Runs a case side by side with others, with Remora installed.
///
/// # Errors
///
/// What the case failed with, or what kept it from running. Its panic goes on as a panic.
pub async fn with_namespace<C>(case: C) -> anyhow::Result<()>
where
    C: AsyncFnOnce(Case) -> anyhow::Result<()>,
{
    let turn = Turn::shared().await?;
    prepare().await?;
    run(case, turn).await
}

/// Runs a case while no other runs, because it takes parts of Remora away. It finds Remora installed.
///
/// # Errors
///
/// As [`with_namespace`].
pub async fn alone_in_namespace<C>(case: C) -> anyhow::Result<()>
where
    C: AsyncFnOnce(Case) -> anyhow::Result<()>,
{
    let turn = Turn::alone().await?;
    prepare().await?;
    // The case before may have failed between taking something away and bringing it back.
    Release::of(&Cluster::connect().await?).install().await?;
    run(case, turn).await
}

/// Installs Remora and the upstream, once for all cases of a test program, from the images as they are now.
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

async fn run<C>(case: C, turn: Turn) -> anyhow::Result<()>
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
        // A case may be about the end of its namespace.
        if !matches!(&deleted, Err(kube::Error::Api(status)) if status.is_not_found()) {
            deleted?;
        }
    }
    drop(turn);
    ended.unwrap_or_else(|panic| resume_unwind(panic))
}

impl Case {
    /// The server-side key under which the upstream has this case's document.
    #[must_use]
    pub fn server_key(&self) -> String {
        format!("ser.{}", self.namespace)
    }

    /// The client-side key that this case's documents have.
    #[must_use]
    pub fn client_key(&self) -> String {
        self.client_key.clone().unwrap_or_else(|| format!("client-{}", self.namespace))
    }

    /// The same case over a document that has a client-side key already.
    #[must_use]
    pub fn with_client_key(mut self, key: &str) -> Self {
        self.client_key = Some(key.to_owned());
        self
    }

    /// Pods, ConfigMaps or whatever else of the namespace.
    #[must_use]
    pub fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.cluster.client.clone(), &self.namespace)
    }

    /// The namespace's FeatureEnvironments, as one sees them without knowing their types.
    #[must_use]
    pub fn environments(&self) -> Api<DynamicObject> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("remora.dev", "v1alpha1", "FeatureEnvironment"));
        Api::namespaced_with(self.cluster.client.clone(), &self.namespace, &resource)
    }

    /// Applies an object in the namespace.
    ///
    /// # Errors
    ///
    /// When the API server refuses it.
    pub async fn apply(&self, mut object: Value) -> anyhow::Result<DynamicObject> {
        object["metadata"]["namespace"] = json!(self.namespace);
        self.cluster.apply(&object).await
    }
}
