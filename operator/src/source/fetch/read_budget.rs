//! Budget of full reads: how often the operator reads whole documents from one server.
//!
//! Some changes of an environment do not move its `updated_at`, so `If-Modified-Since` does not find them. A full read
//! does: a fetch without a condition, or with the entity tag of a server that sends one. A full read costs the server
//! bytes and time, so the full reads of all environments share a budget for each server. Environments that need less
//! than their share get what they need; the others get equal rates, so larger documents are read less often.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::origin::Origin;
use crate::source::back_off::JITTER;

/// Time within which a change is read while the budget suffices. It leaves 5 s of a minute to compile and to deliver.
const READ_WITHIN: Duration = Duration::from_secs(55);
/// Longest rest between two full reads, whatever the budget says.
pub const REST_MAX: Duration = Duration::from_secs(600);
/// Bytes of documents that full reads take from one server in a minute (512 MiB).
pub const BYTES_PER_MINUTE: usize = 512 << 20;
/// Time of requests that full reads take from one server in a minute: on average two of the eight concurrent requests.
const TIME_PER_MINUTE: Duration = Duration::from_secs(120);
/// Age at which a full read no longer counts. Every environment that is polled more often than this has a younger one.
const FORGOTTEN: Duration = Duration::from_secs(1800);

/// Longest time for which the fair rate of a server does not follow new reads.
const RATE_AGE: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// A full read of a document.
#[derive(Clone, Debug)]
pub struct FullRead {
    /// Server of the document.
    pub origin: Origin,
    /// Size of the document in bytes. Zero if the server confirmed an entity tag.
    pub bytes: usize,
    /// Time from the first request to the last byte.
    pub took: Duration,
}

impl FullRead {
    /// Returns the share of a minute's budget that the read costs.
    fn cost(&self) -> f64 {
        let bytes = self.bytes as f64 / BYTES_PER_MINUTE as f64;
        bytes.max(self.took.as_secs_f64() / TIME_PER_MINUTE.as_secs_f64())
    }
}

/// Full reads of all environments, by UID, and the fair rate of each server.
#[derive(Debug, Default)]
pub struct ReadBudget(Mutex<Content>);

#[derive(Debug, Default)]
struct Content {
    /// Server of each environment, by UID.
    origins: HashMap<Arc<str>, Origin>,
    servers: HashMap<Origin, Server>,
    /// Time of the last removal of old demands.
    swept: Option<Instant>,
}

#[derive(Debug)]
struct Demand {
    /// Share of a minute's budget that one read costs.
    cost: f64,
    /// Cost per minute without a budget.
    rate: f64,
    read_at: Instant,
}

/// The demands of one server.
#[derive(Debug)]
struct Server {
    /// Demands by the UID of the environment.
    demands: HashMap<Arc<str>, Demand>,
    /// Largest cost per minute that one environment may have, of the demands at `computed`.
    rate: f64,
    /// Time of the last demand that `rate` was computed from. `None` before the first computation.
    computed: Option<Instant>,
    /// Time of the last demand.
    changed: Instant,
}

impl ReadBudget {
    /// Records a full read of the environment with this UID, which is polled at this interval.
    pub fn record(&self, uid: &str, read: &FullRead, interval: Duration, now: Instant) {
        let cost = read.cost();
        let rate = cost / minutes(rest_without_budget(interval));
        self.0.lock().insert(uid.into(), &read.origin, Demand { cost, rate, read_at: now });
    }

    /// Returns the shortest time between two full reads of the environment.
    #[must_use]
    pub fn rest(&self, uid: &str, interval: Duration) -> Duration {
        let natural = rest_without_budget(interval);
        let mut content = self.0.lock();
        let mut fair = || {
            let server = content.server_of(uid)?;
            let rate = server.fair_rate();
            let demand = server.demands.get(uid)?;
            (demand.rate > rate).then(|| MINUTE.mul_f64((demand.cost / rate).min(minutes(REST_MAX))))
        };
        fair().map_or(natural, |rest| rest.max(natural))
    }

    /// Returns the shortest time between two reads of the environment that webhooks cause. These reads have a budget of
    /// the same size, which the environments of a server share equally. Zero if the cost of a read is not known yet.
    #[must_use]
    pub fn webhook_rest(&self, uid: &str) -> Duration {
        let mut content = self.0.lock();
        let Some(server) = content.server_of(uid) else { return Duration::ZERO };
        let Some(demand) = server.demands.get(uid) else { return Duration::ZERO };
        MINUTE.mul_f64((demand.cost * server.demands.len() as f64).min(minutes(REST_MAX)))
    }
}

