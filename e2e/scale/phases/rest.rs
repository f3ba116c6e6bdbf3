//! Times in which nothing changes, and the deletion of a namespace.

use std::time::Duration;

use super::Scene;
use crate::{
    fleet::{CROWDED, Environment},
    requests::Request,
};

impl Scene<'_> {
    pub(super) async fn steady(&mut self, what: &str, time: Duration) -> anyhow::Result<()> {
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

    /// Deletes the namespace with many environments.
    pub(super) async fn delete(&mut self, everything: &[Environment]) -> anyhow::Result<()> {
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
}
