//! Measures new revisions under full load.

use std::collections::BTreeSet;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use remora_bench::document;
use remora_bench::load::{Load, Outcome, Pace, ask};
use remora_bench::prepared::{Prepared, compiled};
use remora_bench::profile::{ENVIRONMENT, official};
use remora_bench::request::to;
use remora_bench::server::Server;
use remora_bench::table::{Table, Target};
use remora_bench::turns::median;
use remora_snapshot::files;
use remora_tools::directory;

use super::Programs;
use super::ratios::{IDENTITIES, sidecar};

const ROUNDS: usize = 5;
const TURN: Duration = Duration::from_secs(1);
/// Interval between two revisions, far shorter than in production.
const EVERY: Duration = Duration::from_millis(100);

/// An environment's directory with the files of two revisions. Swapping them renames `..data`, as kubelet does.
pub(super) struct Volume {
    path: PathBuf,
    names: [PathBuf; 2],
    /// Number of swaps so far.
    pub(super) swaps: usize,
}

impl Volume {
    /// Adds a second revision to the directory of a profile: the first feature has another id. Its answers have other
    /// flags, and the same length.
    pub(super) fn with_two_revisions(prepared: &Prepared) -> anyhow::Result<Self> {
        let [before, after] = [r#""feature":{"id":26,"#, r#""feature":{"id":99,"#];
        let document = document::write(&prepared.profile);
        ensure!(document.contains(before) && !document.contains(after), "the profile has other ids of features");
        let beside = prepared.directory.with_extension("second");
        directory::write(&beside, ENVIRONMENT, &compiled(&document.replace(before, after), files::MAX_FILE_BYTES)?)?;
        let second = beside.join(ENVIRONMENT).join("..data");
        let path = prepared.directory.join(ENVIRONMENT);
        let one = std::fs::read_link(path.join("..data"))?;
        let other = PathBuf::from(format!("{}-second", one.display()));
        std::fs::create_dir_all(path.join(&other))?;
        for entry in std::fs::read_dir(second)? {
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
    let mut volume = Volume::with_two_revisions(&prepared)?;
    let server = sidecar(programs, &prepared)?;
    let exchanges = prepared.identities(&server, IDENTITIES)?;
    let mut load = Load::connect(server.address)?;
    load.run(&exchanges, Pace::Closed, TURN, || ())?;
    let (mut ratios, mut quiet, mut busy) = (Vec::new(), Vec::new(), Vec::new());
    let (mut failures, mut requests, mut assignments) = (0, 0, BTreeSet::new());
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
        assignments.extend(with.assignments);
    }
    let swaps = volume.swaps;
    ensure!(swaps > 0, "nothing was swapped");
    // The sidecar's own count, and the flags in answers, prove that it served both revisions.
    let taken = swapped(&server).context("the sidecar's count of swaps")?;
    ensure!(taken * 2 >= swaps, "of {swaps} swaps {taken} were taken up");
    ensure!(assignments.len() == 2, "one identity got {} sets of flags of two revisions", assignments.len());
    let beside = format!("{requests} requests, {swaps} swaps, {taken} taken up");
    table.line("failed requests while revisions are swapped", Target::Below(1.0), "", failures as f64, "", &beside)?;
    ratios.sort_by(f64::total_cmp);
    let spread = format!("{:.3} .. {:.3}", ratios.first().unwrap_or(&0.0), ratios.last().unwrap_or(&0.0));
    let beside = format!("{:.0} and {:.0} us", median(busy.into_iter()), median(quiet.into_iter()));
    table.line("p99 with swaps over p99 without", Target::Below(1.5), "", median(ratios.into_iter()), &spread, &beside)
}

/// Number of revisions that the sidecar began to serve, by its metrics.
pub(super) fn swapped(server: &Server) -> anyhow::Result<usize> {
    let answer = ask(server.admin, &to("GET", "/metrics", "", ""))?;
    count_of_swaps(&String::from_utf8(answer.body)?).context("the metrics have no count of swaps")
}

/// Returns the count of the result `swapped` on a page of metrics.
fn count_of_swaps(page: &str) -> Option<usize> {
    let of_swaps =
        |line: &&str| line.starts_with("remora_sidecar_reloads_total{") && line.contains(r#"result="swapped""#);
    page.lines().find(of_swaps)?.rsplit_once(' ')?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_reload_is_no_swap() {
        let page = "# HELP remora_sidecar_reloads_total Number of checks.\n\
                    remora_sidecar_reloads_total{environment=\"bench\",result=\"swapped\"} 3\n\
                    remora_sidecar_reloads_total{environment=\"bench\",result=\"refused\"} 40\n";
        assert_eq!(count_of_swaps(page), Some(3));
        assert_eq!(count_of_swaps(""), None);
    }
}
