//! Ends of the controller's process, and of the API server's.

use std::time::Duration;

use super::Scene;
use crate::{fleet::Environment, until};

impl Scene<'_> {
    /// Kills and starts the controller, and then the API server.
    pub(super) async fn restarts(&mut self, large: &Environment) -> anyhow::Result<()> {
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
}
