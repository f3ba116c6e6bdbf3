//! cert-manager's controllers as a process of the machine of the local cluster, and the definitions of their types.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use kube::api::{Api, DeleteParams, DynamicObject};
use kube::core::{ApiResource, GroupVersionKind};
use remora_e2e::harness::{Case, SYSTEM, eventually, root};
use serde_json::Value;
use tokio::process::{Child, Command};

const CAP: Duration = Duration::from_secs(60);
/// Number of lines of the log in an error.
const LAST_LINES: usize = 30;

/// API of a kind of cert-manager in the namespace of the release.
pub(super) fn api(case: &Case, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("cert-manager.io", "v1", kind));
    Api::namespaced_with(case.cluster.client.clone(), SYSTEM, &resource)
}

/// True if a condition of the object is `True`.
pub(super) fn has_condition(object: &DynamicObject, kind: &str) -> bool {
    let conditions = object.data.pointer("/status/conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().any(|condition| condition["type"] == kind && condition["status"] == "True")
}

/// Directory with the built program and the definitions of its types.
pub(super) struct Program(PathBuf);

impl Program {
    /// Builds the program, unless that happened before. The script prints its progress.
    pub(super) async fn build() -> anyhow::Result<Program> {
        let mut script = Command::new(root().join("e2e/cluster/cert-manager.sh"));
        script.stdin(Stdio::null()).stderr(Stdio::inherit());
        let output = script.output().await?;
        anyhow::ensure!(output.status.success(), "cert-manager.sh failed: see above");
        Ok(Program(String::from_utf8(output.stdout)?.trim_end().into()))
    }

    /// Defines the types that the controllers watch, and waits until the API server serves them.
    pub(super) async fn define_types(&self, case: &Case) -> anyhow::Result<()> {
        let definitions = definitions(case);
        for definition in self.types()? {
            let applied = case.cluster.apply(&definition).await?;
            let name = applied.metadata.name.context("a definition has a name")?;
            eventually(&format!("{name} is served"), CAP, async || {
                Ok(has_condition(&definitions.get(&name).await?, "Established").then_some(()))
            })
            .await?;
        }
        Ok(())
    }

    /// Removes these types with all their objects.
    pub(super) async fn remove_types(&self, case: &Case) -> anyhow::Result<()> {
        let definitions = definitions(case);
        for definition in self.types()? {
            let name = definition["metadata"]["name"].as_str().context("a definition has a name")?;
            let deleted = definitions.delete(name, &DeleteParams::default()).await;
            if !matches!(&deleted, Err(kube::Error::Api(status)) if status.is_not_found()) {
                deleted?;
            }
            eventually(&format!("{name} is removed"), CAP, async || {
                Ok(definitions.get_opt(name).await?.is_none().then_some(()))
            })
            .await?;
        }
        Ok(())
    }

    fn types(&self) -> anyhow::Result<Vec<Value>> {
        let directory = self.0.join("crds");
        let mut types = Vec::new();
        for entry in std::fs::read_dir(&directory).with_context(|| directory.display().to_string())? {
            let path = entry?.path();
            let text = std::fs::read_to_string(&path)?;
            types.push(serde_yaml::from_str(&text).with_context(|| path.display().to_string())?);
        }
        anyhow::ensure!(!types.is_empty(), "{} is empty", directory.display());
        Ok(types)
    }
}

fn definitions(case: &Case) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    Api::all_with(case.cluster.client.clone(), &ApiResource::from_gvk(&kind))
}

/// Running controllers. They end with this value.
pub(super) struct Controllers {
    log: PathBuf,
    process: Child,
}

impl Controllers {
    /// Runs the controllers during these steps. An error of the steps, or an end of the controllers, has the end of
    /// their log.
    pub(super) async fn run(program: &Program, steps: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
        let mut controllers = Controllers::start(&program.0)?;
        let ended = tokio::select! {
            ended = steps => ended,
            status = controllers.process.wait() => Err(anyhow::anyhow!("cert-manager has ended: {}", status?)),
        };
        let _ended_already = controllers.process.kill().await;
        ended.with_context(|| format!("with cert-manager, whose log ends with:\n{}", controllers.last_lines()))
    }

    fn start(directory: &Path) -> anyhow::Result<Controllers> {
        let path = std::env::temp_dir().join(format!("remora-cert-manager-{}.log", std::process::id()));
        let log = std::fs::File::create(&path)?;
        let mut program = Command::new(directory.join("cert-manager"));
        program.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).kill_on_drop(true);
        Ok(Controllers { log: path, process: program.spawn()? })
    }

    fn last_lines(&self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
    }
}

impl Drop for Controllers {
    fn drop(&mut self) {
        // A file that stays does not justify another failure.
        let _ = std::fs::remove_file(&self.log);
    }
}
