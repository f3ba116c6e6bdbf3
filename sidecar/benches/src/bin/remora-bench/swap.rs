//! New revisions under full load.

use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use remora_bench::load::{Load, Outcome, Pace};
use remora_bench::prepared::Prepared;
use remora_bench::profile::{ENVIRONMENT, official};
use remora_bench::table::{Table, Target};
use remora_bench::turns::median;

use super::Programs;
use super::ratios::{IDENTITIES, sidecar};

const ROUNDS: usize = 5;
const TURN: Duration = Duration::from_secs(1);
/// Far more often than anybody publishes.
const EVERY: Duration = Duration::from_millis(100);

pub(super) fn measure<W: Write>(table: &mut Table<W>, programs: &Programs, place: &Path) -> anyhow::Result<()> {
    let prepared = Prepared::new(official("swapped", 8_700), place)?;
    let volume = prepared.directory.join(ENVIRONMENT);
    // The same files again, in a directory of their own: what kubelet renames `..data` to.
    let one = std::fs::read_link(volume.join("..data"))?;
    let other = format!("{}-again", one.display());
    std::fs::create_dir_all(volume.join(&other))?;
    for entry in std::fs::read_dir(volume.join(&one))? {
        let entry = entry?;
        std::fs::copy(entry.path(), volume.join(&other).join(entry.file_name()))?;
    }
    let names = [one, other.into()];
    let server = sidecar(programs, &prepared)?;
    let exchanges = prepared.identities(&server, IDENTITIES)?;
    let mut load = Load::connect(server.address)?;
    load.run(&exchanges, Pace::Closed, TURN, || ())?;
    let (mut ratios, mut quiet, mut busy) = (Vec::new(), Vec::new(), Vec::new());
    let (mut failures, mut swaps, mut requests) = (0, 0_usize, 0);
    for _ in 0..ROUNDS {
        let without: Outcome = load.run(&exchanges, Pace::Closed, TURN, || ())?;
        let mut last = Instant::now();
        let mut problem = None;
        let with = load.run(&exchanges, Pace::Closed, TURN, || {
            if last.elapsed() >= EVERY {
                last = Instant::now();
                swaps += 1;
                let Some(name) = names.get(swaps % 2) else { return };
                let next = volume.join("..data_tmp");
                problem = symlink(name, &next)
                    .and_then(|()| std::fs::rename(&next, volume.join("..data")))
                    .err()
                    .or(problem.take());
            }
        })?;
        ensure!(problem.is_none(), "a swap failed: {problem:?}");
        failures += with.failures + without.failures;
        requests += with.latencies.len();
        ratios.push(with.quantile(0.99) / without.quantile(0.99));
        quiet.push(without.quantile(0.99));
        busy.push(with.quantile(0.99));
    }
    ensure!(swaps > 0, "nothing was swapped");
    // That they were taken up, the sidecar says.
    let reloads = reloads(&server).context("the sidecar's count of swaps")?;
    ensure!(reloads * 2 >= swaps, "of {swaps} swaps {reloads} were taken up");
    let beside = format!("{requests} requests, {swaps} swaps, {reloads} taken up");
    table.line("failed requests while revisions are swapped", Target::Below(1.0), "", failures as f64, "", &beside)?;
    ratios.sort_by(f64::total_cmp);
    let spread = format!("{:.3} .. {:.3}", ratios.first().unwrap_or(&0.0), ratios.last().unwrap_or(&0.0));
    let beside = format!("{:.0} and {:.0} us", median(busy.into_iter()), median(quiet.into_iter()));
    table.line("p99 with swaps over p99 without", Target::Below(1.5), "", median(ratios.into_iter()), &spread, &beside)
}

fn reloads(server: &remora_bench::server::Server) -> anyhow::Result<usize> {
    let answer = remora_bench::load::ask(server.admin, &remora_bench::request::to("GET", "/metrics", "", ""))?;
    let text = String::from_utf8(answer.body)?;
    let count = |line: &str| line.rsplit_once(' ').and_then(|(_, value)| value.parse::<usize>().ok());
    Ok(text.lines().filter(|line| !line.starts_with('#') && line.contains("reload")).filter_map(count).sum())
}
