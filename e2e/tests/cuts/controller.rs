//! The controller's program, which is killed by the relay's plans and starts again.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::json;
use tokio::{sync::watch, task::JoinHandle};

use crate::{
    control_plane::{Launch, Process, free_port},
    relay::Relay,
};

/// A controller that starts again when it was killed.
pub(crate) struct Controller {
    ended: Arc<AtomicUsize>,
    keeper: JoinHandle<()>,
}

impl Drop for Controller {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

impl Controller {
    /// Starts the program, whose requests pass the relay. `admin` is the administrator's client.
    pub(crate) fn start(program: &Path, relay: &Relay, admin: Client, directory: &Path) -> anyhow::Result<Self> {
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "cuts",
            "clusters": [{"name": "cuts", "cluster": {"server": format!("http://127.0.0.1:{}", relay.port())}}],
            "contexts": [{"name": "cuts", "context": {"cluster": "cuts", "user": "cuts"}}],
            "users": [{"name": "cuts", "user": {}}],
        });
        let launch = Launch {
            program: program.to_owned(),
            upstream: "https://flags.example.org".to_owned(),
            kubeconfig: directory.join("controller.kubeconfig"),
            admin: free_port()?,
            log: directory.join("controller.log"),
        };
        std::fs::write(&launch.kubeconfig, kubeconfig.to_string())?;
        let ended = Arc::<AtomicUsize>::default();
        let process = launch.process()?;
        let keeper = tokio::spawn(keep(launch, process, relay.kills(), admin, Arc::clone(&ended)));
        Ok(Self { ended, keeper })
    }

    /// Returns the number of processes that were killed.
    pub(crate) fn ended(&self) -> usize {
        self.ended.load(Ordering::Relaxed)
    }
}

/// Kills the process when the relay says so, and starts another one. A process that ends by itself stays ended: the test
/// fails then, because nothing happens any more.
async fn keep(
    launch: Launch,
    mut process: Process,
    mut kills: watch::Receiver<usize>,
    admin: Client,
    ended: Arc<AtomicUsize>,
) {
    let leases: Api<Lease> = Api::namespaced(admin, "remora-system");
    while kills.changed().await.is_ok() {
        drop(process); // waits for its end
        ended.fetch_add(1, Ordering::Relaxed);
        // As a controller does that ends in good order: the next one need not wait until the Lease expires.
        let released = Patch::Merge(json!({"spec": {"holderIdentity": ""}}));
        while leases.patch("remora-controller", &PatchParams::default(), &released).await.is_err() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        process = match launch.process() {
            Ok(process) => process,
            Err(_) => return,
        };
    }
}
