//! Measures the time from exec to the first correct answer.

use std::io::Write;
use std::time::Instant;

use remora_bench::load::Exchange;
use remora_bench::prepared::Prepared;
use remora_bench::server::Server;
use remora_bench::table::{Table, Target};
use remora_bench::turns::median;

use super::Programs;
use super::ratios::sidecar;

const TIMES: usize = 21;

pub(super) fn measure<W: Write>(table: &mut Table<W>, programs: &Programs, prepared: &Prepared) -> anyhow::Result<()> {
    let requests: Vec<Exchange> = prepared.identities(&sidecar(programs, prepared)?, 1)?;
    let Some(Exchange { request, status, .. }) = requests.first() else { return Ok(()) };
    let mut times = Vec::with_capacity(TIMES);
    for _ in 0..TIMES {
        let since = Instant::now();
        let mut server = Server::sidecar(&programs.sidecar, &prepared.directory)?;
        times.push(server.wait(request, *status, since)?.as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    let spread = format!("{:.2} .. {:.2}", times.first().unwrap_or(&0.0), times.last().unwrap_or(&0.0));
    table.line(
        &format!("exec to first correct answer, {}", prepared.profile.name),
        Target::Below(10.0),
        "ms",
        median(times.into_iter()),
        &spread,
        "",
    )
}
