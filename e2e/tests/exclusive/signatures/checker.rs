//! Sigstore's policy-controller in the local cluster, installed by the manifests of its release.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use remora_e2e::harness::{Case, eventually, root};
use serde::Deserialize as _;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::registry::server::output;

const CAP: Duration = Duration::from_secs(120);
const IMAGE: &str = "policy-controller:e2e";
/// Label of the namespaces whose pods the controller checks.
const INCLUDE: &str = "policy.sigstore.dev/include";

/// Built controller, and the manifests of its release.
pub(super) struct Checker {
    program: PathBuf,
    manifests: Vec<Value>,
}

impl Checker {
    /// Builds the controller, unless that happened before. The script prints its progress.
    pub(super) async fn build() -> anyhow::Result<Checker> {
        let mut script = Command::new(root().join("e2e/cluster/policy-controller.sh"));
        let built = script.stdin(Stdio::null()).stderr(Stdio::inherit()).output().await?;
        anyhow::ensure!(built.status.success(), "policy-controller.sh failed: see above");
        let directory = PathBuf::from(String::from_utf8(built.stdout)?.trim_end());
        let mut manifests = Vec::new();
        let mut files: Vec<_> = std::fs::read_dir(directory.join("config"))?.collect::<Result<_, _>>()?;
        files.sort_by_key(std::fs::DirEntry::file_name);
        for file in files.iter().filter(|file| file.file_name() != "kustomization.yaml") {
            let text = std::fs::read_to_string(file.path())?;
            for document in serde_yaml::Deserializer::from_str(&text) {
                let object = Value::deserialize(document).with_context(|| file.path().display().to_string())?;
                if !object.is_null() {
                    manifests.push(adapted(object));
                }
            }
        }
        Ok(Checker { program: directory.join("webhook"), manifests })
    }

    /// Installs the controller, and waits until it accepts and serves this policy.
    pub(super) async fn install(&self, case: &Case, policy: &Value) -> anyhow::Result<()> {
        let mut import = Command::new(root().join("e2e/cluster/import.sh"));
        output(import.args([IMAGE, "/webhook"]).arg(format!("{}:/webhook", self.program.display()))).await?;
        self.kubectl(&["apply", "--server-side"]).await?;
        let policies = policies(case);
        eventually("policy-controller accepts the policy", CAP, async || Ok(Some(case.cluster.apply(policy).await?)))
            .await?;
        let name = policy["metadata"]["name"].as_str().context("a policy without name")?;
        eventually("policy-controller serves the policy", CAP, async || {
            let found = policies.get(name).await?;
            let conditions = found.data.pointer("/status/conditions").and_then(Value::as_array);
            let is_ready = |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
            Ok(conditions.into_iter().flatten().any(is_ready).then_some(()))
        })
        .await
    }

    /// Removes the controller with its policies.
    pub(super) async fn remove(&self, case: &Case) -> anyhow::Result<()> {
        let policies = policies(case);
        // None if the installation failed before there was the type.
        if policies.list(&ListParams::default()).await.is_ok() {
            policies.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
            // The controller has a finalizer on its policies.
            eventually("the policies are gone", CAP, async || {
                Ok(policies.list(&ListParams::default()).await?.items.is_empty().then_some(()))
            })
            .await?;
        }
        self.kubectl(&["delete", "--ignore-not-found", "--wait"]).await
    }

    async fn kubectl(&self, words: &[&str]) -> anyhow::Result<()> {
        let mut kubectl = Command::new("kubectl");
        kubectl
            .args(words)
            .args(["--filename", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = kubectl.kill_on_drop(true).spawn().context("kubectl is not on PATH")?;
        let list = json!({"apiVersion": "v1", "kind": "List", "items": self.manifests});
        child.stdin.take().context("kubectl's input")?.write_all(list.to_string().as_bytes()).await?;
        let ended = child.wait_with_output().await?;
        anyhow::ensure!(ended.status.success(), "kubectl {words:?}: {}", String::from_utf8_lossy(&ended.stderr));
        Ok(())
    }
}

/// Adapts an object of the release to the local cluster: the image is on the node, the registry is reachable at the
/// node's loopback address only, and Sigstore's servers are not reachable.
fn adapted(mut object: Value) -> Value {
    match (object["kind"].as_str(), object["metadata"]["name"].as_str()) {
        (Some("Deployment"), _) => {
            let pod = &mut object["spec"]["template"]["spec"];
            pod["hostNetwork"] = json!(true);
            // The program drains for most of a minute before it ends.
            pod["terminationGracePeriodSeconds"] = json!(1);
            let container = &mut pod["containers"][0];
            container["image"] = json!(format!("remora.local/{IMAGE}"));
            container["args"] = json!(["--disable-tuf"]);
            container["readinessProbe"]["initialDelaySeconds"] = json!(1);
        }
        // Images of others are none of the tests' business, as the chart's README says.
        (_, Some("config-policy-controller")) => object["data"]["no-match-policy"] = json!("warn"),
        // The port for metrics would be one of the node's.
        (_, Some("config-observability")) => object["data"]["metrics.backend-destination"] = json!("none"),
        _ => {}
    }
    object
}

/// Returns the policy of the chart's README for a registry, with the lines for a publisher who has this key.
pub(super) fn policy(example: &str, registry: &str, key: &str) -> anyhow::Result<Value> {
    let text = std::fs::read_to_string(root().join("charts/remora/README.md"))?;
    let blocks = text.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let block = blocks.into_iter().find(|block| block.contains("kind: ClusterImagePolicy"));
    let block = block.context("the chart's README has no policy for policy-controller")?.replace(example, registry);
    let (head, keyless) = block.split_once("    - keyless:\n").context("an authority without key")?;
    let lines = keyless.split_once("# A key in place of keyless and ctlog:\n").context("lines for a key")?.1;
    let lines: String = lines.lines().map(|line| line.replacen("# ", "", 1) + "\n").collect();
    let mut policy: Value = serde_yaml::from_str(&format!("{head}{lines}"))?;
    let data = policy.pointer_mut("/spec/authorities/0/key/data").context("a key")?;
    *data = json!(key);
    Ok(policy)
}

/// Sets or removes the label by which the controller looks at a namespace.
pub(super) async fn include(case: &Case, namespace: &str, is_checked: bool) -> anyhow::Result<()> {
    let api: Api<Namespace> = Api::all(case.cluster.client.clone());
    let value = is_checked.then_some("true");
    let patch = Patch::Merge(json!({"metadata": {"labels": {INCLUDE: value}}}));
    api.patch(namespace, &PatchParams::default(), &patch).await?;
    Ok(())
}

fn policies(case: &Case) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("policy.sigstore.dev", "v1beta1", "ClusterImagePolicy");
    Api::all_with(case.cluster.client.clone(), &ApiResource::from_gvk(&kind))
}
