//! The phases, and the table of the cost of each.

mod changes;
mod large_core;
mod rest;
mod restarts;

use std::{
    cell::Cell,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use remora_e2e::upstream::{Options, Upstream};
use serde_json::Value;

use crate::{
    admission, chart,
    control_plane::ControlPlane,
    controller::Controller,
    fleet::{Environment, Fleet, Size},
    goals::Goals,
    requests::{AuditLog, Request},
    say,
    sidecars::Sidecars,
    table::{Row, table},
    until,
    usage::Usage,
};

/// Time that the API server's audit log may lag behind.
const AUDIT_LAG: Duration = Duration::from_millis(1500);
/// Longest time until the controller has settled after a phase.
const SETTLED: Duration = Duration::from_secs(120);

/// Values of the counters at one time.
struct Reading {
    at: Instant,
    bytes: u64,
    written: f64,
    usage: Usage,
    ended: usize,
}

/// Scene of the phases.
struct Scene<'a> {
    plane: ControlPlane,
    controller: Controller,
    log: AuditLog,
    fleet: Fleet,
    sidecars: Sidecars,
    upstream: &'a Upstream,
    rows: Vec<Row>,
    goals: Goals,
    /// Seconds from the publication of a revision until its last pod was notified, in the last phase that waited for
    /// it.
    telling: Cell<f64>,
}

/// Result of all phases.
pub(crate) struct Report {
    /// Tables of the phases, of admission and of the goals.
    pub(crate) text: String,
    pub(crate) goals: Goals,
}

/// Runs all phases.
pub(crate) async fn run(
    size: Size,
    steady: Duration,
    bin: &Path,
    operator: &Path,
    directory: &Path,
) -> anyhow::Result<Report> {
    let plane = ControlPlane::start(bin, directory).await?;
    let mut objects =
        vec![serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "remora-system"}})];
    objects.extend(chart::accounts(bin)?);
    until("the chart's objects are applied", Duration::from_secs(60), async || plane.apply(&objects).map(|()| true))
        .await?;
    let upstream = Upstream::start(&Options::local()).await?;
    let fleet = Fleet::plan(plane.client().await?, size);
    fleet.serve(&upstream)?;
    let sidecars = Sidecars::start(plane.client().await?).await?;
    say("creating namespaces and Secrets")?;
    fleet.create_secrets(&fleet.environments).await?;
    let origin = upstream.api_url().trim_end_matches("/api/v1/").to_owned();
    let controller = Controller::start(&plane, operator, &origin, directory)?;
    let mut scene = Scene {
        plane,
        controller,
        log: AuditLog::default(),
        fleet,
        sidecars,
        upstream: &upstream,
        rows: Vec::new(),
        goals: Goals::default(),
        telling: Cell::default(),
    };
    scene.all(size, steady).await?;
    let mut text = table(size, &scene.rows);
    text.push_str(&admission::measure(&scene.plane, operator, directory, &mut scene.goals).await?);
    text.push('\n');
    text.push_str(&scene.goals.table());
    Ok(Report { text, goals: scene.goals })
}

impl Scene<'_> {
    async fn all(&mut self, size: Size, steady: Duration) -> anyhow::Result<()> {
        let everything = self.fleet.environments.clone();
        let large = everything.first().context("no environment")?.clone();
        self.phase("all environments are created and Ready", async |scene| {
            scene.fleet.create_environments(scene.upstream, &everything, &serde_json::json!({})).await?;
            scene.fleet.all("all environments are Ready", &everything, |_, status| is_ready(status)).await
        })
        .await?;
        self.phase("all pods are created, and each status counts its pods", async |scene| {
            scene.fleet.create_pods(&scene.sidecars).await?;
            scene
                .fleet
                .all("all pods are counted", &everything, |environment, status| {
                    is_confirmed(environment, status)
                        && status["pods"]["total"].as_u64() == Some(environment.pods as u64)
                })
                .await
        })
        .await?;
        self.steady("steady state", steady).await?;
        self.change(&large).await?;
        self.change_all(&everything).await?;
        let rolled = (size.pods / 10).min(large.pods);
        let row = self
            .phase(&format!("a rollout replaces {rolled} pods"), async |scene| {
                scene.fleet.roll(&scene.sidecars, rolled).await
            })
            .await?;
        let requests = row.requests.len() as f64 / rolled.max(1) as f64;
        self.goals.at_most("requests for each pod that a rollout replaces", 0.5, requests);
        self.restarts(&large).await?;
        self.delete(&everything).await?;
        let peak = self.rows.iter().map(|row| row.usage.peak).fold(0.0, f64::max);
        self.goals.at_most("memory of the controller in MB (peak)", 150.0, peak * 1.048_576);
        // Last, because the controller needs more memory for these.
        self.large_cores().await
    }

    /// Waits until the controller has sent no write but those of its Lease for some seconds. Returns the requests.
    async fn settle(&mut self) -> anyhow::Result<Vec<Request>> {
        let began = Instant::now();
        let mut requests = Vec::new();
        while began.elapsed() < SETTLED {
            tokio::time::sleep(Duration::from_secs(5)).await;
            let new = self.log.since(&self.plane.audit_log())?;
            let is_busy = new.iter().any(Request::writes);
            requests.extend(new);
            if !is_busy {
                return Ok(requests);
            }
        }
        say("the controller still writes: the next phase begins all the same")?;
        Ok(requests)
    }

    async fn read(&self) -> anyhow::Result<Reading> {
        Ok(Reading {
            at: Instant::now(),
            bytes: self.plane.meter.received(),
            written: self.plane.etcd_metric("etcd_disk_wal_write_bytes_total").await?,
            usage: self.controller.usage()?,
            ended: self.controller.ended(),
        })
    }

    /// Measures the work, and then the time until the controller has settled.
    async fn phase(
        &mut self,
        phase: &str,
        work: impl AsyncFnOnce(&mut Self) -> anyhow::Result<()>,
    ) -> anyhow::Result<&Row> {
        self.measured(phase, true, work).await
    }

    async fn measured(
        &mut self,
        phase: &str,
        settles: bool,
        work: impl AsyncFnOnce(&mut Self) -> anyhow::Result<()>,
    ) -> anyhow::Result<&Row> {
        say(phase)?;
        tokio::time::sleep(AUDIT_LAG).await;
        self.log.since(&self.plane.audit_log())?;
        let before = self.read().await?;
        work(self).await.with_context(|| phase.to_owned())?;
        let seconds = before.at.elapsed().as_secs_f64();
        let mut requests = if settles { self.settle().await? } else { Vec::new() };
        let after = self.read().await?;
        tokio::time::sleep(AUDIT_LAG).await;
        requests.extend(self.log.since(&self.plane.audit_log())?);
        let row = Row {
            phase: phase.to_owned(),
            seconds,
            settled: if settles { before.at.elapsed().as_secs_f64() - seconds } else { 0.0 },
            requests,
            bytes: after.bytes.saturating_sub(before.bytes),
            written: after.written - before.written,
            usage: after.usage,
            ended: after.ended - before.ended,
            // A new process begins at zero.
            cpu: if after.usage.cpu >= before.usage.cpu { after.usage.cpu - before.usage.cpu } else { after.usage.cpu },
        };
        say(&row.line())?;
        self.rows.push(row);
        self.rows.last().context("no row")
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
