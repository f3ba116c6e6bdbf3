//! Changes of flags: of the environment with half of the pods, and of every environment.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use super::{Scene, is_confirmed};
use crate::{
    fleet::Environment,
    requests::{Request, most_in_a_second},
    until,
};

impl Scene<'_> {
    /// Changes a flag of the large environment.
    pub(super) async fn change(&mut self, large: &Environment) -> anyhow::Result<()> {
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
    pub(super) async fn change_all(&mut self, everything: &[Environment]) -> anyhow::Result<()> {
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

    /// Changes a flag of these environments, and waits until their new revisions are published.
    pub(super) async fn flip(&self, chosen: &[Environment], value: &str) -> anyhow::Result<()> {
        let before = self.fleet.revisions().await?;
        for environment in chosen {
            environment.flip(self.upstream, "checkout", value)?;
        }
        self.published(chosen, &before).await
    }

    /// Waits until the environments have other revisions than `before`.
    pub(super) async fn published(
        &self,
        chosen: &[Environment],
        before: &BTreeMap<(String, String), String>,
    ) -> anyhow::Result<()> {
        self.fleet
            .all("the new revisions are published", chosen, |environment, status| {
                let place = (environment.namespace.clone(), environment.name.clone());
                status["revision"].as_str().is_some()
                    && status["revision"].as_str() != before.get(&place).map(String::as_str)
            })
            .await
    }

    /// Waits until all pods of the environments are notified of the published revisions.
    pub(super) async fn told(&self, environments: &[Environment]) -> anyhow::Result<()> {
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
}

fn lists_pods(request: &Request) -> bool {
    request.is("list", "pods")
}

fn patches_pod(request: &Request) -> bool {
    request.is("patch", "pods")
}
