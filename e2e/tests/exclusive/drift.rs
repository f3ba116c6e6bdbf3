//! Tools that compare the chart with the cluster, as Argo CD does, find no difference: what Remora writes into objects of
//! the chart is not in the chart.

use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use remora_e2e::harness::{Case, Release, SYSTEM, alone_in_namespace, eventually};
use serde_json::json;
use tokio::process::Command;

use super::certificates::{AUTHORITY, bundle};

const CAP: Duration = Duration::from_secs(60);
/// Compares the result of a server-side apply of the release's manifests with the objects in the cluster.
const COMPARE: &str = "helm get manifest remora --namespace remora-system | \
                       kubectl diff --server-side --force-conflicts --field-manager argocd-controller -f -";

/// Returns the differences, which are empty if there are none.
async fn differences() -> anyhow::Result<String> {
    let mut shell = Command::new("bash");
    shell.args(["-euo", "pipefail", "-c", COMPARE]).env("KUBECTL_EXTERNAL_DIFF", "diff --unified --new-file");
    let output = shell.stdin(Stdio::null()).kill_on_drop(true).output().await?;
    let errors = String::from_utf8_lossy(&output.stderr);
    // kubectl diff ends with 1 if there are differences.
    anyhow::ensure!(matches!(output.status.code(), Some(0 | 1)), "{COMPARE}: {errors}");
    let found = String::from_utf8(output.stdout)?;
    anyhow::ensure!(output.status.success() == found.is_empty(), "{COMPARE}: {found}{errors}");
    Ok(found)
}

/// Waits until there is no difference. One that stays fails: a status may change while kubectl compares.
async fn none(when: &str) -> anyhow::Result<()> {
    eventually(&format!("no difference {when}"), CAP, async || {
        let found = differences().await?;
        anyhow::ensure!(found.is_empty(), "{found}");
        Ok(Some(()))
    })
    .await
}

/// Deletes the CA, and waits until the webhook has registered another one.
async fn new_authority(case: &Case) -> anyhow::Result<()> {
    let before = bundle(case).await?;
    let secrets: Api<Secret> = Api::namespaced(case.cluster.client.clone(), SYSTEM);
    secrets.delete(AUTHORITY, &DeleteParams::default()).await.context("no authority")?;
    eventually("another authority is registered", CAP, async || {
        let now = bundle(case).await?;
        Ok((!now.is_empty() && now != before).then_some(()))
    })
    .await
}

#[tokio::test]
async fn server_side_diff_is_empty_after_install_upgrade_and_rotation() -> anyhow::Result<()> {
    alone_in_namespace(async |case| {
        let release = Release::of(&case.cluster);
        release.uninstall().await?;
        release.install().await?;
        case.storefront().await?;
        none("after the installation").await?;
        release.install_with(&json!({"logLevel": "debug"})).await?;
        none("after an upgrade").await?;
        new_authority(&case).await?;
        none("after a rotation of the CA").await?;

        // A change by hand is a difference.
        let accounts: Api<ServiceAccount> = Api::namespaced(case.cluster.client.clone(), SYSTEM);
        let label = Patch::Merge(json!({"metadata": {"labels": {"app.kubernetes.io/name": "by-hand"}}}));
        accounts.patch("remora-webhook", &PatchParams::default(), &label).await?;
        let found = differences().await?;
        anyhow::ensure!(found.contains("by-hand"), "nothing of a changed label: {found}");
        release.install().await
    })
    .await
}
