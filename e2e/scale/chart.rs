//! Objects of the chart, for a cluster without kubelets.

use std::{path::Path, process::Command};

use anyhow::ensure;
use remora_e2e::harness::root;
use serde::Deserialize as _;
use serde_json::Value;

/// Kinds of the chart's objects that the operator needs outside the cluster: no program and no injector.
const KINDS: [&str; 11] = [
    "CustomResourceDefinition",
    "ServiceAccount",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "PriorityLevelConfiguration",
    "FlowSchema",
    "Namespace",
];

/// Returns the accounts of the operator, their rights and limits, and the flow schemas.
pub(crate) fn accounts(bin: &Path) -> anyhow::Result<Vec<Value>> {
    let mut objects = render(bin, &["--include-crds"])?;
    objects.retain(|object| object["kind"].as_str().is_some_and(|kind| KINDS.contains(&kind)));
    Ok(objects)
}

/// Returns the registration of the webhook.
pub(crate) fn registration(bin: &Path) -> anyhow::Result<Vec<Value>> {
    render(bin, &["--show-only=templates/registration.yaml"])
}

/// Returns the policies that inject in place of the webhook.
pub(crate) fn policies(bin: &Path, minor: u32) -> anyhow::Result<Vec<Value>> {
    let version = if minor >= 36 { "v1" } else { "v1beta1" };
    let api = format!("--api-versions=admissionregistration.k8s.io/{version}/MutatingAdmissionPolicy");
    render(bin, &["--show-only=templates/policy.yaml", "--set=injection.by=AdmissionPolicy", &api])
}

/// Returns the minor version of the API server.
pub(crate) fn minor(bin: &Path) -> anyhow::Result<u32> {
    let said = Command::new(bin.join("kube-apiserver")).arg("--version").output()?;
    let text = String::from_utf8_lossy(&said.stdout);
    let minor = text.split('.').nth(1).and_then(|minor| minor.parse().ok());
    minor.ok_or_else(|| anyhow::anyhow!("no version of kube-apiserver: {text}"))
}

fn render(bin: &Path, arguments: &[&str]) -> anyhow::Result<Vec<Value>> {
    let rendered = Command::new(bin.join("helm"))
        .args(["template", "remora"])
        .arg(root().join("charts/remora"))
        .args(["--namespace=remora-system", "--kube-version", &format!("1.{}.0", minor(bin)?)])
        .args(arguments)
        .output()?;
    ensure!(rendered.status.success(), "helm template: {}", String::from_utf8_lossy(&rendered.stderr));
    let text = String::from_utf8(rendered.stdout)?;
    let objects = serde_yaml::Deserializer::from_str(&text).map(Value::deserialize);
    Ok(objects.collect::<Result<Vec<_>, _>>()?.into_iter().filter(|object| !object.is_null()).collect())
}
