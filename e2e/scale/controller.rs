//! The operator's program: controller only, outside the cluster, with the controller's account. It starts again when it
//! ends, as kubelet starts a container again.

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::Context as _;
use tokio::task::JoinHandle;

use crate::{
    control_plane::{ControlPlane, Launch, Process, free_port},
    meter::get,
    say,
    usage::Usage,
};

/// Controller that starts again whenever it ends.
pub(crate) struct Controller {
    launch: Arc<Launch>,
    state: Arc<Mutex<State>>,
    keeper: JoinHandle<()>,
}

/// Running process, and the number of processes that ended before it.
struct State {
    process: Process,
    ended: usize,
}

impl Controller {
    /// Starts the program, with the server `upstream` as the only allowed source.
    pub(crate) fn start(
        plane: &ControlPlane,
        program: &Path,
        upstream: &str,
        directory: &Path,
    ) -> anyhow::Result<Self> {
        let launch = Arc::new(Launch {
            program: program.to_owned(),
            upstream: upstream.to_owned(),
            kubeconfig: plane.controller_kubeconfig()?,
            admin: free_port()?,
            log: directory.join("controller.log"),
        });
        let state = Arc::new(Mutex::new(State { process: launch.process()?, ended: 0 }));
        let keeper = tokio::spawn(keep(Arc::clone(&launch), Arc::clone(&state)));
        Ok(Self { launch, state, keeper })
    }

    /// Kills the process. Another one starts within a second.
    pub(crate) fn kill(&self) -> anyhow::Result<()> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).process.kill()
    }

    /// Returns the number of processes that ended.
    pub(crate) fn ended(&self) -> usize {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).ended
    }

    pub(crate) fn usage(&self) -> anyhow::Result<Usage> {
        let process = self.state.lock().unwrap_or_else(PoisonError::into_inner).process.id();
        Usage::of(process).with_context(|| format!("the controller: see {}", self.launch.log.display()))
    }

    /// Returns the metrics of the controller.
    pub(crate) async fn metrics(&self) -> anyhow::Result<String> {
        get(("127.0.0.1", self.launch.admin), "/metrics").await
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

/// Starts another process when one has ended.
async fn keep(launch: Arc<Launch>, state: Arc<Mutex<State>>) {
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        if !state.process.has_ended() {
            continue;
        }
        // A program that cannot be started is tried again.
        if let Ok(process) = launch.process() {
            *state = State { process, ended: state.ended + 1 };
            let _ = say("the controller has ended, and starts again");
        }
    }
}
