//! Namespaces with one environment each, which follow one script at the same time.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::{Api, Client, api::ListParams};
use remora_e2e::harness::storefront;
use remora_operator::api::{
    FeatureEnvironment,
    names::{EnvironmentName, label},
};
use serde_json::{Value, json};

use crate::{
    control_plane::ControlPlane,
    pods::{application, injected},
    relay::{Plan, Relay},
    until,
};

/// Longest time until all environments have followed a step: each plan may end the controller once.
const STEP: Duration = Duration::from_secs(300);
/// Time without a write after which a script has ended.
const REST: Duration = Duration::from_secs(5);

/// Contents of the published objects by name, without those of earlier revisions.
type Published = BTreeMap<String, BTreeMap<String, Vec<u8>>>;

/// Expected objects of a namespace after a step.
#[derive(Clone, Copy)]
enum Wanted<'a> {
    Any,
    Unlike(&'a Published),
    Equal(&'a Published),
}

/// Namespaces that follow the script.
pub(crate) struct Shops<'a> {
    plane: &'a ControlPlane,
    client: Client,
    relay: &'a Relay,
    namespaces: Vec<String>,
    /// Objects of the first namespace after each step.
    steps: Vec<Published>,
}

impl<'a> Shops<'a> {
    /// Creates a namespace for each plan, whose cuts begin at once.
    pub(crate) async fn create(
        plane: &'a ControlPlane,
        relay: &'a Relay,
        plans: Vec<(String, Plan)>,
    ) -> anyhow::Result<Self> {
        let objects: Vec<Value> = plans
            .iter()
            .map(|(name, _)| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))
            .collect();
        plane.apply(&objects)?;
        plans.iter().for_each(|(name, plan)| relay.follow(name, *plan));
        let namespaces = plans.into_iter().map(|(name, _)| name).collect();
        Ok(Self { plane, client: plane.client().await?, relay, namespaces, steps: Vec::new() })
    }

    /// Publishes, changes and deletes the environments, with a pod in each namespace. `reference` is what an undisturbed
    /// namespace has after each step.
    pub(crate) async fn follow_script(&mut self, reference: Option<&[Published]>) -> anyhow::Result<()> {
        let environment = |spec: &Value| {
            let mut spec = spec.clone();
            spec["source"] = json!({"document": {"configMapKeyRef": {"name": "flags", "key": "environment.json"}}});
            json!({"apiVersion": "remora.dev/v1alpha1", "kind": "FeatureEnvironment", "metadata": {"name": "storefront"}, "spec": spec})
        };
        let without_history = environment(&json!({"revisionHistoryLimit": 0}));
        let steps: [(&str, Vec<Value>); 5] = [
            ("the environment is published", vec![flags("first"), environment(&json!({}))]),
            ("a flag changes", vec![flags("second")]),
            ("a flag changes again", vec![flags("third")]),
            ("earlier revisions are deleted", vec![without_history.clone()]),
            ("a flag changes without history", vec![flags("fourth")]),
        ];
        for (number, (what, objects)) in steps.iter().enumerate() {
            let mut all: Vec<Value> = self
                .namespaces
                .iter()
                .flat_map(|namespace| objects.iter().map(move |object| within(namespace, object)))
                .collect();
            if number == 0 {
                for namespace in &self.namespaces {
                    all.push(injected(&application(namespace, "web", "storefront"))?);
                }
            }
            self.plane.apply(&all)?;
            let wanted = match (reference, self.steps.last()) {
                (Some(steps), _) => Wanted::Equal(steps.get(number).context("the reference has fewer steps")?),
                (None, Some(before)) if objects.iter().any(|object| object["kind"] == "ConfigMap") => {
                    Wanted::Unlike(before)
                }
                (None, _) => Wanted::Any,
            };
            until(what, STEP, async || {
                for namespace in &self.namespaces {
                    self.has_followed(namespace, wanted).await.with_context(|| format!("namespace {namespace}"))?;
                }
                Ok(true)
            })
            .await?;
            self.rest().await?;
            let first = self.namespaces.first().context("no namespace")?;
            self.steps.push(self.published(first).await?);
        }
        let all: Vec<Value> = self.namespaces.iter().map(|namespace| within(namespace, &without_history)).collect();
        self.plane.delete(&all)?;
        until("nothing is left of the deleted environments", STEP, async || {
            for namespace in &self.namespaces {
                let left = self.objects(namespace).await?;
                ensure!(left.is_empty(), "namespace {namespace} has {} objects", left.len());
            }
            Ok(true)
        })
        .await?;
        self.rest().await
    }

    /// Fails unless the namespace serves what was applied last.
    async fn has_followed(&self, namespace: &str, wanted: Wanted<'_>) -> anyhow::Result<()> {
        let environments: Api<FeatureEnvironment> = Api::namespaced(self.client.clone(), namespace);
        let environment = environments.get("storefront").await?;
        let status = environment.status.context("no status")?;
        ensure!(status.observed_generation == environment.metadata.generation, "the generation is not observed");
        let ready = status.conditions.iter().find(|condition| condition.type_ == "Published");
        ensure!(ready.is_some_and(|ready| ready.status == "True"), "not published: {:?}", status.conditions);
        let revision = status.revision.context("no revision")?;
        let published = self.published(namespace).await?;
        match wanted {
            Wanted::Any => {}
            Wanted::Unlike(before) => ensure!(published != *before, "nothing has changed"),
            Wanted::Equal(reference) => {
                ensure!(
                    published == *reference,
                    "{:?} is published, and not {:?}",
                    names(&published),
                    names(reference)
                );
            }
        }
        let name: EnvironmentName = "storefront".parse()?;
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let notified = pods.get("web").await?.metadata.annotations.unwrap_or_default();
        let notified = name.notified_revision(&notified);
        ensure!(notified == Some(revision.as_str()), "the pod was notified of {notified:?}, and not {revision}");
        Ok(())
    }

    /// Waits until the controller writes nothing more. Fails if it goes on.
    async fn rest(&self) -> anyhow::Result<()> {
        let counts = || self.namespaces.iter().map(|namespace| self.relay.writes(namespace).len()).collect::<Vec<_>>();
        for _ in 0..10 {
            let before = counts();
            tokio::time::sleep(REST).await;
            if counts() == before {
                return Ok(());
            }
        }
        anyhow::bail!("the controller writes for ever: {:?}", self.relay.writes(&self.namespaces[0]))
    }

    /// Returns the number of writes to the first namespace.
    pub(crate) fn writes(&self) -> usize {
        self.namespaces.first().map_or(0, |first| self.relay.writes(first).len())
    }

    /// Returns what the first namespace had published after each step.
    pub(crate) fn steps(&self) -> &[Published] {
        &self.steps
    }

    async fn objects(&self, namespace: &str) -> anyhow::Result<Vec<ConfigMap>> {
        let published = ListParams::default().labels(&format!("{}={}", label::MANAGED_BY, label::REMORA));
        Ok(Api::<ConfigMap>::namespaced(self.client.clone(), namespace).list(&published).await?.items)
    }

    async fn published(&self, namespace: &str) -> anyhow::Result<Published> {
        let objects = self.objects(namespace).await?.into_iter().filter_map(|object| {
            let name = object.metadata.name.filter(|name| !name.contains("-history-"))?;
            let data = object.binary_data.unwrap_or_default().into_iter().map(|(file, bytes)| (file, bytes.0));
            Some((name, data.collect()))
        });
        Ok(objects.collect())
    }
}

fn names(published: &Published) -> Vec<&String> {
    published.keys().collect()
}

fn within(namespace: &str, object: &Value) -> Value {
    let mut object = object.clone();
    object["metadata"]["namespace"] = json!(namespace);
    object
}

/// Returns the ConfigMap with a document whose first flag has this value.
fn flags(value: &str) -> Value {
    let mut document = storefront("client", 3);
    document["feature_states"][0]["feature_state_value"] = json!(value);
    document["updated_at"] = Value::Null;
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "flags"}, "data": {"environment.json": document.to_string()}})
}
