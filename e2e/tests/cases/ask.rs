//! The kubectl plugin answers about a published environment, names each broken part, and names a missing right.

use std::{os::unix::fs::PermissionsExt as _, path::Path, process::Stdio};

use anyhow::Context as _;
use k8s_openapi::api::{
    core::v1::Pod,
    rbac::v1::{ClusterRole, ClusterRoleBinding},
};
use kube::api::{Api, DeleteParams, PostParams};
use remora_e2e::harness::{App, Case, program, root, with_namespace};
use serde_json::{Value, json};

/// Runs `kubectl remora` in the case's namespace. Returns the exit code, and what it printed on both streams.
pub(crate) async fn ask(case: &Case, arguments: &[&str]) -> anyhow::Result<(i32, String)> {
    let mut plugin = tokio::process::Command::new(program("kubectl-remora")?);
    plugin.args(["--namespace", &case.namespace]).args(arguments).stdin(Stdio::null()).kill_on_drop(true);
    let output = plugin.output().await?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    Ok((output.status.code().unwrap_or(-1), text))
}

/// Asks until the exit code is this one and the answer contains `words`.
pub(crate) async fn expect(case: &Case, arguments: &[&str], code: i32, words: &str) -> anyhow::Result<String> {
    let mut last = String::new();
    for _ in 0..120 {
        let (found, text) = ask(case, arguments).await?;
        if found == code && text.contains(words) {
            return Ok(text);
        }
        last = format!("exit code {found}: {text}");
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    }
    anyhow::bail!("{arguments:?} does not answer {words:?} with exit code {code}; last: {last}")
}

