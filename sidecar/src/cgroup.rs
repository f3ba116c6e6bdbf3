//! The memory limit of the process's control group, which kubelet sets from the container's limit.

use std::fs;
use std::path::{Path, PathBuf};

/// A version of the kernel's interface: where the memory controller is mounted, and the names in it.
struct Version {
    mount: &'static str,
    limit: &'static str,
    usage: &'static str,
    /// Entry of `memory.stat` with the bytes of files that the kernel drops before it reaches the limit.
    reclaimable: &'static str,
}

const UNIFIED: Version =
    Version { mount: "/sys/fs/cgroup", limit: "memory.max", usage: "memory.current", reclaimable: "inactive_file " };
const FIRST: Version = Version {
    mount: "/sys/fs/cgroup/memory",
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    reclaimable: "total_inactive_file ",
};

/// Returns the number of bytes that the process may still take before it reaches its limit, which is `u64::MAX` less the
/// usage where none is set. `None` if the limit cannot be read.
pub(crate) fn free_memory() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let (version, group) = group_of(&groups)?;
    // In a container, the mount may show only the container's own group, as its root.
    [Path::new(version.mount).join(group), PathBuf::from(version.mount)]
        .iter()
        .find_map(|group| free_in(group, version))
}

/// Returns the group with the memory controller, relative to its mount. The first version has one line for each
/// controller, the second has a single one.
fn group_of(groups: &str) -> Option<(&'static Version, &str)> {
    let mut unified = None;
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let path = path.trim_start_matches('/');
        if controllers.is_empty() {
            unified = Some((&UNIFIED, path));
        } else if controllers.split(',').any(|controller| controller == "memory") {
            return Some((&FIRST, path));
        }
    }
    unified
}

fn free_in(group: &Path, version: &Version) -> Option<u64> {
    let number = |file| match fs::read_to_string(group.join(file)).ok()?.trim() {
        "max" => Some(u64::MAX),
        number => number.parse::<u64>().ok(),
    };
    let stat = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
    let reclaimable = stat.lines().find_map(|line| line.strip_prefix(version.reclaimable)?.parse::<u64>().ok());
    // Kubelet counts the usage in this way, too.
    let used = number(version.usage)?.saturating_sub(reclaimable.unwrap_or_default());
    Some(number(version.limit)?.saturating_sub(used))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_is_found_in_both_versions() {
        let found = |text| group_of(text).map(|(version, group)| (version.limit, group.to_owned()));
        assert_eq!(found("0::/kubepods/pod7/x\n"), Some(("memory.max", "kubepods/pod7/x".to_owned())));
        assert_eq!(found("0::/\n"), Some(("memory.max", String::new())));
        let both = "9:name=systemd:/\n4:memory:/a:b/c\n0::/\n";
        assert_eq!(found(both), Some(("memory.limit_in_bytes", "a:b/c".to_owned())));
        assert_eq!(found("3:cpu,memory:/x\n"), Some(("memory.limit_in_bytes", "x".to_owned())));
        assert_eq!(found("3:cpu:/x\n"), None);
        assert_eq!(found(""), None);
    }

    #[test]
    fn free_memory_is_limit_without_usage() {
        let group = std::env::temp_dir().join(format!("remora-cgroup-{}", std::process::id()));
        fs::create_dir_all(&group).unwrap();
        let set = |limit: &str, usage: &str| {
            fs::write(group.join("memory.max"), limit).unwrap();
            fs::write(group.join("memory.current"), usage).unwrap();
            free_in(&group, &UNIFIED)
        };
        assert_eq!(set("1000\n", "400\n"), Some(600));
        assert_eq!(set("1000\n", "4000\n"), Some(0));
        fs::write(group.join("memory.stat"), "file 300\ninactive_file 100\n").unwrap();
        assert_eq!(set("1000\n", "400\n"), Some(700), "files that the kernel can drop");
        fs::remove_file(group.join("memory.stat")).unwrap();
        assert_eq!(set("max\n", "400\n"), Some(u64::MAX - 400));
        assert_eq!(set("max\n", "?\n"), None);
        fs::remove_dir_all(&group).unwrap();
        assert_eq!(free_in(&group, &UNIFIED), None);
    }
}
