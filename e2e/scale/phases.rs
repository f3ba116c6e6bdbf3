//! The phases, and the table of what each took.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use remora_e2e::{
    harness::root,
    upstream::{Options, Upstream},
};
use serde::Deserialize as _;
use serde_json::Value;

use crate::{
    control_plane::ControlPlane,
    controller::{Controller, Requests, Usage},
    fleet::{Environment, Fleet, LARGE, Size},
    say,
    sidecars::Sidecars,
    until,
};

/// Time that the API server's audit log may lag behind.
const AUDIT_LAG: Duration = Duration::from_millis(1500);
/// Longest time until the controller has settled after a phase.
const SETTLED: Duration = Duration::from_secs(120);
/// Kinds of the chart's objects that the controller needs outside the cluster: no program and no injector.
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

/// Values of the counters at one time.
struct Reading {
    at: Instant,
    bytes: u64,
    written: f64,
    usage: Usage,
}

/// Cost of a phase.
struct Row {
    phase: String,
    seconds: f64,
    requests: BTreeMap<String, usize>,
    bytes: u64,
    written: f64,
    usage: Usage,
    cpu: f64,
}

/// Scene of the phases.
struct Scene<'a> {
    plane: ControlPlane,
    controller: Controller,
    requests: Requests,
    fleet: Fleet,
    sidecars: Sidecars,
    upstream: &'a Upstream,
    rows: Vec<Row>,
}

/// Runs all phases, and returns the table.
pub(crate) async fn run(
    size: Size,
    steady: Duration,
    bin: &Path,
    operator: &Path,
    directory: &Path,
) -> anyhow::Result<String> {
    let plane = ControlPlane::start(bin, directory).await?;
    let mut objects =
        vec![serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "remora-system"}})];
    objects.extend(chart(bin)?);
    until("the chart's objects are applied", Duration::from_secs(60), async || plane.apply(&objects).map(|()| true))
        .await?;
    let upstream = Upstream::start(&Options::local()).await?;
    let fleet = Fleet::plan(plane.client().await?, size);
    fleet.serve(&upstream)?;
    let sidecars = Sidecars::start(plane.client().await?).await?;
    say("creating namespaces and Secrets")?;
    fleet.create_secrets().await?;
    let origin = upstream.api_url().trim_end_matches("/api/v1/").to_owned();
    let controller = Controller::start(&plane, operator, &origin, directory)?;
    let mut scene = Scene {
        plane,
        controller,
        requests: Requests::default(),
        fleet,
        sidecars,
        upstream: &upstream,
        rows: Vec::new(),
    };
    scene.all(size, steady).await?;
    Ok(table(size, &scene.rows))
}

