//! The applications that a case runs, and what they are told.

use std::time::Duration;

use anyhow::Context as _;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::case::Case;
use super::pod_http::PodPort;
use super::release::is_rolled_out;
use super::wait::{CAP, eventually, until};
use super::workload::App;

impl Case {
    /// Runs the application as a bare pod and waits until it is Ready.
    ///
    /// # Errors
    ///
    /// When the pod is refused or does not become Ready.
    pub async fn pod(&self, app: &App) -> anyhow::Result<PodPort> {
        self.create_pod(app).await?;
        self.ready(app.name()).await?;
        Ok(self.port(app.name(), 8080))
    }

    /// Runs the application as a bare pod and leaves it to its fate.
    ///
    /// # Errors
    ///
    /// When the pod is refused.
    pub async fn create_pod(&self, app: &App) -> anyhow::Result<()> {
        self.apply(app.pod(&self.cluster.e2e_image(), &self.client_key(), "serve")).await?;
        Ok(())
    }

    /// Waits until a pod is Ready.
    ///
    /// # Errors
    ///
    /// When it does not become so.
    pub async fn ready(&self, pod: &str) -> anyhow::Result<()> {
        until(&self.api::<Pod>(), pod, "the pod is Ready", CAP, is_ready).await?;
        Ok(())
    }

    /// Waits until a container of a pod runs.
    ///
    /// # Errors
    ///
    /// When it does not.
    pub async fn started(&self, pod: &str, container: &str) -> anyhow::Result<()> {
        let runs = |pod: &Pod| {
            let status = pod.status.clone().unwrap_or_default();
            let initial = status.init_container_statuses.unwrap_or_default();
            let all = initial.into_iter().chain(status.container_statuses.unwrap_or_default());
            all.filter(|status| status.name == container)
                .any(|status| status.state.is_some_and(|state| state.running.is_some()))
        };
        until(&self.api::<Pod>(), pod, &format!("container {container} runs"), CAP, runs).await?;
        Ok(())
    }

    /// Makes a Deployment of the application and leaves it to its fate.
    ///
    /// # Errors
    ///
    /// When it is refused.
    pub async fn create_deployment(&self, app: &App, replicas: u32) -> anyhow::Result<()> {
        self.apply(app.deployment(&self.cluster.e2e_image(), &self.client_key(), replicas)).await?;
        Ok(())
    }

    /// Runs the application as a Deployment and waits until all its pods are Ready.
    ///
    /// # Errors
    ///
    /// When they do not become so.
    pub async fn deployment(&self, app: &App, replicas: u32) -> anyhow::Result<Vec<PodPort>> {
        self.create_deployment(app, replicas).await?;
        let wanted = i32::try_from(replicas)?;
        until(&self.api::<Deployment>(), app.name(), "all replicas are available", CAP, |deployment| {
            deployment.status.as_ref().and_then(|status| status.available_replicas) == Some(wanted)
        })
        .await?;
        let pods = self.cluster.pods(&self.namespace, &format!("app={}", app.name())).await?;
        Ok(pods.iter().map(|pod| self.port(pod, 8080)).collect())
    }

    /// Has all pods of a Deployment made anew, as `kubectl rollout restart` does, and waits until only the new ones are there.
    ///
    /// # Errors
    ///
    /// When they do not become available, or the old ones do not go.
    pub async fn restart(&self, app: &App) -> anyhow::Result<Vec<PodPort>> {
        let api: Api<Deployment> = self.api();
        api.restart(app.name()).await?;
        until(&api, app.name(), "all replicas were made anew", 2 * CAP, is_rolled_out).await?;
        let (pods, selector): (Api<Pod>, _) =
            (self.api(), ListParams::default().labels(&format!("app={}", app.name())));
        let new = eventually("those of before are gone", CAP, async || {
            let found = pods.list_metadata(&selector).await?.items;
            let is_going = found.iter().any(|pod| pod.metadata.deletion_timestamp.is_some());
            Ok((!is_going).then_some(found))
        });
        let names = new.await?.into_iter().filter_map(|pod| pod.metadata.name);
        Ok(names.map(|pod| self.port(&pod, 8080)).collect())
    }

    /// Runs the application as a Job of so many pods at once and waits until it is complete.
    ///
    /// # Errors
    ///
    /// When one of them failed.
    pub async fn job(&self, app: &App, pods: u32) -> anyhow::Result<()> {
        self.apply(app.job(&self.cluster.e2e_image(), &self.client_key(), pods)).await?;
        let api: Api<Job> = self.api();
        let decided = |kind: &'static str| {
            move |job: &Job| {
                let conditions =
                    job.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
                conditions.iter().any(|condition| condition.type_ == kind && condition.status == "True")
            }
        };
        let (complete, failed) = (decided("Complete"), decided("Failed"));
        let job = until(&api, app.name(), "the Job ended", 2 * CAP, |job| complete(job) || failed(job)).await?;
        anyhow::ensure!(complete(&job), "the Job failed: {:?}", job.status);
        Ok(())
    }

    /// Runs the application as a CronJob and waits until a Job of its was complete.
    ///
    /// # Errors
    ///
    /// When none was.
    pub async fn cron_job(&self, app: &App) -> anyhow::Result<()> {
        self.apply(app.cron_job(&self.cluster.e2e_image(), &self.client_key())).await?;
        // It begins at the next full minute.
        let (api, cap): (Api<CronJob>, _) = (self.api(), 3 * CAP);
        until(&api, app.name(), "a Job of the CronJob completed", cap, |job| {
            job.status.as_ref().is_some_and(|status| status.last_successful_time.is_some())
        })
        .await?;
        Ok(())
    }

    /// A port of a pod.
    #[must_use]
    pub fn port(&self, pod: &str, port: u16) -> PodPort {
        PodPort::new(self.cluster.client.clone(), &self.namespace, pod, port)
    }

    /// Waits until OFREP's answer to the application satisfies `condition`.
    ///
    /// # Errors
    ///
    /// When it does not; the history is in the error.
    pub async fn answer(
        &self,
        app: &PodPort,
        what: &str,
        condition: impl Fn(&Value) -> bool,
    ) -> anyhow::Result<Timestamp> {
        // Longer than kubelet takes without being nudged: 60 to 90 seconds.
        let cap = Duration::from_secs(120);
        let seen = eventually(what, cap, async || {
            let history: crate::app::History = app.get("/watch").await?;
            let last = history.changes.last().context("no answer yet")?;
            anyhow::ensure!(condition(&last.answer), "the last answer is {}", last.answer);
            Ok(Some(last.at))
        });
        seen.await
    }

    /// Patches an annotation of the pods that a selector finds, as anybody could: kubelet then writes their volumes at once,
    /// instead of within 90 seconds. For cases that are not about the time an update takes.
    ///
    /// # Errors
    ///
    /// What the API server says.
    pub async fn poke(&self, selector: &str) -> anyhow::Result<()> {
        let api: Api<Pod> = self.api();
        let patch =
            Patch::Merge(json!({"metadata": {"annotations": {"remora.dev-e2e/poked": Timestamp::now().to_string()}}}));
        for pod in self.cluster.pods(&self.namespace, selector).await? {
            api.patch_metadata(&pod, &PatchParams::default(), &patch).await?;
        }
        Ok(())
    }
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}
