//! A control group with a memory limit, like the one that kubelet creates for a container. Needs root.

use std::fs;
use std::path::{Path, PathBuf};

/// A control group for a program. It is removed with this value, after the program has ended.
pub(crate) struct Cgroup {
    path: PathBuf,
    usage: &'static str,
    events: &'static str,
}

impl Cgroup {
    /// Creates a group with a limit of `bytes`.
    ///
    /// # Errors
    /// The text says what the machine lacks.
    pub(crate) fn with_memory(bytes: u64) -> Result<Cgroup, String> {
        const NEEDED: &str = "a control group with a memory limit, which takes root and the kernel's memory controller";
        let mounts = fs::read_to_string("/proc/mounts").unwrap();
        let mounts = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let mut found = mounts.filter_map(|mount| {
            let path = Path::new(mount[1]);
            let has_memory = |path: &Path| {
                let controllers = fs::read_to_string(path.join("cgroup.controllers")).unwrap_or_default();
                controllers.split_whitespace().any(|controller| controller == "memory")
            };
            match mount[2] {
                "cgroup" if mount[3].split(',').any(|option| option == "memory") => Some((path.to_owned(), true)),
                "cgroup2" if has_memory(path) => Some((path.to_owned(), false)),
                _ => None,
            }
        });
        let (root, is_first_version) =
            found.next().ok_or_else(|| format!("{NEEDED}: no memory controller is mounted"))?;
        let (limit, usage, events) = if is_first_version {
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.oom_control")
        } else {
            // The controller may already be enabled. If it is not and this fails, setting the limit fails.
            let _ = fs::write(root.join("cgroup.subtree_control"), "+memory");
            ("memory.max", "memory.current", "memory.events")
        };
        let path = root.join(format!("remora-test-{}", std::process::id()));
        fs::create_dir(&path).map_err(|error| format!("{NEEDED}: {} cannot be created: {error}", path.display()))?;
        let group = Cgroup { path, usage, events };
        let limit = group.path.join(limit);
        fs::write(&limit, bytes.to_string()).map_err(|error| format!("{NEEDED}: {}: {error}", limit.display()))?;
        Ok(group)
    }

    /// Arguments that start a program in the group.
    pub(crate) fn starter(&self) -> [String; 4] {
        let script = format!("echo $$ > {} && exec \"$@\"", self.path.join("cgroup.procs").display());
        ["sh".to_owned(), "-c".to_owned(), script, "sh".to_owned()]
    }

    /// Memory usage of the group in bytes.
    pub(crate) fn usage(&self) -> u64 {
        fs::read_to_string(self.path.join(self.usage)).unwrap().trim().parse().unwrap()
    }

    /// Number of the group's processes that the OOM killer ended.
    pub(crate) fn kills(&self) -> u64 {
        let events = fs::read_to_string(self.path.join(self.events)).unwrap();
        events.lines().find_map(|line| line.strip_prefix("oom_kill ")).unwrap().parse().unwrap()
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.path);
    }
}
