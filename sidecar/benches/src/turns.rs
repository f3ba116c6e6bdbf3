//! Compares servers fairly: turn by turn in one run, so that disturbances of the machine affect all of them. The
//! placement of a process's pages makes it a few percent faster or slower for as long as it runs, so servers with close
//! results are started several times.

use std::time::Duration;

use anyhow::ensure;

use crate::host::Ticks;
use crate::load::{Exchange, Load, Pace};
use crate::server::Server;

/// Fraction of steal time beyond which a turn does not count. Such phases last for seconds, and a server then does
/// between a hundredth and all of its work.
const STOLEN: f64 = 0.1;

/// One of the servers that are compared.
pub struct Side<'a> {
    start: Box<dyn Fn() -> anyhow::Result<Server> + 'a>,
    exchanges: &'a [Exchange],
    turns: Vec<Turn>,
    /// Number of rounds that did not count.
    again: usize,
}

/// A running process of a side, and its load.
struct Running<'a> {
    server: Server,
    load: Load,
    exchanges: &'a [Exchange],
}

/// Result of one turn.
#[derive(Debug, Clone, Copy)]
struct Turn {
    rate: f64,
    /// Number of requests per second of the server's own time on its core.
    own_rate: f64,
    /// Fraction of steal time.
    stolen: f64,
}

impl Turn {
    fn is_spoiled(&self) -> bool {
        self.stolen > STOLEN
    }
}

/// The ratio of two servers over all turns.
#[derive(Debug, Clone, Copy)]
pub struct Ratio {
    /// Median of the ratio.
    pub median: f64,
    /// Least and greatest ratio.
    pub spread: (f64, f64),
    /// Median of the ratio by the servers' own time, which other processes on the core do not affect.
    pub own: f64,
    /// Number of rounds that were repeated because of steal time.
    pub again: usize,
    /// Number of counted rounds with too much steal time.
    pub spoiled: usize,
}

impl Running<'_> {
    fn take_turn(&mut self, time: Duration) -> anyhow::Result<Turn> {
        let (before, ticks) = (self.server.time_on_core()?, Ticks::now()?);
        let outcome = self.load.run(self.exchanges, Pace::Closed, time, || ())?;
        ensure!(outcome.failures == 0, "{} of {} answers were wrong", outcome.failures, outcome.latencies.len());
        let own = self.server.time_on_core()?.saturating_sub(before);
        Ok(Turn {
            rate: outcome.rate,
            own_rate: outcome.latencies.len() as f64 / own.as_secs_f64(),
            stolen: ticks.stolen_until(Ticks::now()?),
        })
    }
}

impl<'a> Side<'a> {
    /// Creates a side from its requests, and a function that starts its server.
    pub fn new(exchanges: &'a [Exchange], start: impl Fn() -> anyhow::Result<Server> + 'a) -> Self {
        Self { start: Box::new(start), exchanges, turns: Vec::new(), again: 0 }
    }

    fn start(&self) -> anyhow::Result<Running<'a>> {
        let server = (self.start)()?;
        let load = Load::connect(server.address)?;
        Ok(Running { server, load, exchanges: self.exchanges })
    }

    /// Median of its requests per second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        median(self.turns.iter().map(|turn| turn.rate))
    }

    /// Median of its time per request in microseconds.
    #[must_use]
    pub fn cost(&self) -> f64 {
        1e6 / median(self.turns.iter().map(|turn| turn.own_rate))
    }

    /// Ratio of this side's rate to the rate of `other`.
    #[must_use]
    pub fn over(&self, other: &Side<'_>) -> Ratio {
        let pairs = || self.turns.iter().zip(&other.turns);
        let rates = || pairs().map(|(one, other)| one.rate / other.rate);
        Ratio {
            median: median(rates()),
            spread: (rates().fold(f64::INFINITY, f64::min), rates().fold(0.0, f64::max)),
            own: median(pairs().map(|(one, other)| one.own_rate / other.own_rate)),
            again: self.again,
            spoiled: pairs().filter(|(one, other)| one.is_spoiled() || other.is_spoiled()).count(),
        }
    }
}

/// Measures all sides: starts every server `starts` times, and lets the sides take turns for `rounds` rounds after each
/// start. A first turn of each is a warm-up and does not count. A round with too much steal time is repeated. The
/// number of repetitions is at most that of all rounds; beyond it, such rounds count.
///
/// # Errors
/// A server does not start, breaks, or gives a wrong answer.
pub fn take(sides: &mut [Side<'_>], starts: usize, rounds: usize, time: Duration) -> anyhow::Result<()> {
    let mut again = 0;
    for _ in 0..starts {
        let mut running = sides.iter().map(Side::start).collect::<anyhow::Result<Vec<_>>>()?;
        let mut round = || running.iter_mut().map(|side| side.take_turn(time)).collect::<anyhow::Result<Vec<_>>>();
        round()?;
        let mut taken = 0;
        while taken < rounds {
            let turns = round()?;
            if again < starts * rounds && turns.iter().any(Turn::is_spoiled) {
                again += 1;
                continue;
            }
            sides.iter_mut().zip(turns).for_each(|(side, turn)| side.turns.push(turn));
            taken += 1;
        }
    }
    sides.iter_mut().for_each(|side| side.again = again);
    Ok(())
}

/// Returns the median: of an even number of values, the upper of the two in the middle.
pub fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
