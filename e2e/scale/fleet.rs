//! Namespaces, environments and pods. The pods have what the webhook adds to a pod, and a status as a kubelet writes it.

use std::{collections::BTreeMap, net::Ipv4Addr, time::Duration};

use anyhow::Context as _;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{Namespace, Pod, Secret};
use kube::{
    Api, Client, Resource,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use remora_e2e::{harness::storefront, upstream::Upstream};
use remora_operator::api::FeatureEnvironment;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::{
    pods::{application, injected},
    sidecars::Sidecars,
    until,
};

/// Requests of this program in flight.
const CONCURRENCY: usize = 24;
/// Namespace with 30 % of the environments, which a phase deletes.
pub(crate) const CROWDED: &str = "crowded";
/// Environment with half of the pods, and its namespace.
pub(crate) const LARGE: &str = "large";

/// Size of the fleet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) environments: usize,
    pub(crate) pods: usize,
    pub(crate) nodes: usize,
}

/// One environment.
#[derive(Clone, Debug)]
pub(crate) struct Environment {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) pods: usize,
    key: String,
}

/// The fleet in the cluster.
pub(crate) struct Fleet {
    client: Client,
    size: Size,
    pub(crate) environments: Vec<Environment>,
}

impl Environment {
    /// Plans an environment without pods in a namespace of its own, which has the same name.
    pub(crate) fn alone(name: &str) -> Self {
        Self { namespace: name.to_owned(), name: name.to_owned(), pods: 0, key: format!("ser.scale-{name}") }
    }

    /// Changes a flag at the source.
    pub(crate) fn flip(&self, upstream: &Upstream, flag: &str, value: &str) -> anyhow::Result<()> {
        let change = serde_json::from_value(json!({"enabled": true, "value": value}))?;
        upstream.store().change_flag(&self.key, flag, &change)
    }

    /// Serves a document.
    pub(crate) fn serve(&self, upstream: &Upstream, document: &str) -> anyhow::Result<()> {
        upstream.store().put(&self.key, document)
    }
}

impl Fleet {
    /// Plans a fleet: one environment has half of the pods, and 30 % of the environments share a namespace.
    pub(crate) fn plan(client: Client, size: Size) -> Self {
        let crowded = size.environments * 3 / 10;
        let rest = size.pods - size.pods / 2;
        let environments = (0..size.environments).map(|number| {
            let (namespace, name) = match number {
                0 => (LARGE.to_owned(), LARGE.to_owned()),
                number if number <= crowded => (CROWDED.to_owned(), format!("e{number}")),
                number => (format!("team-{number}"), format!("e{number}")),
            };
            let others = size.environments.saturating_sub(1).max(1);
            let share = rest / others + usize::from(number <= rest % others);
            let pods = if number == 0 { size.pods / 2 } else { share };
            Environment { namespace, name, pods, key: format!("ser.scale-{number}") }
        });
        Self { client, size, environments: environments.collect() }
    }

    /// Serves a document for each environment.
    pub(crate) fn serve(&self, upstream: &Upstream) -> anyhow::Result<()> {
        for (number, environment) in self.environments.iter().enumerate() {
            environment.serve(upstream, &document(&format!("client-{number}")).to_string())?;
        }
        Ok(())
    }

    /// Creates the namespaces and the Secrets with the keys of these environments.
    pub(crate) async fn create_secrets(&self, environments: &[Environment]) -> anyhow::Result<()> {
        let mut namespaces: Vec<&String> = environments.iter().map(|environment| &environment.namespace).collect();
        namespaces.sort();
        namespaces.dedup();
        let all: Api<Namespace> = Api::all(self.client.clone());
        each(namespaces, async |name| create(&all, json!({"metadata": {"name": name}})).await).await?;
        each(environments, async |environment| {
            let api: Api<Secret> = Api::namespaced(self.client.clone(), &environment.namespace);
            let labels = json!({"remora.dev/environment-key": "true"});
            let metadata = json!({"name": environment.name, "labels": labels});
            create(&api, json!({"metadata": metadata, "stringData": {"environment-key": environment.key}})).await
        })
        .await
    }

    /// Creates these environments. Their `spec` has these members besides the source.
    pub(crate) async fn create_environments(
        &self,
        upstream: &Upstream,
        environments: &[Environment],
        spec: &Value,
    ) -> anyhow::Result<()> {
        each(environments, async |environment| {
            let secret = json!({"name": environment.name, "key": "environment-key"});
            let mut spec = spec.clone();
            spec["source"] = json!({"flagsmith": {"apiUrl": upstream.api_url(), "environmentKeySecretRef": secret}});
            let object = json!({
                "apiVersion": "remora.dev/v1alpha1", "kind": "FeatureEnvironment",
                "metadata": {"name": environment.name, "namespace": environment.namespace}, "spec": spec,
            });
            let api = Api::namespaced_with(self.client.clone(), &environment.namespace, &kind());
            create::<DynamicObject>(&api, object).await
        })
        .await
    }

    /// Creates the pods, lets kubelets start them, and registers their sidecars, which serve `revision_of` the
    /// environment.
    pub(crate) async fn create_pods(&self, sidecars: &Sidecars) -> anyhow::Result<()> {
        let revisions = self.revisions().await?;
        let mut pods = Vec::new();
        for environment in &self.environments {
            let place = (environment.namespace.clone(), environment.name.clone());
            let revision = revisions.get(&place).context("an environment has no revision")?;
            for number in 0..environment.pods {
                pods.push((environment, number, revision, sidecars.address(pods.len())?));
            }
        }
        let nodes = self.size.nodes;
        each(pods, async |(environment, number, revision, address): (&Environment, usize, &String, Ipv4Addr)| {
            let name = format!("{}-{number}", environment.name);
            sidecars.starts(address, &environment.name, revision);
            self.create_pod(environment, &name, &format!("node-{}", number % nodes), address).await
        })
        .await
    }

