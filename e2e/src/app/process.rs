//! Access to other processes of a pod with a shared process namespace: kills the sidecar as a crash would, and reads
//! its memory use.

use std::fs;

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};

/// Finds the process with this name in `/proc/…/comm`.
fn find(name: &str) -> anyhow::Result<i32> {
    for entry in fs::read_dir("/proc").context("/proc")? {
        let Ok(id) = entry?.file_name().to_string_lossy().parse::<i32>() else {
            continue;
        };
        // A process may exit between the listing and the read.
        if fs::read_to_string(format!("/proc/{id}/comm")).is_ok_and(|comm| comm.trim_end() == name) {
            return Ok(id);
        }
    }
    anyhow::bail!("no process `{name}` to be seen: the pod needs `shareProcessNamespace: true`")
}

/// Kills the process with SIGKILL, so that it cannot shut down in order.
pub(super) fn kill(name: &str) -> anyhow::Result<()> {
    let id = Pid::from_raw(find(name)?).context("a process has a number")?;
    kill_process(id, Signal::KILL).with_context(|| format!("cannot kill `{name}`"))
}

/// Returns the lines of the process's `/proc/…/status` about memory.
pub(super) fn memory(name: &str) -> anyhow::Result<String> {
    let status = fs::read_to_string(format!("/proc/{}/status", find(name)?))?;
    let lines = status.lines().filter(|line| line.starts_with("Vm") || line.starts_with("Rss"));
    Ok(lines.fold(String::new(), |text, line| text + line + "\n"))
}