impl Scene<'_> {
    async fn all(&mut self, size: Size, steady: Duration) -> anyhow::Result<()> {
        let everything = self.fleet.environments.clone();
        self.phase("all environments are created and Ready", async |scene| {
            scene.fleet.create_environments(scene.upstream).await?;
            scene.fleet.all("all environments are Ready", &everything, |_, status| is_ready(status)).await
        })
        .await?;
        self.phase("all pods are created", async |scene| scene.fleet.create_pods(&scene.sidecars).await).await?;
        self.settle().await?;
        self.phase(&format!("steady state for {} s", steady.as_secs()), async |_| {
            tokio::time::sleep(steady).await;
            Ok(())
        })
        .await?;
        let large = everything.first().context("no environment")?.clone();
        self.phase(
            &format!("a flag of an environment with {} pods changes: the last pod is told", large.pods),
            async |scene| {
                let chosen = std::slice::from_ref(&large);
                scene.flip(chosen, "first").await?;
                scene.told(&large).await
            },
        )
        .await?;
        self.phase("… and its pods are confirmed in the status", async |scene| {
            scene.fleet.all("the pods are confirmed", std::slice::from_ref(&large), is_confirmed).await
        })
        .await?;
        self.settle().await?;
        self.phase("a flag changes in every environment: the last pod is told", async |scene| {
            scene.flip(&everything, "second").await?;
            for environment in &everything {
                scene.told(environment).await?;
            }
            Ok(())
        })
        .await?;
        self.settle().await?;
        let rolled = (size.pods / 10).min(large.pods);
        self.phase(&format!("a rollout replaces {rolled} pods"), async |scene| {
            scene.fleet.roll(&scene.sidecars, rolled).await
        })
        .await?;
        self.settle().await?;
        self.phase("the controller is killed, and starts again", async |scene| {
            scene.controller.restart(&scene.plane)?;
            scene.flip(std::slice::from_ref(&large), "third").await?;
            scene.told(&large).await
        })
        .await?;
        self.settle().await?;
        self.phase("the API server is killed, and starts again", async |scene| {
            scene.plane.restart_server().await?;
            let listed = async || scene.fleet.revisions().await.map(|_| true);
            until("the environments can be listed again", Duration::from_secs(180), listed).await?;
            scene.flip(std::slice::from_ref(&large), "fourth").await?;
            scene.told(&large).await
        })
        .await?;
        self.settle().await?;
        let crowded = everything.iter().filter(|environment| environment.namespace == crate::fleet::CROWDED).count();
        self.phase(&format!("a namespace with {crowded} environments is deleted"), async |scene| {
            scene.fleet.delete_crowded().await
        })
        .await?;
        self.settle().await?;
        self.phase("steady state for 30 s afterwards", async |_| {
            tokio::time::sleep(Duration::from_secs(30)).await;
            Ok(())
        })
        .await
    }

    /// Changes a flag of these environments, and waits until their new revisions are published.
    async fn flip(&self, chosen: &[Environment], value: &str) -> anyhow::Result<()> {
        let before = self.fleet.revisions().await?;
        self.fleet.flip(self.upstream, chosen, value)?;
        self.fleet
            .all("the new revisions are published", chosen, |environment, status| {
                let place = (environment.namespace.clone(), environment.name.clone());
                status["revision"].as_str().is_some()
                    && status["revision"].as_str() != before.get(&place).map(String::as_str)
            })
            .await
    }

    /// Waits until all pods of the environment are told of the published revision.
    async fn told(&self, environment: &Environment) -> anyhow::Result<()> {
        until("all pods are told", Duration::from_secs(1800), async || {
            let revisions = self.fleet.revisions().await?;
            let place = (environment.namespace.clone(), environment.name.clone());
            let revision = revisions.get(&place).context("no revision")?;
            Ok(self.sidecars.serving(&environment.name, revision) >= environment.pods)
        })
        .await
    }

    /// Waits until the controller has sent no write but those of its Lease for some seconds.
    async fn settle(&mut self) -> anyhow::Result<()> {
        let began = Instant::now();
        while began.elapsed() < SETTLED {
            tokio::time::sleep(Duration::from_secs(5)).await;
            let counts = self.requests.since(&self.plane.audit_log())?;
            let is_busy = |request: &String| {
                !request.ends_with("leases") && !request.starts_with("get ") && !request.starts_with("watch ")
            };
            if !counts.keys().any(is_busy) {
                return Ok(());
            }
        }
        say("the controller still writes: the next phase begins all the same")
    }

    async fn read(&self) -> anyhow::Result<Reading> {
        Ok(Reading {
            at: Instant::now(),
            bytes: self.plane.meter.received(),
            written: self.plane.etcd_metric("etcd_disk_wal_write_bytes_total").await?,
            usage: self.controller.usage()?,
        })
    }

    async fn phase(
        &mut self,
        phase: &str,
        work: impl AsyncFnOnce(&mut Self) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        say(phase)?;
        tokio::time::sleep(AUDIT_LAG).await;
        self.requests.since(&self.plane.audit_log())?;
        let before = self.read().await?;
        work(self).await.with_context(|| phase.to_owned())?;
        let seconds = before.at.elapsed().as_secs_f64();
        let after = self.read().await?;
        tokio::time::sleep(AUDIT_LAG).await;
        let row = Row {
            phase: phase.to_owned(),
            seconds,
            requests: self.requests.since(&self.plane.audit_log())?,
            bytes: after.bytes.saturating_sub(before.bytes),
            written: after.written - before.written,
            usage: after.usage,
            // A new process begins at zero.
            cpu: if after.usage.cpu >= before.usage.cpu { after.usage.cpu - before.usage.cpu } else { after.usage.cpu },
        };
        say(&line(&row))?;
        self.rows.push(row);
        Ok(())
    }
}

fn is_ready(status: &Value) -> bool {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

fn is_confirmed(environment: &Environment, status: &Value) -> bool {
    let pods = &status["pods"];
    let asked = pods["asked"].as_u64().unwrap_or(environment.pods as u64);
    pods["revision"] == status["revision"] && pods["current"].as_u64() == Some(asked)
}

/// Renders the chart, and returns its objects of the needed kinds.
fn chart(bin: &Path) -> anyhow::Result<Vec<Value>> {
    let rendered = Command::new(bin.join("helm"))
        .args(["template", "remora"])
        .arg(root().join("charts/remora"))
        .args(["--namespace", "remora-system", "--include-crds", "--kube-version", "1.34.0"])
        .output()?;
    ensure!(rendered.status.success(), "helm template: {}", String::from_utf8_lossy(&rendered.stderr));
    let text = String::from_utf8(rendered.stdout)?;
    let mut objects = Vec::new();
    for document in serde_yaml::Deserializer::from_str(&text) {
        let object = Value::deserialize(document)?;
        if object["kind"].as_str().is_some_and(|kind| KINDS.contains(&kind)) {
            objects.push(object);
        }
    }
    Ok(objects)
}

fn table(size: Size, rows: &[Row]) -> String {
    let mut text = format!(
        "\n{} environments, {} pods on {} nodes. Load average: {}\n\n| phase | time | requests of the controller | received | etcd wrote | memory (peak) | CPU |\n|---|---|---|---|---|---|---|\n",
        size.environments,
        size.pods,
        size.nodes,
        fs::read_to_string("/proc/loadavg").unwrap_or_default().trim()
    );
    for row in rows {
        text.push_str(&line(row));
        text.push('\n');
    }
    let _ = writeln!(text, "\nThe environment {LARGE} has half of the pods. Times include those of this program.");
    text
}

fn line(row: &Row) -> String {
    let all: usize = row.requests.values().sum();
    let mut most: Vec<(&String, &usize)> = row.requests.iter().collect();
    most.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let most: Vec<String> = most.into_iter().map(|(request, count)| format!("{count} {request}")).collect();
    format!(
        "| {} | {:.1} s | {all} ({:.1}/s): {} | {:.2} MB | {:.2} MB | {:.0} ({:.0}) MiB | {:.1} s |",
        row.phase,
        row.seconds,
        all as f64 / row.seconds.max(0.001),
        most.join(", "),
        row.bytes as f64 / 1e6,
        row.written / 1e6,
        row.usage.memory,
        row.usage.peak,
        row.cpu
    )
}