    async fn create_pod(
        &self,
        environment: &Environment,
        name: &str,
        node: &str,
        address: Ipv4Addr,
    ) -> anyhow::Result<()> {
        let mut pod = application(&environment.namespace, name, &environment.name);
        pod["spec"]["nodeName"] = json!(node);
        let pod = injected(&pod)?;
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &environment.namespace);
        create(&api, pod).await?;
        let running = |name: &str| {
            json!({"name": name, "image": "i", "imageID": "i", "ready": true, "started": true, "restartCount": 0,
                "state": {"running": {"startedAt": "2026-11-20T00:00:00Z"}}})
        };
        let status = json!({"status": {
            "phase": "Running", "podIP": address, "podIPs": [{"ip": address}],
            "containerStatuses": [running("app")], "initContainerStatuses": [running("remora")],
        }});
        api.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await?;
        Ok(())
    }

    /// Replaces this share of the pods of the large environment, as a rollout does: each is deleted, and another created.
    pub(crate) async fn roll(&self, sidecars: &Sidecars, count: usize) -> anyhow::Result<()> {
        let revisions = self.revisions().await?;
        let large = self.environments.first().context("no environment")?;
        let revision = revisions.get(&(large.namespace.clone(), large.name.clone())).context("no revision")?;
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &large.namespace);
        let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        each(0..count.min(large.pods), async |number| {
            api.delete(&format!("{}-{number}", large.name), &now).await?;
            let address = sidecars.address(self.size.pods + number)?;
            sidecars.starts(address, &large.name, revision);
            let node = format!("node-{}", number % self.size.nodes);
            self.create_pod(large, &format!("{}-new-{number}", large.name), &node, address).await
        })
        .await
    }

    /// Waits until `holds` is true of the status of each of these environments.
    pub(crate) async fn all(
        &self,
        what: &str,
        chosen: &[Environment],
        holds: impl Fn(&Environment, &Value) -> bool,
    ) -> anyhow::Result<()> {
        until(what, Duration::from_secs(1800), async || {
            let statuses = self.statuses().await?;
            Ok(chosen.iter().all(|environment| {
                let place = (environment.namespace.clone(), environment.name.clone());
                statuses.get(&place).is_some_and(|status| holds(environment, status))
            }))
        })
        .await
    }

    /// Returns the published revisions.
    pub(crate) async fn revisions(&self) -> anyhow::Result<BTreeMap<(String, String), String>> {
        let statuses = self.statuses().await?.into_iter();
        Ok(statuses.filter_map(|(place, status)| Some((place, status["revision"].as_str()?.to_owned()))).collect())
    }

    async fn statuses(&self) -> anyhow::Result<BTreeMap<(String, String), Value>> {
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &kind());
        // From the API server's memory: this program asks often.
        let found = api.list(&ListParams::default().match_any()).await?;
        let status = |object: DynamicObject| {
            let place = (object.metadata.namespace.unwrap_or_default(), object.metadata.name.unwrap_or_default());
            (place, object.data["status"].clone())
        };
        Ok(found.items.into_iter().map(status).collect())
    }

    /// Returns the status of an environment.
    pub(crate) async fn status(&self, environment: &Environment) -> anyhow::Result<Value> {
        let place = (environment.namespace.clone(), environment.name.clone());
        self.statuses().await?.remove(&place).with_context(|| format!("no environment {}", environment.name))
    }

    /// Deletes the namespace with many environments.
    pub(crate) async fn delete_crowded(&self) -> anyhow::Result<()> {
        let all: Api<Namespace> = Api::all(self.client.clone());
        all.delete(CROWDED, &DeleteParams::default()).await?;
        until("the namespace is gone", Duration::from_secs(1800), async || Ok(all.get_opt(CROWDED).await?.is_none()))
            .await
    }
}

fn kind() -> ApiResource {
    ApiResource::erase::<FeatureEnvironment>(&())
}

/// Returns a document with 50 flags.
fn document(client_key: &str) -> Value {
    let mut document = storefront(client_key, 20);
    if let Some(states) = document["feature_states"].as_array_mut() {
        let Some(template) = states.last().cloned() else { return document };
        for number in 100..148 {
            let mut state = template.clone();
            state["feature"]["id"] = json!(number);
            state["feature"]["name"] = json!(format!("flag-{number}"));
            state["django_id"] = json!(number);
            state["featurestate_uuid"] = json!(format!("00000000-0000-4000-8000-{number:012}"));
            states.push(state);
        }
    }
    document
}

async fn create<K>(api: &Api<K>, object: Value) -> anyhow::Result<()>
where
    K: Resource + Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    let object: K = serde_json::from_value(object)?;
    match api.create(&PostParams::default(), &object).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Does the work for each item, some at a time.
async fn each<T>(
    items: impl IntoIterator<Item = T>,
    work: impl AsyncFn(T) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let work = &work;
    stream::iter(items).map(async |item| work(item).await).buffer_unordered(CONCURRENCY).try_collect::<()>().await?;
    Ok(())
}
