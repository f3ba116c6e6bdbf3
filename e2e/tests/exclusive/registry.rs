//! A release in a registry: the commands of README.md install it, and the node pulls its images by their digests.

use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use remora_e2e::harness::{App, Case, Release, SYSTEM, alone_in_namespace, documented, eventually, root, storefront};
use serde_json::json;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use super::node::Node;

const CAP: Duration = Duration::from_secs(60);
/// Registry in README.md.
const EXAMPLE: &str = "registry.example.org/remora";

/// A registry on the node, which ends with this value.
struct Registry {
    directory: PathBuf,
    address: String,
    _process: Child,
}

impl Registry {
    async fn start() -> anyhow::Result<Registry> {
        // The port is free again when the registry binds it.
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let directory = std::env::temp_dir().join(format!("remora-registry-{}", std::process::id()));
        std::fs::create_dir_all(&directory)?;
        let log = std::fs::File::create(directory.join("log"))?;
        let mut registry = Command::new(root().join("e2e/release/registry.sh"));
        registry.arg(&directory).arg(port.to_string()).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let process = registry.kill_on_drop(true).spawn()?;
        let address = format!("127.0.0.1:{port}");
        let found = Registry { directory, address, _process: process };
        eventually("the registry answers", CAP, async || Ok(TcpStream::connect(&found.address).await.ok())).await?;
        Ok(found)
    }

    /// Returns the place of the images and the chart.
    fn place(&self) -> String {
        format!("{}/remora", self.address)
    }

    /// Publishes a release of the programs that the cluster's images have.
    async fn publish(&self) -> anyhow::Result<()> {
        let mut trial = Command::new(root().join("e2e/release/trial.sh"));
        trial.arg(self.directory.join("release")).env("REGISTRY", self.place()).env("PLAIN_HTTP", "true");
        let output = trial.env_remove("CI").output().await?;
        let said = [output.stdout, output.stderr].concat();
        anyhow::ensure!(output.status.success(), "trial.sh: {}", String::from_utf8_lossy(&said));
        Ok(())
    }

    /// Runs a command of README.md with this registry in place of the example's.
    async fn run(&self, command: &str) -> anyhow::Result<String> {
        let command = command.replace(EXAMPLE, &self.place());
        let output = Command::new("bash").args(["-euc", &command]).kill_on_drop(true).output().await?;
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        anyhow::ensure!(output.status.success(), "{command}: {said}");
        Ok(said)
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        // A directory that stays does not justify another failure.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Returns the commands by which README.md installs a release: the installation and its test.
fn installation() -> anyhow::Result<[String; 2]> {
    let commands = documented()?.into_iter().filter(|command| command.document == "README.md");
    let helm: Vec<String> =
        commands.filter(|command| command.program() == "helm").map(|command| command.text).collect();
    let found = |begin: &str| helm.iter().find(|text| text.starts_with(begin)).cloned();
    let install = found("helm install remora oci://").context("README.md has no installation from a registry")?;
    anyhow::ensure!(install.contains(EXAMPLE), "{install} does not name {EXAMPLE}");
    Ok([install, found("helm test remora").context("README.md has no test of the installation")?])
}

/// Installs the release by these commands, and checks that pods get flags and that images are pulled by digest.
async fn installed(case: &Case, registry: &Registry, [install, test]: &[String; 2]) -> anyhow::Result<()> {
    registry.run(install).await?;
    Release::of(&case.cluster).settled().await?;
    let said = registry.run(test).await?;
    anyhow::ensure!(said.contains("Succeeded"), "{said}");

    // The chart's default origins do not include the upstream of the tests, so the document is in the cluster.
    let document = storefront(&case.client_key(), 1);
    let data = json!({"environment.json": document.to_string()});
    case.apply(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "flags"}, "data": data})).await?;
    let source = json!({"document": {"configMapKeyRef": {"name": "flags", "key": "environment.json"}}});
    case.environment("storefront", source).await?;
    case.condition("storefront", "Ready", "True", None).await?;
    let app = case.pod(&App::new("shop").inject("storefront").flag("banner")).await?;
    case.answer(&app, "banner is Welcome", |answer| answer["value"] == "Welcome").await?;

    let operator: Api<Pod> = Api::namespaced(case.cluster.client.clone(), SYSTEM);
    let mut images = Vec::new();
    for pod in operator.list(&ListParams::default().labels("app.kubernetes.io/component")).await? {
        images.extend(pod.spec.unwrap_or_default().containers.into_iter().filter_map(|container| container.image));
    }
    let shop = case.api::<Pod>().get("shop").await?.spec.unwrap_or_default();
    let sidecar = shop.init_containers.unwrap_or_default().into_iter().find(|container| container.name == "remora");
    images.extend(sidecar.and_then(|container| container.image));
    let place = registry.place();
    for (program, count) in [("remora-operator", 3), ("remora-sidecar", 1)] {
        let pulled = images.iter().filter(|image| image.starts_with(&format!("{place}/{program}@sha256:"))).count();
        anyhow::ensure!(pulled == count, "{pulled} of {count} images of {program} are pulled by digest: {images:?}");
    }
    anyhow::ensure!(images.len() == 4, "{images:?}");
    Ok(())
}

#[tokio::test]
async fn readme_installs_release_from_registry() -> anyhow::Result<()> {
    alone_in_namespace(async |case| {
        if Node::local("a release in a registry").await?.is_none() {
            return Ok(());
        }
        let commands = installation()?;
        let registry = Registry::start().await?;
        registry.publish().await?;
        let release = Release::of(&case.cluster);
        release.uninstall().await?;
        let tried = installed(&case, &registry, &commands).await;
        // The next case needs the usual release, whatever happened.
        release.install().await?;
        tried
    })
    .await
}
