//! A replica of the controller: the program's own election and fence over the simulated Lease.

use remora_operator::controller::leader::{Election, LeaseFence};
use tokio::{task::JoinHandle, time::Instant};

use super::{
    life::{Life, Part},
    network::Network,
};

pub(super) struct Replica {
    pub(super) life: Life,
    pub(super) fence: LeaseFence,
    election: Election,
    renewal: JoinHandle<()>,
}

impl Replica {
    /// Starts a replica that waits for the lease, and keeps it as the program does. The replica ends when it loses the lease.
    pub(super) fn start(network: &Network, number: usize, start: Instant) -> Self {
        let life = Life::new(format!("process-{number}"), start);
        let clock = life.clone();
        let fence = LeaseFence::with_clock(move || clock.clock());
        let (client, identity) = (network.client(&life), life.identity().to_owned());
        let election = Election::new(client, "remora-system", "remora-controller", identity, None, fence.clone());
        let (held, network, of) = (election.clone(), network.clone(), life.clone());
        let renewal = tokio::spawn(async move {
            let holding = async {
                held.acquire().await;
                of.lead();
                held.renew_until_lost().await
            };
            let lost = of.run(Part::Renewal, holding).await;
            network.with(|state| state.trace.push(format!("{}: {lost}", of.identity())));
            of.end();
        });
        Self { life, fence, election, renewal }
    }

    /// Ends the replica as the program ends after a signal: without work under way, and it releases the lease.
    pub(super) async fn release(&self) {
        self.renewal.abort();
        self.election.release().await;
        self.life.end();
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.renewal.abort();
    }
}
