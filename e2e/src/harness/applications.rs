//! Applications that a case runs, and their answers.

use std::time::Duration;

use anyhow::Context as _;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use serde_json::Value;

use super::case::Case;
use super::pod_http::PodPort;
use super::release::is_rolled_out;
use super::wait::{CAP, eventually, until};
use super::workload::App;

impl Case {
    /// Runs the application as a bare pod and waits until the pod is Ready.
    ///
    /// # Errors
    ///
    /// Returns an error if the pod is refused or does not become Ready.
    pub async fn pod(&self, app: &App) -> anyhow::Result<PodPort> {
        self.create_pod(app).await?;
        self.ready(app.name()).await?;
        Ok(self.port(app.name(), 8080))
    }

    /// Creates the application as a bare pod, without waiting for it.
    ///
    /// # Errors
    ///
    /// Returns an error if the pod is refused.
    pub async fn create_pod(&self, app: &App) -> anyhow::Result<()> {
        self.apply(app.pod(&self.cluster.e2e_image(), &self.client_key(), "serve")).await?;
        Ok(())
    }

    /// Waits until a pod is Ready.
    ///
    /// # Errors
    ///
    /// Returns an error if the pod does not become Ready in time.
    pub async fn ready(&self, pod: &str) -> anyhow::Result<()> {
        until(&self.api::<Pod>(), pod, "the pod is Ready", CAP, is_ready).await?;
        Ok(())
    }

    /// Waits until a container of a pod runs.
    ///
    /// # Errors
    ///
    /// Returns an error if the container does not start in time.
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

    /// Creates a Deployment of the application, without waiting for it.
    ///
    /// # Errors
    ///
    /// Returns an error if the Deployment is refused.
    pub async fn create_deployment(&self, app: &App, replicas: u32) -> anyhow::Result<()> {
        self.apply(app.deployment(&self.cluster.e2e_image(), &self.client_key(), replicas)).await?;
        Ok(())
    }

    /// Runs the application as a Deployment and waits until all its pods are Ready.
    ///
    /// # Errors
    ///
    /// Returns an error if the pods do not become Ready in time.
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

    /// Replaces all pods of a Deployment, as `kubectl rollout restart` does, and waits until only new pods exist.
    ///
    /// # Errors
    ///
    /// Returns an error if the new pods do not become available or the old pods do not disappear in time.
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

    /// Runs the application as a Job with this number of parallel pods and waits until the Job is complete.
    ///
    /// # Errors
    ///
    /// Returns an error if a pod of the Job fails.
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

    /// Runs the application as a CronJob and waits until one of its Jobs is complete.
    ///
    /// # Errors
    ///
    /// Returns an error if no Job completes in time.
    pub async fn cron_job(&self, app: &App) -> anyhow::Result<()> {
        self.apply(app.cron_job(&self.cluster.e2e_image(), &self.client_key())).await?;
        // The first Job starts at the next full minute.
        let (api, cap): (Api<CronJob>, _) = (self.api(), 3 * CAP);
        until(&api, app.name(), "a Job of the CronJob completed", cap, |job| {
            job.status.as_ref().is_some_and(|status| status.last_successful_time.is_some())
        })
        .await?;
        Ok(())
    }

    /// Returns a port of a pod.
    #[must_use]
    pub fn port(&self, pod: &str, port: u16) -> PodPort {
        PodPort::new(self.cluster.client.clone(), &self.namespace, pod, port)
    }

    /// Waits until the application's OFREP answer satisfies `condition`.
    ///
    /// # Errors
    ///
    /// Returns an error if no answer satisfies it in time; the error holds the history.
    pub async fn answer(
        &self,
        app: &PodPort,
        what: &str,
        condition: impl Fn(&Value) -> bool,
    ) -> anyhow::Result<Timestamp> {
        // The kubelet takes 60 to 95 seconds to update a volume without a pod notification, and may need a second try.
        let cap = Duration::from_secs(300);
        let seen = eventually(what, cap, async || {
            let history: crate::app::History = app.get("/watch").await?;
            let last = history.changes.last().context("no answer yet")?;
            anyhow::ensure!(condition(&last.answer), "the last answer is {}", last.answer);
            Ok(Some(last.at))
        });
        seen.await
    }

    /// Patches an annotation of the pods that a selector matches, as any user could. The kubelet then updates their
    /// volumes at once instead of within 90 seconds. For cases that do not test the delay of an update.
    ///
    /// # Errors
    ///
    /// Returns the API server's error.
    pub async fn poke(&self, selector: &str) -> anyhow::Result<()> {
        self.cluster.poke(&self.namespace, selector).await
    }
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}
