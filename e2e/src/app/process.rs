//! Other processes of the pod, seen when it shares its process namespace: to end the sidecar as a crash would, and to weigh it.

use std::fs;

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};

/// The process whose name, as the kernel has it, is `name`.
fn find(name: &str) -> anyhow::Result<i32> {
    for entry in fs::read_dir("/proc").context("/proc")? {
        let Ok(id) = entry?.file_name().to_string_lossy().parse::<i32>() else {
            continue;
        };
        // Processes come and go while we look.
        if fs::read_to_string(format!("/proc/{id}/comm")).is_ok_and(|comm| comm.trim_end() == name) {
            return Ok(id);
        }
    }
    anyhow::bail!("no process `{name}` to be seen: the pod needs `shareProcessNamespace: true`")
}

/// Ends it without a chance to say anything.
pub(super) fn kill(name: &str) -> anyhow::Result<()> {
    let id = Pid::from_raw(find(name)?).context("a process has a number")?;
    kill_process(id, Signal::KILL).with_context(|| format!("cannot kill `{name}`"))
}

/// The lines of its `/proc/…/status` that tell of memory.
pub(super) fn memory(name: &str) -> anyhow::Result<String> {
    let status = fs::read_to_string(format!("/proc/{}/status", find(name)?))?;
    let lines = status.lines().filter(|line| line.starts_with("Vm") || line.starts_with("Rss"));
    Ok(lines.fold(String::new(), |text, line| text + line + "\n"))
}
