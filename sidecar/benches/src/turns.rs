//! Comparing servers fairly: turn by turn in one run, so that whatever else the machine does meets all of them. Where a
//! process's pages happen to lie makes it a few hundredths faster or slower for as long as it runs, so that what is close is
//! started several times.

use std::time::Duration;

use anyhow::ensure;

use crate::host::Ticks;
use crate::load::{Exchange, Load, Pace};
use crate::server::Server;

/// A turn does not count if the host took more than this part of it: in such stretches, which last for seconds, a server
/// comes to do anything between a hundredth of its work and all of it.
const STOLEN: f64 = 0.1;

/// One of those that are compared.
pub struct Side<'a> {
    start: Box<dyn Fn() -> anyhow::Result<Server> + 'a>,
    exchanges: &'a [Exchange],
    turns: Vec<Turn>,
    /// How many rounds did not count.
    again: usize,
}

/// One of its processes, and who asks it.
struct Running<'a> {
    server: Server,
    load: Load,
    exchanges: &'a [Exchange],
}

/// What one turn gave.
#[derive(Debug, Clone, Copy)]
struct Turn {
    rate: f64,
    /// Requests in a second of the server's own time on its core.
    own_rate: f64,
    /// The part of the time that the host took.
    stolen: f64,
}

impl Turn {
    fn is_spoiled(&self) -> bool {
        self.stolen > STOLEN
    }
}

/// A ratio: its median, and the least and the greatest of all turns.
#[derive(Debug, Clone, Copy)]
pub struct Ratio {
    /// The median.
    pub median: f64,
    /// The least and the greatest.
    pub spread: (f64, f64),
    /// The median by the servers' own time, which others on the core take nothing from.
    pub own: f64,
    /// How many rounds were taken again, since the host took the processors.
    pub again: usize,
    /// In how many of those that count it took them, too.
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
    /// What is asked, and how a server is started that answers it.
    pub fn new(exchanges: &'a [Exchange], start: impl Fn() -> anyhow::Result<Server> + 'a) -> Self {
        Self { start: Box::new(start), exchanges, turns: Vec::new(), again: 0 }
    }

    fn start(&self) -> anyhow::Result<Running<'a>> {
        let server = (self.start)()?;
        let load = Load::connect(server.address)?;
        Ok(Running { server, load, exchanges: self.exchanges })
    }

    /// The median of its requests a second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        median(self.turns.iter().map(|turn| turn.rate))
    }

    /// The median of its microseconds a request.
    #[must_use]
    pub fn cost(&self) -> f64 {
        1e6 / median(self.turns.iter().map(|turn| turn.own_rate))
    }

    /// This one's rate over the other's.
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

/// Starts every side's server so many times, and each time has every side in turn in so many rounds; a first turn of each warms
/// up and does not count. A round with a turn of which the host took a part is taken again, at most as many of them as there
/// are to be: then they count as they are.
///
/// # Errors
/// If a server does not start, breaks, or answers anything wrong.
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

/// The middle one.
pub fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
