//! The operator's program: controller only, outside the cluster, with the controller's account.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context as _;
use serde_json::Value;

use crate::control_plane::{ControlPlane, Process, free_port};

/// Clock ticks per second in /proc.
const TICKS: f64 = 100.0;

/// Running controller.
pub(crate) struct Controller {
    program: PathBuf,
    upstream: String,
    log: PathBuf,
    process: Process,
}

/// Memory and processor time of the controller's process so far.
#[derive(Clone, Copy, Default)]
pub(crate) struct Usage {
    /// Resident memory in MiB, without its children.
    pub(crate) memory: f64,
    /// Largest resident memory so far in MiB.
    pub(crate) peak: f64,
    /// CPU time in seconds, with that of the compilers it started.
    pub(crate) cpu: f64,
}

impl Controller {
    /// Starts the program, with the server `upstream` as the only allowed source.
    pub(crate) fn start(
        plane: &ControlPlane,
        program: &Path,
        upstream: &str,
        directory: &Path,
    ) -> anyhow::Result<Self> {
        let log = directory.join("controller.log");
        let process = launch(plane, program, upstream, &log)?;
        Ok(Self { program: program.to_owned(), upstream: upstream.to_owned(), log, process })
    }

    /// Kills the process, and starts another.
    pub(crate) fn restart(&mut self, plane: &ControlPlane) -> anyhow::Result<()> {
        self.process.stop()?;
        self.process = launch(plane, &self.program, &self.upstream, &self.log)?;
        Ok(())
    }

    pub(crate) fn usage(&self) -> anyhow::Result<Usage> {
        let read = |file: &str| {
            fs::read_to_string(format!("/proc/{}/{file}", self.process.id()))
                .with_context(|| format!("the controller has ended: see {}", self.log.display()))
        };
        let status = read("status")?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim().split(' ').next()?.parse::<f64>().ok().map(|kilobytes| kilobytes / 1024.0)
        };
        let stat = read("stat")?;
        // The name, in parentheses, may contain any character, so fields are counted after it.
        let fields: Vec<&str> = stat.rsplit_once(") ").context("no name in stat")?.1.split(' ').collect();
        let ticks = (11..15).filter_map(|place| fields.get(place)?.parse::<f64>().ok()).sum::<f64>();
        let memory = field("VmRSS:").context("no VmRSS")?;
        Ok(Usage { memory, peak: field("VmHWM:").context("no VmHWM")?, cpu: ticks / TICKS })
    }
}

fn launch(plane: &ControlPlane, program: &Path, upstream: &str, log: &Path) -> anyhow::Result<Process> {
    let mut command = Command::new(program);
    command
        .args(["run", "--no-webhook", "--allowed-origin", upstream])
        .arg(format!("--admin-listen=127.0.0.1:{}", free_port()?))
        .env("KUBECONFIG", plane.controller_kubeconfig()?)
        // As in the chart.
        .envs([("MALLOC_ARENA_MAX", "2"), ("MALLOC_MMAP_THRESHOLD_", "131072"), ("MALLOC_TRIM_THRESHOLD_", "131072")])
        .env("POD_NAMESPACE", "remora-system");
    Process::start(&mut command, log)
}

/// Requests of the controller by verb and resource, from the API server's audit log.
#[derive(Default)]
pub(crate) struct Requests {
    read: u64,
}

impl Requests {
    /// Returns the number of requests since the last call.
    pub(crate) fn since(&mut self, log: &Path) -> anyhow::Result<BTreeMap<String, usize>> {
        let text = fs::read(log).unwrap_or_default();
        let new = text.get(usize::try_from(self.read)?..).unwrap_or_default();
        // The last line may be incomplete.
        let complete = new.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        self.read += complete as u64;
        let mut counts = BTreeMap::new();
        for line in new.get(..complete).unwrap_or_default().split(|byte| *byte == b'\n').filter(|line| !line.is_empty())
        {
            let event: Value = serde_json::from_slice(line)?;
            let text = |path: &str| event.pointer(path).and_then(Value::as_str).unwrap_or_default();
            let (verb, stage) = (text("/verb"), text("/stage"));
            // A watch counts when it begins, any other request when it ends.
            if (verb == "watch") != (stage == "ResponseStarted") {
                continue;
            }
            let (resource, part) = (text("/objectRef/resource"), text("/objectRef/subresource"));
            let resource = if part.is_empty() { resource.to_owned() } else { format!("{resource}/{part}") };
            *counts.entry(format!("{verb} {resource}")).or_default() += 1;
        }
        Ok(counts)
    }
}
