//! Measures latencies at half of the server's highest rate, beside bare hyper at half of its own.

use std::io::Write;
use std::time::Duration;

use anyhow::{Context, ensure};
use remora_bench::load::{Exchange, Load, Pace};
use remora_bench::server::Server;
use remora_bench::table::{Table, Target};
use remora_bench::turns::median;

use super::ratios::{IDENTITIES, limit, plain, sidecar};
use super::{Profiles, Programs};

const ROUNDS: usize = 5;
const TURN: Duration = Duration::from_secs(1);

struct Side<'a> {
    exchanges: &'a [Exchange],
    load: Load,
    half: f64,
    /// p50, p99 and p99.9 of each round in microseconds.
    quantiles: Vec<[f64; 3]>,
}

impl<'a> Side<'a> {
    fn new(server: &Server, exchanges: &'a [Exchange]) -> anyhow::Result<Self> {
        let mut load = Load::connect(server.address)?;
        let mut rates = Vec::new();
        for _ in 0..3 {
            rates.push(load.run(exchanges, Pace::Closed, TURN / 2, || ())?.rate);
        }
        Ok(Self { exchanges, load, half: median(rates.into_iter()) / 2.0, quantiles: Vec::new() })
    }

    fn take_turn(&mut self) -> anyhow::Result<()> {
        let outcome = self.load.run(self.exchanges, Pace::Open(self.half), TURN, || ())?;
        ensure!(outcome.failures == 0, "{} answers were wrong", outcome.failures);
        self.quantiles.push([0.5, 0.99, 0.999].map(|part| outcome.quantile(part)));
        Ok(())
    }

    fn medians(&self) -> [f64; 3] {
        [0, 1, 2].map(|which| median(self.quantiles.iter().filter_map(|quantiles| quantiles.get(which).copied())))
    }
}

pub(super) fn measure<W: Write>(table: &mut Table<W>, programs: &Programs, profiles: &Profiles) -> anyhow::Result<()> {
    for prepared in [profiles.official.first().context("a profile is missing")?, &profiles.medium] {
        let server = sidecar(programs, prepared)?;
        let exchanges = prepared.identities(&server, IDENTITIES)?;
        let plain = plain(&exchanges);
        let bare = limit(programs, &plain, "")?;
        let (mut ours, mut theirs) = (Side::new(&server, &exchanges)?, Side::new(&bare, &plain)?);
        for _ in 0..ROUNDS {
            ours.take_turn()?;
            theirs.take_turn()?;
        }
        for (who, side) in [("sidecar", ours), ("bare hyper", theirs)] {
            let [p50, p99, p999] = side.medians();
            let what = format!("p99.9 over p50 at half the rate, {}, {who}", prepared.profile.name);
            let beside = format!("p50 {p50:.1}, p99 {p99:.1}, p99.9 {p999:.1} us at {:.0} /s", side.half);
            table.line(&what, Target::None, "", p999 / p50, "", &beside)?;
        }
    }
    Ok(())
}
