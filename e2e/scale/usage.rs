//! Memory and processor time of a process, from /proc.

use std::fs;

use anyhow::Context as _;

/// Clock ticks per second in /proc.
const TICKS: f64 = 100.0;

/// Memory and processor time of a process so far.
#[derive(Clone, Copy, Default)]
pub(crate) struct Usage {
    /// Resident memory in MiB, without children.
    pub(crate) memory: f64,
    /// Part of it that no file backs: a program without optimization differs in the other part only.
    pub(crate) anonymous: f64,
    /// Largest resident memory so far in MiB.
    pub(crate) peak: f64,
    /// CPU time in seconds, with that of children that have ended.
    pub(crate) cpu: f64,
}

impl Usage {
    /// Returns the usage of the process with this ID.
    pub(crate) fn of(process: u32) -> anyhow::Result<Self> {
        let read = |file: &str| fs::read_to_string(format!("/proc/{process}/{file}")).context("the process has ended");
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
        let anonymous = field("RssAnon:").context("no RssAnon")?;
        Ok(Usage { memory, anonymous, peak: field("VmHWM:").context("no VmHWM")?, cpu: ticks / TICKS })
    }
}