impl Content {
    fn insert(&mut self, uid: Arc<str>, origin: &Origin, demand: Demand) {
        let now = demand.read_at;
        if let Some(former) = self.origins.insert(Arc::clone(&uid), origin.clone()).filter(|former| former != origin)
            && let Some(server) = self.servers.get_mut(&former)
        {
            server.demands.remove(&uid);
        }
        let new = || Server { demands: HashMap::new(), rate: f64::INFINITY, computed: None, changed: now };
        let server = self.servers.entry(origin.clone()).or_insert_with(new);
        server.demands.insert(uid, demand);
        server.changed = now;
        if self.swept.is_none_or(|swept| now.duration_since(swept) >= MINUTE) {
            self.swept = Some(now);
            self.sweep(now);
        }
    }

    /// Forgets old demands, and servers without demands.
    fn sweep(&mut self, now: Instant) {
        for server in self.servers.values_mut() {
            server.demands.retain(|_, demand| now.duration_since(demand.read_at) < FORGOTTEN);
        }
        self.servers.retain(|_, server| !server.demands.is_empty());
        let is_there = |uid: &Arc<str>, origin: &Origin| {
            self.servers.get(origin).is_some_and(|server| server.demands.contains_key(uid))
        };
        self.origins.retain(|uid, origin| is_there(uid, origin));
    }

    fn server_of(&mut self, uid: &str) -> Option<&mut Server> {
        self.servers.get_mut(self.origins.get(uid)?)
    }
}

impl Server {
    /// Returns the fair rate. It follows demands within [`RATE_AGE`]: a computation looks at all of them, so one for each
    /// demand would take time that grows with the square of their number.
    fn fair_rate(&mut self) -> f64 {
        if self.computed.is_none_or(|computed| self.changed.duration_since(computed) >= RATE_AGE) {
            self.computed = Some(self.changed);
            self.rate = fair_rate(&self.demands.values().map(|demand| demand.rate).collect::<Vec<f64>>());
        }
        self.rate
    }
}

/// Returns the longest time between two full reads of an environment that rests this long and is polled at this
/// interval.
#[must_use]
pub fn read_within(rest: Duration, interval: Duration) -> Duration {
    let next_poll = interval.mul_f64(1.0 + JITTER);
    if rest <= interval.mul_f64(1.0 - JITTER) { next_poll } else { rest + next_poll }
}

/// Returns the rest after which the next poll still reads within [`READ_WITHIN`]. With long intervals, every poll is a
/// full read.
fn rest_without_budget(interval: Duration) -> Duration {
    interval.mul_f64(1.0 - JITTER).max(READ_WITHIN.saturating_sub(interval.mul_f64(1.0 + JITTER)))
}

fn minutes(time: Duration) -> f64 {
    time.as_secs_f64() / MINUTE.as_secs_f64()
}

