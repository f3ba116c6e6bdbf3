//! One case: a namespace, and what one does in it.

use std::panic::{AssertUnwindSafe, resume_unwind};
use std::time::Duration;

use anyhow::Context as _;
use futures::FutureExt as _;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, ServiceAccount};
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::cluster::{Cluster, LABEL, say};
use super::documents::storefront;
use super::dump::dump;
use super::pod_http::PodPort;
use super::release::Release;
use super::shared_upstream::SharedUpstream;
use super::turn::Turn;
use super::wait::{eventually, until};
use super::workload::App;

/// For what a cluster does in seconds, on a machine that is busy.
const CAP: Duration = Duration::from_secs(60);

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
            release.uninstall().await?;
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
        namespaces.delete(&namespace, &DeleteParams::background()).await?;
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

    /// A Secret with an environment key that Remora may read.
    ///
    /// # Errors
    ///
    /// When the API server refuses it.
    pub async fn secret(&self, name: &str, key: &str) -> anyhow::Result<()> {
        let metadata = json!({"name": name, "labels": {"remora.dev/environment-key": "true"}});
        self.apply(
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"environment-key": key}}),
        )
        .await?;
        Ok(())
    }

    /// A FeatureEnvironment with a source, polled every second so that nobody waits.
    ///
    /// # Errors
    ///
    /// When the API server refuses it.
    pub async fn environment(&self, name: &str, source: Value) -> anyhow::Result<()> {
        let spec = json!({"source": source, "refresh": {"interval": "1s", "timeout": "5s"}});
        self.apply(json!({"apiVersion": "remora.dev/v1alpha1", "kind": "FeatureEnvironment", "metadata": {"name": name}, "spec": spec})).await?;
        Ok(())
    }

    /// The source that polls the shared upstream with the key of the Secret `flagsmith`.
    #[must_use]
    pub fn flagsmith(&self) -> Value {
        json!({"flagsmith": {"apiUrl": SharedUpstream::api_url(), "environmentKeySecretRef": {"name": "flagsmith"}}})
    }

    /// What most cases begin with: the storefront's document at the upstream, its Secret, the FeatureEnvironment `storefront`
    /// over it, and that one Ready.
    ///
    /// # Errors
    ///
    /// When it does not become Ready.
    pub async fn storefront(&self) -> anyhow::Result<()> {
        self.upstream.serve(&self.server_key(), &storefront(&self.client_key(), 3)).await?;
        self.secret("flagsmith", &self.server_key()).await?;
        self.environment("storefront", self.flagsmith()).await?;
        self.condition("storefront", "Ready", "True", None).await
    }

    /// Waits until a FeatureEnvironment's condition has a status and, if one is named, a reason, for its present generation.
    ///
    /// # Errors
    ///
    /// When it does not come to that; its status is in the error.
    pub async fn condition(
        &self,
        environment: &str,
        kind: &str,
        status: &str,
        reason: Option<&str>,
    ) -> anyhow::Result<()> {
        let what = format!("{kind} is {status} {}", reason.unwrap_or_default());
        until(&self.environments(), environment, &what, CAP, |environment| {
            let conditions = environment.data.pointer("/status/conditions").and_then(Value::as_array);
            let found = conditions.into_iter().flatten().find(|condition| condition["type"] == kind);
            found.is_some_and(|condition| {
                condition["status"] == status
                    && reason.is_none_or(|reason| condition["reason"] == reason)
                    && condition["observedGeneration"].as_i64() == environment.metadata.generation
            })
        })
        .await?;
        Ok(())
    }

    /// Changes a flag upstream (`{"enabled":…,"value":…}`) and waits until the environment's next revision is published;
    /// returns when the flag was changed.
    ///
    /// # Errors
    ///
    /// When no new revision comes.
    pub async fn flip(&self, environment: &str, flag: &str, change: &Value) -> anyhow::Result<Timestamp> {
        let revision = |environment: &DynamicObject| environment.data.pointer("/status/revision").cloned();
        let before = revision(&self.environments().get(environment).await?);
        let at = Timestamp::now();
        self.upstream.change(&self.server_key(), flag, change).await?;
        let what = format!("a revision other than {before:?} is published");
        until(&self.environments(), environment, &what, CAP, |environment| revision(environment) != before).await?;
        Ok(at)
    }

    /// The core ConfigMap of an environment.
    ///
    /// # Errors
    ///
    /// When there is none.
    pub async fn core(&self, environment: &str) -> anyhow::Result<ConfigMap> {
        let api: Api<ConfigMap> = self.api();
        api.get(&format!("remora-{environment}-v1-core")).await.context("the core's ConfigMap")
    }

    /// Waits until the core ConfigMap of an environment satisfies `condition`; it may be absent meanwhile.
    ///
    /// # Errors
    ///
    /// When it does not come to that.
    pub async fn core_until(
        &self,
        environment: &str,
        what: &str,
        condition: impl Fn(&ConfigMap) -> bool,
    ) -> anyhow::Result<ConfigMap> {
        until(&self.api(), &format!("remora-{environment}-v1-core"), what, CAP, condition).await
    }

    /// Runs the application as a bare pod and waits until it is Ready.
    ///
    /// # Errors
    ///
    /// When the pod is refused or does not become Ready.
    pub async fn pod(&self, app: &App) -> anyhow::Result<PodPort> {
        self.create_pod(app).await?;
        self.ready(app.name()).await?;
        Ok(self.port(app.name(), 8080))
    }

    /// Runs the application as a bare pod and leaves it to its fate.
    ///
    /// # Errors
    ///
    /// When the pod is refused.
    pub async fn create_pod(&self, app: &App) -> anyhow::Result<()> {
        self.apply(app.pod(&self.cluster.e2e_image(), &self.client_key(), "serve")).await?;
        Ok(())
    }

    /// Waits until a pod is Ready.
    ///
    /// # Errors
    ///
    /// When it does not become so.
    pub async fn ready(&self, pod: &str) -> anyhow::Result<()> {
        until(&self.api::<Pod>(), pod, "the pod is Ready", CAP, is_ready).await?;
        Ok(())
    }

    /// Waits until a container of a pod runs.
    ///
    /// # Errors
    ///
    /// When it does not.
    pub async fn started(&self, pod: &str, container: &str) -> anyhow::Result<()> {
        let runs = |pod: &Pod| {
            let status = pod.status.clone().unwrap_or_default();
            let initial = status.init_container_statuses.unwrap_or_default();
            let all = initial.into_iter().chain(status.container_statuses.unwrap_or_default());
            all.filter(|status| status.name == container)
                .any(|status| status.state.is_some_and(|state| state.running.is_some()))
        };
        until(&self.api::<Pod>(), pod, &format!("container {container} runs"), CAP, runs).await?;
        Ok(())
    }

    /// Runs the application as a Deployment and waits until all its pods are Ready.
    ///
    /// # Errors
    ///
    /// When they do not become so.
    pub async fn deployment(&self, app: &App, replicas: u32) -> anyhow::Result<Vec<PodPort>> {
        self.apply(app.deployment(&self.cluster.e2e_image(), &self.client_key(), replicas)).await?;
        let wanted = i32::try_from(replicas)?;
        until(&self.api::<Deployment>(), app.name(), "all replicas are available", CAP, |deployment| {
            deployment.status.as_ref().and_then(|status| status.available_replicas) == Some(wanted)
        })
        .await?;
        let pods = self.cluster.pods(&self.namespace, &format!("app={}", app.name())).await?;
        Ok(pods.iter().map(|pod| self.port(pod, 8080)).collect())
    }

    /// Runs the application as a Job of so many pods at once and waits until it is complete.
    ///
    /// # Errors
    ///
    /// When one of them failed.
    pub async fn job(&self, app: &App, pods: u32) -> anyhow::Result<()> {
        self.apply(app.job(&self.cluster.e2e_image(), &self.client_key(), pods)).await?;
        let api: Api<Job> = self.api();
        let decided = |kind: &'static str| {
            move |job: &Job| {
                let conditions =
                    job.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
                conditions.iter().any(|condition| condition.type_ == kind && condition.status == "True")
            }
        };
        let (complete, failed) = (decided("Complete"), decided("Failed"));
        let job = until(&api, app.name(), "the Job ended", 2 * CAP, |job| complete(job) || failed(job)).await?;
        anyhow::ensure!(complete(&job), "the Job failed: {:?}", job.status);
        Ok(())
    }

    /// A port of a pod.
    #[must_use]
    pub fn port(&self, pod: &str, port: u16) -> PodPort {
        PodPort::new(self.cluster.client.clone(), &self.namespace, pod, port)
    }

    /// Waits until OFREP's answer to the application satisfies `condition`.
    ///
    /// # Errors
    ///
    /// When it does not; the history is in the error.
    pub async fn answer(
        &self,
        app: &PodPort,
        what: &str,
        condition: impl Fn(&Value) -> bool,
    ) -> anyhow::Result<Timestamp> {
        // Longer than kubelet takes without being nudged: 60 to 90 seconds.
        let cap = Duration::from_secs(120);
        let seen = eventually(what, cap, async || {
            let history: crate::app::History = app.get("/watch").await?;
            let last = history.changes.last().context("no answer yet")?;
            anyhow::ensure!(condition(&last.answer), "the last answer is {}", last.answer);
            Ok(Some(last.at))
        });
        seen.await
    }

    /// Patches an annotation of the pods that a selector finds, as anybody could: kubelet then writes their volumes at once,
    /// instead of within 90 seconds. For cases that are not about the time an update takes.
    ///
    /// # Errors
    ///
    /// What the API server says.
    pub async fn poke(&self, selector: &str) -> anyhow::Result<()> {
        let api: Api<Pod> = self.api();
        let patch =
            Patch::Merge(json!({"metadata": {"annotations": {"remora.dev-e2e/poked": Timestamp::now().to_string()}}}));
        for pod in self.cluster.pods(&self.namespace, selector).await? {
            api.patch_metadata(&pod, &PatchParams::default(), &patch).await?;
        }
        Ok(())
    }
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}
