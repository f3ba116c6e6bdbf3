//! A release in a registry: the commands of README.md install it, nodes pull its images by their digests, and refuse
//! other bytes.

pub(crate) mod server;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams};
use remora_e2e::harness::{App, Case, Release, SYSTEM, alone_in_namespace, documented, storefront};
use serde_json::json;
use tokio::process::Command;

use self::server::{Registries, Registry, USER, output};
use super::node::Node;
use super::unpullable::held_back;

/// Registry in README.md.
pub(super) const EXAMPLE: &str = "registry.example.org/remora";
/// First bytes of a compressed file. The chart is the only such file in the registry.
const COMPRESSED: [u8; 3] = [0x1f, 0x8b, 0x08];
/// Name of the pull secret.
const PULL_SECRET: &str = "registry";

/// Returns the commands by which README.md installs a release: the installation and its test.
pub(super) fn installation() -> anyhow::Result<[String; 2]> {
    let commands = documented()?.into_iter().filter(|command| command.document == "README.md");
    let helm: Vec<String> =
        commands.filter(|command| command.program() == "helm").map(|command| command.text).collect();
    let found = |begin: &str| helm.iter().find(|text| text.starts_with(begin)).cloned();
    let install = found("helm install remora oci://").context("README.md has no installation from a registry")?;
    anyhow::ensure!(install.contains(EXAMPLE), "{install} does not name {EXAMPLE}");
    Ok([install, found("helm test remora").context("README.md has no test of the installation")?])
}

/// Runs a command of README.md with this registry in place of the example's.
pub(super) async fn run(registry: &Registry, command: &str) -> anyhow::Result<String> {
    output(Command::new("bash").args(["-euc", &command.replace(EXAMPLE, &registry.place())])).await
}

/// Creates a FeatureEnvironment from a document in the cluster: the chart's default origins do not include the upstream
/// of the tests.
pub(super) async fn environment(case: &Case) -> anyhow::Result<()> {
    let document = storefront(&case.client_key(), 1);
    let data = json!({"environment.json": document.to_string()});
    case.apply(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "flags"}, "data": data})).await?;
    let source = json!({"document": {"configMapKeyRef": {"name": "flags", "key": "environment.json"}}});
    case.environment("storefront", source).await?;
    case.condition("storefront", "Ready", "True", None).await
}

/// Creates a pod with a sidecar, and checks that it gets flags.
async fn served(case: &Case, name: &str) -> anyhow::Result<()> {
    let app = case.pod(&App::new(name).inject("storefront").flag("banner")).await?;
    case.answer(&app, "banner is Welcome", |answer| answer["value"] == "Welcome").await?;
    Ok(())
}

/// Checks that the images of the operator and of a pod's sidecar come from this registry, by their digests.
pub(super) async fn pulled(case: &Case, registry: &Registry, pod: &str) -> anyhow::Result<()> {
    let operator: Api<Pod> = Api::namespaced(case.cluster.client.clone(), SYSTEM);
    let mut images = Vec::new();
    for pod in operator.list(&ListParams::default().labels("app.kubernetes.io/component")).await? {
        images.extend(pod.spec.unwrap_or_default().containers.into_iter().filter_map(|container| container.image));
    }
    let spec = case.api::<Pod>().get(pod).await?.spec.unwrap_or_default();
    let sidecar = spec.init_containers.unwrap_or_default().into_iter().find(|container| container.name == "remora");
    images.extend(sidecar.and_then(|container| container.image));
    let place = registry.place();
    for (program, count) in [("remora-operator", 3), ("remora-sidecar", 1)] {
        let pulled = images.iter().filter(|image| image.starts_with(&format!("{place}/{program}@sha256:"))).count();
        anyhow::ensure!(pulled == count, "{pulled} of {count} images of {program} are pulled by digest: {images:?}");
    }
    anyhow::ensure!(images.len() == 4, "{images:?}");
    Ok(())
}

async fn delete(case: &Case, pod: &str) -> anyhow::Result<()> {
    case.api::<Pod>().delete(pod, &DeleteParams::default().grace_period(0)).await?;
    Ok(())
}

/// Installs the release by README.md's commands. An altered chart is not installed; an altered image of the sidecar
/// starts nowhere, and pods start when the registry has the right bytes again.
async fn installed(case: &Case, registries: &Registries, [install, test]: &[String; 2]) -> anyhow::Result<()> {
    let chart = registries.alter(&COMPRESSED)?;
    let refused = run(&registries.open, install).await;
    anyhow::ensure!(refused.as_ref().is_err_and(|said| said.to_string().contains("digest")), "{refused:?}");
    chart.restore()?;
    // The layer is a tar archive, which begins with the name of its first file.
    let layer = registries.alter(b"remora-sidecar\0")?;
    run(&registries.open, install).await?;
    Release::of(&case.cluster).settled().await?;
    let said = run(&registries.open, test).await?;
    anyhow::ensure!(said.contains("Succeeded"), "{said}");

    environment(case).await?;
    case.create_pod(&App::new("altered").inject("storefront")).await?;
    held_back(case, "altered", &[&registries.open.place(), "unexpected commit digest"]).await?;
    layer.restore()?;
    delete(case, "altered").await?;
    served(case, "shop").await?;
    pulled(case, &registries.open, "shop").await
}

/// Returns the manifest of the pull secret for the private registry.
fn pull_secret(registry: &Registry) -> serde_json::Value {
    let [username, password] = USER;
    let logins = json!({"auths": {registry.address(): {"username": username, "password": password}}});
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": PULL_SECRET},
        "type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": logins.to_string()},
    })
}

/// Upgrades by the chart's digest to the same release in a registry that wants credentials. The operator's are a value of
/// the chart; those of the sidecar are the pods' own.
async fn upgraded(case: &Case, registries: &Registries, chart: &str) -> anyhow::Result<()> {
    let private = &registries.private;
    let mut secret = pull_secret(private);
    secret["metadata"]["namespace"] = json!(SYSTEM);
    case.cluster.apply(&secret).await?;
    let upgrade = format!(
        "helm upgrade remora oci://{chart} --namespace {SYSTEM} --reuse-values --set \
         image.registry={},imagePullSecrets[0].name={PULL_SECRET}",
        private.place()
    );
    run(&registries.open, &upgrade).await?;
    Release::of(&case.cluster).settled().await?;

    case.create_pod(&App::new("stranger").inject("storefront")).await?;
    held_back(case, "stranger", &[&private.place(), "401 Unauthorized"]).await?;
    delete(case, "stranger").await?;
    case.apply(pull_secret(private)).await?;
    let secrets = json!([{"name": PULL_SECRET}]);
    case.apply(json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}, "imagePullSecrets": secrets}))
        .await?;
    served(case, "known").await?;
    pulled(case, private, "known").await
}

#[tokio::test]
async fn readme_installs_release_from_registry() -> anyhow::Result<()> {
    alone_in_namespace(async |case| {
        if Node::local("a release in a registry").await?.is_none() {
            return Ok(());
        }
        let commands = installation()?;
        let registries = Registries::start().await?;
        let chart = registries.publish(&[]).await?;
        let release = Release::of(&case.cluster);
        release.uninstall().await?;
        // After a failure the installation stays for the diagnostics; the next case replaces it.
        installed(&case, &registries, &commands).await?;
        upgraded(&case, &registries, &chart).await?;
        release.install().await
    })
    .await
}
