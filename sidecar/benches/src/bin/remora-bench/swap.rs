//! Measures new revisions under full load.

use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use remora_bench::load::{Load, Outcome, Pace, ask};
use remora_bench::prepared::Prepared;
use remora_bench::profile::{ENVIRONMENT, official};
use remora_bench::request::to;
use remora_bench::server::Server;
use remora_bench::table::{Table, Target};
use remora_bench::turns::median;

use super::Programs;
use super::ratios::{IDENTITIES, sidecar};

const ROUNDS: usize = 5;
const TURN: Duration = Duration::from_secs(1);
/// Interval between two revisions, far shorter than in production.
const EVERY: Duration = Duration::from_millis(100);

/// An environment's directory with two copies of the same files. Swapping them renames `..data`, as kubelet does.
pub(super) struct Volume {
    path: PathBuf,
    names: [PathBuf; 2],
    /// Number of swaps so far.
    pub(super) swaps: usize,
}

impl Volume {
    pub(super) fn twice(prepared: &Prepared) -> anyhow::Result<Self> {
        let path = prepared.directory.join(ENVIRONMENT);
        let one = std::fs::read_link(path.join("..data"))?;
        let other = PathBuf::from(format!("{}-again", one.display()));
        std::fs::create_dir_all(path.join(&other))?;
        for entry in std::fs::read_dir(path.join(&one))? {
            let entry = entry?;
            std::fs::copy(entry.path(), path.join(&other).join(entry.file_name()))?;
        }
        Ok(Self { path, names: [one, other], swaps: 0 })
    }

    pub(super) fn swap(&mut self) -> std::io::Result<()> {
        self.swaps += 1;
        let [one, other] = &self.names;
        let next = self.path.join("..data_tmp");
        symlink(if self.swaps.is_multiple_of(2) { one } else { other }, &next)?;
        std::fs::rename(&next, self.path.join("..data"))
    }
}

pub(super) fn measure<W: Write>(table: &mut Table<W>, programs: &Programs, place: &Path) -> anyhow::Result<()> {
    let prepared = Prepared::new(official("swapped", 8_700), place)?;
    let mut volume = Volume::twice(&prepared)?;
    let server = sidecar(programs, &prepared)?;
    let exchanges = prepared.identities(&server, IDENTITIES)?;
    let mut load = Load::connect(server.address)?;
    load.run(&exchanges, Pace::Closed, TURN, || ())?;
    let (mut ratios, mut quiet, mut busy) = (Vec::new(), Vec::new(), Vec::new());
    let (mut failures, mut requests) = (0, 0);
    for _ in 0..ROUNDS {
        let without: Outcome = load.run(&exchanges, Pace::Closed, TURN, || ())?;
        let mut last = Instant::now();
        let mut problem = None;
        let with = load.run(&exchanges, Pace::Closed, TURN, || {
            if last.elapsed() >= EVERY {
                last = Instant::now();
                problem = volume.swap().err().or(problem.take());
            }
        })?;
        ensure!(problem.is_none(), "a swap failed: {problem:?}");
        failures += with.failures + without.failures;
        requests += with.latencies.len();
        ratios.push(with.quantile(0.99) / without.quantile(0.99));
        quiet.push(without.quantile(0.99));
        busy.push(with.quantile(0.99));
    }
    let swaps = volume.swaps;
    ensure!(swaps > 0, "nothing was swapped");
    // The sidecar's own count proves that it served the swapped files.
    let reloads = reloads(&server).context("the sidecar's count of swaps")?;
    ensure!(reloads * 2 >= swaps, "of {swaps} swaps {reloads} were taken up");
    let beside = format!("{requests} requests, {swaps} swaps, {reloads} taken up");
    table.line("failed requests while revisions are swapped", Target::Below(1.0), "", failures as f64, "", &beside)?;
    ratios.sort_by(f64::total_cmp);
    let spread = format!("{:.3} .. {:.3}", ratios.first().unwrap_or(&0.0), ratios.last().unwrap_or(&0.0));
    let beside = format!("{:.0} and {:.0} us", median(busy.into_iter()), median(quiet.into_iter()));
    table.line("p99 with swaps over p99 without", Target::Below(1.5), "", median(ratios.into_iter()), &spread, &beside)
}

/// Number of checks of the swapped volume, by the sidecar's metrics.
pub(super) fn reloads(server: &Server) -> anyhow::Result<usize> {
    let answer = ask(server.admin, &to("GET", "/metrics", "", ""))?;
    let text = String::from_utf8(answer.body)?;
    let count = |line: &str| line.rsplit_once(' ').and_then(|(_, value)| value.parse::<usize>().ok());
    Ok(text.lines().filter(|line| !line.starts_with('#') && line.contains("reload")).filter_map(count).sum())
}