/// Returns the largest rate that one environment may have so that all together stay within one budget. Infinite if the
/// budget covers all demands.
fn fair_rate(demands: &[f64]) -> f64 {
    let mut rate = 0.0;
    loop {
        let within: Vec<f64> = demands.iter().copied().filter(|demand| *demand <= rate).collect();
        let beyond = demands.len() - within.len();
        if beyond == 0 {
            return f64::INFINITY;
        }
        // Demands within the rate leave a part of their share to the others, so the rate grows until it is fair.
        let next = (1.0 - within.iter().sum::<f64>()) / beyond as f64;
        if next <= rate {
            return rate;
        }
        rate = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(30);

    fn read(bytes: usize, took: Duration) -> FullRead {
        FullRead { origin: "https://flags.test".parse().unwrap(), bytes, took }
    }

    #[test]
    fn environment_within_budget_is_read_within_a_minute_at_any_interval_up_to_50_seconds() {
        let budget = ReadBudget::default();
        budget.record("a", &read(5 << 20, Duration::from_millis(300)), INTERVAL, Instant::now());
        assert_eq!(budget.rest("a", INTERVAL), Duration::from_secs(27), "every poll is a full read");
        for seconds in 1..=50 {
            let interval = Duration::from_secs(seconds);
            let within = read_within(budget.rest("new", interval), interval);
            assert!(within <= READ_WITHIN + Duration::from_millis(1), "{interval:?}: {within:?}");
        }
        let hourly = Duration::from_secs(3600);
        assert_eq!(read_within(budget.rest("new", hourly), hourly), hourly.mul_f64(1.1));
    }

    #[test]
    fn large_documents_share_what_small_ones_leave() {
        let budget = ReadBudget::default();
        let now = Instant::now();
        for number in 0..900 {
            budget.record(&format!("small {number}"), &read(20 << 10, Duration::ZERO), INTERVAL, now);
        }
        for number in 0..100 {
            budget.record(&format!("large {number}"), &read(5 << 20, Duration::ZERO), INTERVAL, now);
        }
        assert_eq!(budget.rest("small 7", INTERVAL), Duration::from_secs(27));
        let rest = budget.rest("large 7", INTERVAL);
        assert!(rest > MINUTE && rest < REST_MAX, "{rest:?}");
        let spent = 900.0 * 20.0 / 1024.0 / 0.45 + 100.0 * 5.0 / minutes(rest);
        assert!((506.0..=512.01).contains(&spent), "{spent} MiB a minute");
    }

    #[test]
    fn slow_server_gets_fewer_full_reads() {
        let budget = ReadBudget::default();
        let now = Instant::now();
        for number in 0..100 {
            budget.record(&number.to_string(), &read(1000, Duration::from_secs(2)), INTERVAL, now);
        }
        let rest = budget.rest("7", INTERVAL);
        // 200 s of requests at 120 s a minute.
        assert!(rest > Duration::from_secs(99) && rest < Duration::from_secs(101), "{rest:?}");
        let other = FullRead { origin: "https://other.test".parse().unwrap(), ..read(1000, Duration::ZERO) };
        budget.record("other", &other, INTERVAL, now);
        assert_eq!(budget.rest("other", INTERVAL), Duration::from_secs(27), "another server is not affected");
    }

    #[test]
    fn reads_that_webhooks_cause_stay_within_budget() {
        let budget = ReadBudget::default();
        let now = Instant::now();
        assert_eq!(budget.webhook_rest("unknown"), Duration::ZERO);
        budget.record("alone", &read(20 << 10, Duration::from_millis(20)), INTERVAL, now);
        let rest = budget.webhook_rest("alone");
        assert!(rest <= Duration::from_millis(10), "a small document has no pause of its own: {rest:?}");
        for number in 0..9 {
            budget.record(&number.to_string(), &read(64 << 20, Duration::ZERO), INTERVAL, now);
        }
        let elsewhere = FullRead { origin: "https://other.test".parse().unwrap(), ..read(64 << 20, Duration::ZERO) };
        budget.record("elsewhere", &elsewhere, INTERVAL, now);
        // Ten environments share the server, and each may take 51.2 MiB a minute.
        assert_eq!(budget.webhook_rest("7"), Duration::from_secs(75));
        assert_eq!(budget.webhook_rest("elsewhere"), Duration::from_millis(7_500));
        budget.record(
            "slow",
            &FullRead { origin: elsewhere.origin, ..read(1, Duration::from_secs(60)) },
            INTERVAL,
            now,
        );
        assert_eq!(budget.webhook_rest("slow"), MINUTE, "two environments share 120 s of requests");
    }

    #[test]
    fn fair_rate_follows_new_reads_within_a_second() {
        let budget = ReadBudget::default();
        let now = Instant::now();
        let large = read(60 << 20, Duration::ZERO);
        budget.record("0", &large, INTERVAL, now);
        assert_eq!(budget.rest("0", INTERVAL), Duration::from_secs(27));
        for number in 1..100 {
            budget.record(&number.to_string(), &large, INTERVAL, now + RATE_AGE / 2);
        }
        assert_eq!(budget.rest("0", INTERVAL), Duration::from_secs(27), "the rate is not computed for each read");
        budget.record("100", &large, INTERVAL, now + RATE_AGE);
        assert_eq!(budget.rest("0", INTERVAL), REST_MAX);
    }

    #[test]
    fn rest_never_exceeds_ten_minutes_and_old_reads_do_not_count() {
        let budget = ReadBudget::default();
        let now = Instant::now();
        for number in 0..1000 {
            budget.record(&number.to_string(), &read(60 << 20, Duration::ZERO), INTERVAL, now);
        }
        assert_eq!(budget.rest("7", INTERVAL), REST_MAX);
        let later = now + FORGOTTEN;
        budget.record("7", &read(60 << 20, Duration::ZERO), INTERVAL, later);
        assert_eq!(budget.rest("7", INTERVAL), Duration::from_secs(27), "the others are gone");
        assert_eq!(budget.0.lock().origins.len(), 1);
        for number in 0..3 {
            let origin = format!("https://{number}.test").parse().unwrap();
            budget.record("7", &FullRead { origin, ..read(1, Duration::ZERO) }, INTERVAL, later);
        }
        budget.record("7", &read(1, Duration::ZERO), INTERVAL, later + MINUTE);
        assert_eq!(budget.0.lock().servers.len(), 1, "servers without demands are forgotten");
    }
}
