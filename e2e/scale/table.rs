//! The cost of each phase, and the table of all phases.

use std::{fmt::Write as _, fs};

use crate::{
    fleet::{LARGE, Size},
    requests::{Request, summary},
    usage::Usage,
};

/// Cost of a phase, with that of the time until the controller has settled.
pub(crate) struct Row {
    pub(crate) phase: String,
    /// Seconds until the phase's condition held.
    pub(crate) seconds: f64,
    /// Seconds from then until the controller had settled.
    pub(crate) settled: f64,
    pub(crate) requests: Vec<Request>,
    pub(crate) bytes: u64,
    pub(crate) written: f64,
    pub(crate) usage: Usage,
    pub(crate) cpu: f64,
    /// Number of the controller's processes that ended.
    pub(crate) ended: usize,
}

impl Row {
    /// Counts the requests that a condition selects.
    pub(crate) fn count(&self, selects: impl Fn(&Request) -> bool) -> f64 {
        self.requests.iter().filter(|request| selects(request)).count() as f64
    }

    /// Returns the number of requests a second.
    pub(crate) fn rate(&self) -> f64 {
        self.requests.len() as f64 / (self.seconds + self.settled).max(0.001)
    }

    pub(crate) fn line(&self) -> String {
        let settled = if self.settled > 0.0 { format!(" + {:.0} s", self.settled) } else { String::new() };
        let ended = if self.ended > 0 { format!(" (controller ended: {})", self.ended) } else { String::new() };
        format!(
            "| {}{ended} | {:.1} s{settled} | {} ({:.1}/s): {} | {:.2} MB | {:.2} MB | {:.0} ({:.0}, {:.0}) MiB | {:.1} s |",
            self.phase,
            self.seconds,
            self.requests.len(),
            self.rate(),
            summary(&self.requests),
            self.bytes as f64 / 1e6,
            self.written / 1e6,
            self.usage.memory,
            self.usage.peak,
            self.usage.anonymous,
            self.cpu
        )
    }
}

/// Returns the table of the phases.
pub(crate) fn table(size: Size, rows: &[Row]) -> String {
    let mut text = format!(
        "\n{} environments, {} pods on {} nodes. Load average: {}\n\n| phase | time + until settled | requests of the controller | received | etcd wrote | memory (peak, now anonymous) | CPU |\n|---|---|---|---|---|---|---|\n",
        size.environments,
        size.pods,
        size.nodes,
        fs::read_to_string("/proc/loadavg").unwrap_or_default().trim()
    );
    for row in rows {
        text.push_str(&row.line());
        text.push('\n');
    }
    let _ = writeln!(text, "\nThe environment {LARGE} has half of the pods. Times include those of this program.");
    text
}