#[tokio::test]
async fn plugin_answers_about_published_environment() -> anyhow::Result<()> {
    with_namespace(async |case| {
        case.storefront().await?;
        case.pod(&App::new("shop").inject("storefront").flag("banner")).await?;
        expect(&case, &["pods", "storefront"], 0, "1 current").await?;
        case.flip("storefront", "banner", &json!({"value": "Sale"})).await?;
        expect(&case, &["history", "storefront"], 0, "1 flag changed: \"banner\"").await?;
        expect(&case, &["flags", "storefront"], 0, "\"Sale\"").await?;
        expect(&case, &["diff", "storefront"], 1, "~ flag banner").await?;
        expect(&case, &["size", "storefront"], 0, "remora-storefront-").await?;
        expect(&case, &["explain", "storefront", "banner", "--identifier", "alice"], 0, "banner: on").await?;
        expect(&case, &["refresh", "storefront", "--wait", "30s"], 0, "fetched; revision").await?;

        let (_, history) = ask(&case, &["history", "storefront", "-o", "json"]).await?;
        let history: Value = serde_json::from_str(&history)?;
        let first = history["revisions"][1]["revision"].as_str().unwrap_or_default().to_owned();
        expect(&case, &["pin", "storefront", &first], 0, &first).await?;
        case.condition("storefront", "Published", "True", Some("Pinned")).await?;
        expect(&case, &["unpin", "storefront"], 0, "newest").await?;
        case.condition("storefront", "Published", "True", Some("Published")).await?;
        expect(&case, &["pods", "storefront"], 0, "1 current").await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn check_names_each_broken_part() -> anyhow::Result<()> {
    with_namespace(async |case| {
        let check = ["check", "--only-namespace"];
        case.storefront().await?;
        case.pod(&App::new("shop").inject("storefront").flag("banner")).await?;
        expect(&case, &check, 0, "gets its sidecar").await?;

        let mut source = case.flagsmith();
        source["flagsmith"]["environmentKeySecretRef"]["name"] = json!("nowhere");
        case.environment("broken", source).await?;
        expect(&case, &check, 1, "SecretNotFound").await?;
        let api: Api<Pod> = case.api();
        let pod = |name: &str, environment: &str| -> anyhow::Result<Pod> {
            Ok(serde_json::from_value(json!({
                "metadata": {"name": name, "annotations": {"remora.dev/inject": environment}},
                "spec": {"nodeSelector": {"no": "node"}, "containers": [{"name": "app", "image": case.cluster.e2e_image()}]},
            }))?)
        };
        api.create(&PostParams::default(), &pod("lost", "nowhere")?).await?;
        expect(&case, &check, 1, "\"nowhere\", which its namespace does not have").await?;

        // A pod that is created while the namespace is excluded has no sidecar, and is a fault once it is not.
        let exclude = async |value: Value| {
            let labels = json!({"remora.dev/admission": value, "remora.dev/e2e": "case"});
            let metadata = json!({"name": case.namespace, "labels": labels});
            case.cluster.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})).await
        };
        exclude(json!("disabled")).await?;
        let mut bare = false;
        for attempt in 0..60 {
            let name = format!("bare-{attempt}");
            let created = api.create(&PostParams::default(), &pod(&name, "storefront")?).await?;
            bare = created.spec.unwrap_or_default().init_containers.unwrap_or_default().is_empty();
            if bare {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        }
        anyhow::ensure!(bare, "the namespace is not excluded");
        exclude(json!("enabled")).await?;
        expect(&case, &check, 1, "asks for flags and has no sidecar").await?;

        let quota = json!({
            "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"},
            "spec": {"hard": {"count/configmaps": "1"}},
        });
        case.apply(quota).await?;
        expect(&case, &check, 1, "count/configmaps are used").await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn missing_right_is_named() -> anyhow::Result<()> {
    with_namespace(async |case| {
        case.storefront().await?;
        let nobody = format!("system:serviceaccount:{}:default", case.namespace);
        let right = format!("missing right: get featureenvironments.remora.dev in namespace {}", case.namespace);
        expect(&case, &["--as", &nobody, "flags", "storefront"], 3, &right).await?;
        Ok(())
    })
    .await
}

/// The role of a document, without which an administrator would give more rights than needed.
#[tokio::test]
async fn check_needs_no_other_rights_than_documented() -> anyhow::Result<()> {
    let document = std::fs::read_to_string(root().join("operator/README.md"))?;
    let text = document.split("```yaml\n").find(|text| text.contains("name: remora-check")).context("no role")?;
    let mut role: Value = serde_yaml::from_str(text.split("```").next().unwrap_or_default())?;
    with_namespace(async |case| {
        case.storefront().await?;
        let somebody = format!("system:serviceaccount:{}:default", case.namespace);
        let check = ["--as", &somebody, "check", "--only-namespace"];
        let name = format!("{}-check", case.namespace);
        let labels = json!({"remora.dev/e2e": "case"});
        role["metadata"] = json!({"name": name, "labels": labels});
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": name, "labels": labels},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": case.namespace}],
        });
        case.cluster.apply(&role).await?;
        case.cluster.apply(&binding).await?;
        let checked = expect(&case, &check, 0, " 0 not checked").await;
        let roles: Api<ClusterRole> = Api::all(case.cluster.client.clone());
        let bindings: Api<ClusterRoleBinding> = Api::all(case.cluster.client.clone());
        bindings.delete(&name, &DeleteParams::default()).await?;
        roles.delete(&name, &DeleteParams::default()).await?;
        checked.map(drop)
    })
    .await
}

#[tokio::test]
async fn kubectl_completes_words_of_the_plugin() -> anyhow::Result<()> {
    with_namespace(async |case| {
        case.storefront().await?;
        let plugin = program("kubectl-remora")?;
        let (_, completer) = ask(&case, &["completion"]).await?;
        let directory = std::env::temp_dir().join(format!("remora-completion-{}", std::process::id()));
        std::fs::create_dir_all(&directory)?;
        let path = directory.join("kubectl_complete-remora");
        std::fs::write(&path, completer)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
        let directories = [directory.as_path(), plugin.parent().context("a program is in a directory")?];
        let found = std::env::var_os("PATH").unwrap_or_default();
        let search =
            std::env::join_paths(directories.map(Path::to_owned).into_iter().chain(std::env::split_paths(&found)))?;
        // The shell scripts of `kubectl completion` run this command.
        let mut kubectl = tokio::process::Command::new("kubectl");
        kubectl.args(["__complete", "remora", "history", "--namespace", &case.namespace, ""]);
        let output = kubectl.env("PATH", search).stdin(Stdio::null()).kill_on_drop(true).output().await?;
        std::fs::remove_dir_all(&directory)?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        anyhow::ensure!(text.lines().next() == Some("storefront"), "{text:?}: {output:?}");
        Ok(())
    })
    .await
}
