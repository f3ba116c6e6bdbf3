//! A control group with a memory limit, like the one that kubelet creates for a container. Needs root.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

/// Mount points of the memory controller in both versions of control groups, and the files with the limit.
const VERSIONS: [(&str, &str); 2] =
    [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];

/// A control group. It is removed with this value, if its processes have ended.
#[derive(Debug)]
pub struct MemoryGroup(PathBuf);

impl MemoryGroup {
    /// Creates a group with a limit of `bytes`.
    ///
    /// # Errors
    /// The process may not create groups, or the kernel has no memory controller.
    pub fn new(bytes: u64) -> anyhow::Result<Self> {
        let mounted = |(mount, _): &&(&str, &str)| Path::new(mount).join("cgroup.procs").exists();
        let (mount, limit) = VERSIONS.iter().find(mounted).context("no control groups are mounted")?;
        let path = Path::new(mount).join(format!("remora-bench-{}", std::process::id()));
        fs::create_dir(&path).with_context(|| format!("cannot create {}", path.display()))?;
        let group = Self(path);
        fs::write(group.0.join(limit), bytes.to_string()).context("cannot set a memory limit")?;
        Ok(group)
    }

    /// Returns a command that starts the program in the group.
    #[must_use]
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("sh");
        let procs = self.0.join("cgroup.procs");
        command.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]).arg(procs).arg(program);
        command
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}
