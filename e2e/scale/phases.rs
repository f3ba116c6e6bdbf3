//! The phases, and the table of the cost of each.

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
    fleet::{CROWDED, Environment, Fleet, Size},
    goals::Goals,
    requests::{AuditLog, Request, most_in_a_second},
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
    fleet.create_secrets().await?;
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
            scene.fleet.create_environments(scene.upstream).await?;
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
        self.phase(&format!("a rollout replaces {rolled} pods"), async |scene| {
            scene.fleet.roll(&scene.sidecars, rolled).await
        })
        .await?;
        self.restarts(&large).await?;
        self.delete(&everything).await?;
        let peak = self.rows.iter().map(|row| row.usage.peak).fold(0.0, f64::max);
        self.goals.at_most("memory of the controller in MB (peak)", 150.0, peak * 1.048_576);
        Ok(())
    }

    async fn steady(&mut self, what: &str, time: Duration) -> anyhow::Result<()> {
        let work = async |_: &mut Self| {
            tokio::time::sleep(time).await;
            Ok(())
        };
        let row = self.measured(&format!("{what} for {} s", time.as_secs()), false, work).await?;
        let (rate, writes) = (row.rate(), row.count(Request::writes));
        self.goals.at_most(&format!("requests a second, {what}"), 5.0, rate);
        self.goals.at_most(&format!("writes but those of the Lease, {what}"), 0.0, writes);
        Ok(())
    }

    /// Changes a flag of the large environment.
    async fn change(&mut self, large: &Environment) -> anyhow::Result<()> {
        let what =
            format!("a flag of an environment with {} pods changes: all pods are told and confirmed", large.pods);
        let row = self
            .phase(&what, async |scene| {
                scene.flip(std::slice::from_ref(large), "first").await?;
                scene.told(std::slice::from_ref(large)).await?;
                scene.fleet.all("the pods are confirmed", std::slice::from_ref(large), is_confirmed).await
            })
            .await?;
        let (lists, patches) = (row.count(lists_pods), row.count(patches_pod));
        let pace = most_in_a_second(&row.requests, patches_pod);
        let pods = large.pods as f64;
        self.goals.at_most("lists of pods, one change", 0.0, lists);
        self.goals.at_most("patches for each pod, one change", 1.05, patches / pods);
        self.goals.at_most("patches of pods within a second, one change", 220.0, pace as f64);
        let telling = self.telling.get();
        self.goals.at_most(
            &format!("seconds until {} pods are told, for 5,000", large.pods),
            60.0,
            telling * 5000.0 / pods,
        );
        Ok(())
    }

    /// Changes a flag of each environment.
    async fn change_all(&mut self, everything: &[Environment]) -> anyhow::Result<()> {
        let row = self
            .phase("a flag changes in every environment: the last pod is told", async |scene| {
                scene.flip(everything, "second").await?;
                scene.told(everything).await
            })
            .await?;
        let (lists, patches) = (row.count(lists_pods), row.count(patches_pod));
        let pace = most_in_a_second(&row.requests, patches_pod);
        let objects = row.count(|request| request.is("patch", "configmaps"));
        let pods: usize = everything.iter().map(|environment| environment.pods).sum();
        self.goals.at_most("lists of pods, a change in every environment", 0.0, lists);
        self.goals.at_most("patches for each pod, a change in every environment", 1.05, patches / pods as f64);
        self.goals.at_most("patches of pods within a second, a change in every environment", 220.0, pace as f64);
        let each = objects / everything.len() as f64;
        self.goals.at_most("patches of ConfigMaps for each environment, a change in every environment", 2.2, each);
        Ok(())
    }

    /// Kills and starts the controller, and then the API server.
    async fn restarts(&mut self, large: &Environment) -> anyhow::Result<()> {
        let row = self
            .phase("the controller is killed, and starts again: a change arrives", async |scene| {
                scene.controller.kill()?;
                scene.flip(std::slice::from_ref(large), "third").await?;
                scene.told(std::slice::from_ref(large)).await
            })
            .await?;
        let start = row.requests.len() as f64;
        let row = self
            .phase("the API server is killed, and starts again: a change arrives", async |scene| {
                scene.plane.restart_server().await?;
                let listed = async || scene.fleet.revisions().await.map(|_| true);
                until("the environments can be listed again", Duration::from_secs(180), listed).await?;
                scene.flip(std::slice::from_ref(large), "fourth").await?;
                scene.told(std::slice::from_ref(large)).await
            })
            .await?;
        let ratio = row.requests.len() as f64 / start.max(1.0);
        self.goals.at_most(
            "requests after a start of the API server, over those of the controller's start",
            1.5,
            ratio,
        );
        Ok(())
    }

    /// Deletes the namespace with many environments.
    async fn delete(&mut self, everything: &[Environment]) -> anyhow::Result<()> {
        let crowded = everything.iter().filter(|environment| environment.namespace == CROWDED).count();
        let row = self
            .phase(&format!("a namespace with {crowded} environments is deleted"), async |scene| {
                scene.fleet.delete_crowded().await
            })
            .await?;
        let of_it = |request: &Request| request.namespace == CROWDED;
        let (all, refused) = (row.count(of_it), row.count(|request| of_it(request) && request.is_refused()));
        let crowded = crowded.max(1) as f64;
        self.goals.at_most("requests for each environment of the deleted namespace", 20.0, all / crowded);
        self.goals.at_most("refused requests for each environment of the deleted namespace", 5.0, refused / crowded);
        // The controller removes the metrics of deleted environments once a minute.
        self.steady("afterwards", Duration::from_secs(70)).await?;
        let later = self.rows.last().map_or(0.0, |row| row.count(of_it));
        self.goals.at_most("requests for the deleted namespace afterwards", 0.0, later);
        let metrics = self.controller.metrics().await?;
        let label = format!("namespace=\"{CROWDED}\"");
        let lines = metrics.lines().filter(|line| line.contains(&label)).count();
        self.goals.at_most("metrics of the deleted namespace afterwards", 0.0, lines as f64);
        Ok(())
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

    /// Waits until all pods of the environments are notified of the published revisions.
    async fn told(&self, environments: &[Environment]) -> anyhow::Result<()> {
        let began = Instant::now();
        until("all pods are told", Duration::from_secs(1800), async || {
            // One list for all environments: a list of a thousand takes half a second.
            let (revisions, serving) = (self.fleet.revisions().await?, self.sidecars.serving());
            Ok(environments.iter().all(|environment| {
                let place = (environment.namespace.clone(), environment.name.clone());
                let revision = revisions.get(&place).cloned().unwrap_or_default();
                let pods = serving.get(&(environment.name.clone(), revision)).copied().unwrap_or_default();
                pods >= environment.pods
            }))
        })
        .await?;
        self.telling.set(began.elapsed().as_secs_f64());
        Ok(())
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

fn lists_pods(request: &Request) -> bool {
    request.is("list", "pods")
}

fn patches_pod(request: &Request) -> bool {
    request.is("patch", "pods")
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
