//! Budget of full reads: how often the operator reads whole documents from one server.
//!
//! Some changes of an environment do not move its `updated_at`, so `If-Modified-Since` does not find them. A full read
//! does: a fetch without a condition, or with the entity tag of a server that sends one. A full read costs the server
//! bytes and time, so the full reads of all environments share a budget for each server. Namespaces that need less than
//! their share get what they need; the others get equal shares. The environments of a namespace divide its share in the
//! same way, so larger documents are read less often. Other namespaces get no less, however many environments it has.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::origin::Origin;
use crate::{api::Uid, source::back_off::JITTER};

/// Time within which a change is read while the budget suffices. It leaves 5 s of a minute to compile and to deliver.
const READ_WITHIN: Duration = Duration::from_secs(55);
/// Longest rest between two full reads, whatever the budget says.
pub const REST_MAX: Duration = Duration::from_secs(600);
/// Bytes of documents that full reads take from one server in a minute (512 MiB).
pub const BYTES_PER_MINUTE: usize = 512 << 20;
/// Time of requests that full reads take from one server in a minute: on average two concurrent requests.
const TIME_PER_MINUTE: Duration = Duration::from_secs(120);
/// Cost of the full reads of a minute: costs are shares of the budget.
const BUDGET: f64 = 1.0;
/// Age at which a full read no longer counts. Every environment that is polled more often than this has a younger one.
/// Full reads of deleted environments stop to count earlier.
const FORGOTTEN: Duration = Duration::from_secs(1800);

/// Longest time for which the fair rates of a server do not follow new reads.
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

/// Full reads of all environments, by UID, and the fair rates of each server.
#[derive(Debug, Default)]
pub struct ReadBudget(Mutex<Content>);

#[derive(Debug, Default)]
struct Content {
    /// Place of the demand of each environment.
    places: HashMap<Uid, DemandKey>,
    servers: HashMap<Origin, Server>,
    /// Time of the last removal of old demands.
    swept: Option<Instant>,
}

/// Server and namespace of an environment.
#[derive(Clone, Debug, PartialEq, Eq)]
struct DemandKey {
    origin: Origin,
    namespace: Arc<str>,
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
    /// Namespaces that have demands.
    namespaces: HashMap<Arc<str>, Namespace>,
    /// Time of the last demand that the fair rates were computed from. `None` makes the next use compute them.
    computed: Option<Instant>,
    /// Time of the last demand.
    changed: Instant,
}

/// The demands of one namespace at one server.
#[derive(Debug)]
struct Namespace {
    /// Demands by the UID of the environment.
    demands: HashMap<Uid, Demand>,
    /// Largest cost per minute that one environment may have, of the demands at the server's `computed`.
    rate: f64,
}

impl ReadBudget {
    /// Records a full read of the environment with this UID, which is polled at this interval.
    pub fn record(&self, namespace: &str, uid: &Uid, read: &FullRead, interval: Duration, now: Instant) {
        let cost = read.cost();
        let rate = cost / minutes(rest_without_budget(interval));
        let place = DemandKey { origin: read.origin.clone(), namespace: namespace.into() };
        self.0.lock().insert(uid.clone(), place, Demand { cost, rate, read_at: now });
    }

    /// Returns the shortest time between two full reads of the environment.
    #[must_use]
    pub fn rest(&self, uid: &Uid, interval: Duration) -> Duration {
        let natural = rest_without_budget(interval);
        let mut content = self.0.lock();
        let mut fair = || {
            let (server, namespace) = content.server_of(uid)?;
            server.compute_rates();
            let namespace = server.namespaces.get(namespace)?;
            let demand = namespace.demands.get(uid)?;
            let is_beyond = demand.rate > namespace.rate;
            is_beyond.then(|| MINUTE.mul_f64((demand.cost / namespace.rate).min(minutes(REST_MAX))))
        };
        fair().map_or(natural, |rest| rest.max(natural))
    }

    /// Returns the shortest time between two reads of the environment that webhooks cause. These reads have a budget of
    /// the same size, which the namespaces of a server share equally, and so do the environments of a namespace with its
    /// share. Zero if the cost of a read is not known yet.
    #[must_use]
    pub fn webhook_rest(&self, uid: &Uid) -> Duration {
        let mut content = self.0.lock();
        let mut fair = || {
            let (server, namespace) = content.server_of(uid)?;
            let demands = &server.namespaces.get(namespace)?.demands;
            let shares = server.namespaces.len() * demands.len();
            Some(MINUTE.mul_f64((demands.get(uid)?.cost * shares as f64).min(minutes(REST_MAX))))
        };
        fair().unwrap_or_default()
    }

    /// Forgets the full reads of the environments in this namespace, or in all namespaces, for which `exists`
    /// returns false.
    pub fn retain(&self, scope: Option<&str>, exists: impl Fn(&Uid) -> bool) {
        let is_outside = |namespace: &str| scope.is_some_and(|scope| scope != namespace);
        self.0.lock().retain(|namespace, uid, _| is_outside(namespace) || exists(uid));
    }
}

impl Content {
    fn insert(&mut self, uid: Uid, place: DemandKey, demand: Demand) {
        let now = demand.read_at;
        if let Some(former) = self.places.insert(uid.clone(), place.clone()).filter(|former| *former != place) {
            self.remove(&uid, &former);
        }
        let new = || Server { namespaces: HashMap::new(), computed: None, changed: now };
        let server = self.servers.entry(place.origin).or_insert_with(new);
        server.changed = now;
        let new = || Namespace { demands: HashMap::new(), rate: f64::INFINITY };
        server.namespaces.entry(place.namespace).or_insert_with(new).demands.insert(uid, demand);
        if self.swept.is_none_or(|swept| now.duration_since(swept) >= MINUTE) {
            self.swept = Some(now);
            self.retain(|_, _, demand| now.duration_since(demand.read_at) < FORGOTTEN);
        }
    }

    /// Removes the demand of an environment, and its namespace and its server if they have no other one.
    fn remove(&mut self, uid: &Uid, place: &DemandKey) {
        let Some(server) = self.servers.get_mut(&place.origin) else { return };
        let Some(namespace) = server.namespaces.get_mut(&place.namespace) else { return };
        namespace.demands.remove(uid);
        if namespace.demands.is_empty() {
            server.namespaces.remove(&place.namespace);
        }
        if server.namespaces.is_empty() {
            self.servers.remove(&place.origin);
        }
    }

    /// Forgets the demands for which `keep` (namespace, UID, demand) returns false, and namespaces and servers without
    /// demands.
    fn retain(&mut self, keep: impl Fn(&str, &Uid, &Demand) -> bool) {
        for server in self.servers.values_mut() {
            for (name, namespace) in &mut server.namespaces {
                namespace.demands.retain(|uid, demand| keep(name, uid, demand));
            }
            server.namespaces.retain(|_, namespace| !namespace.demands.is_empty());
            server.computed = None;
        }
        self.servers.retain(|_, server| !server.namespaces.is_empty());
        let servers = &self.servers;
        self.places.retain(|uid, place| {
            let namespace = servers.get(&place.origin).and_then(|server| server.namespaces.get(&place.namespace));
            namespace.is_some_and(|namespace| namespace.demands.contains_key(uid))
        });
    }

    /// Returns the server and the namespace of an environment.
    fn server_of(&mut self, uid: &Uid) -> Option<(&mut Server, &str)> {
        let DemandKey { origin, namespace } = self.places.get(uid)?;
        Some((self.servers.get_mut(origin)?, namespace))
    }
}

impl Server {
    /// Computes the fair rates if they are too old. They follow demands within [`RATE_AGE`]: a computation looks at all of
    /// them, so one for each demand would take time that grows with the square of their number.
    fn compute_rates(&mut self) {
        if self.computed.is_some_and(|computed| self.changed.duration_since(computed) < RATE_AGE) {
            return;
        }
        self.computed = Some(self.changed);
        let rates = |namespace: &Namespace| namespace.demands.values().map(|demand| demand.rate).collect::<Vec<f64>>();
        let sums: Vec<f64> = self.namespaces.values().map(|namespace| rates(namespace).iter().sum::<f64>()).collect();
        let share = fair_rate(&sums, BUDGET);
        for namespace in self.namespaces.values_mut() {
            namespace.rate = fair_rate(&rates(namespace), share);
        }
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

/// Returns the largest rate that each of these demands may have so that all together stay within the budget. Infinite if
/// the budget covers all demands.
fn fair_rate(demands: &[f64], budget: f64) -> f64 {
    let mut rate = 0.0;
    loop {
        let within: Vec<f64> = demands.iter().copied().filter(|demand| *demand <= rate).collect();
        let beyond = demands.len() - within.len();
        if beyond == 0 {
            return f64::INFINITY;
        }
        // Demands within the rate leave a part of their share to the others, so the rate grows until it is fair.
        let next = (budget - within.iter().sum::<f64>()) / beyond as f64;
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

    fn uid(number: usize) -> Uid {
        number.to_string().as_str().into()
    }

    fn read(bytes: usize, took: Duration) -> FullRead {
        FullRead { origin: "https://flags.test".parse().unwrap(), bytes, took }
    }

    #[test]
    fn environment_within_budget_is_read_within_a_minute_at_any_interval_up_to_50_seconds() {
        let budget = ReadBudget::default();
        budget.record("shop", &"a".into(), &read(5 << 20, Duration::from_millis(300)), INTERVAL, Instant::now());
        assert_eq!(budget.rest(&"a".into(), INTERVAL), Duration::from_secs(27), "every poll is a full read");
        for seconds in 1..=50 {
            let interval = Duration::from_secs(seconds);
            let within = read_within(budget.rest(&"new".into(), interval), interval);
            assert!(within <= READ_WITHIN + Duration::from_millis(1), "{interval:?}: {within:?}");
        }
        let hourly = Duration::from_secs(3600);
        assert_eq!(read_within(budget.rest(&"new".into(), hourly), hourly), hourly.mul_f64(1.1));
    }

    #[test]
    fn large_documents_share_what_small_ones_leave() {
        let budget = ReadBudget::default();
        let now = Instant::now();
        for number in 0..900 {
            budget.record(
                "shop",
                &Uid::from(&*format!("small {number}")),
                &read(20 << 10, Duration::ZERO),
                INTERVAL,
                now,
            );
        }
        for number in 0..100 {
            budget.record(
                "shop",
                &Uid::from(&*format!("large {number}")),
                &read(5 << 20, Duration::ZERO),
                INTERVAL,
                now,
            );
        }
        assert_eq!(budget.rest(&"small 7".into(), INTERVAL), Duration::from_secs(27));
        let rest = budget.rest(&"large 7".into(), INTERVAL);
        assert!(rest > MINUTE && rest < REST_MAX, "{rest:?}");
        let spent = 900.0 * 20.0 / 1024.0 / 0.45 + 100.0 * 5.0 / minutes(rest);
        assert!((506.0..=512.01).contains(&spent), "{spent} MiB a minute");
    }

    #[test]
    fn slow_server_gets_fewer_full_reads() {
        let budget = ReadBudget::default();
        let now = Instant::now();
        for number in 0..100 {
            budget.record("shop", &uid(number), &read(1000, Duration::from_secs(2)), INTERVAL, now);
        }
        let rest = budget.rest(&"7".into(), INTERVAL);
        // 200 s of requests at 120 s a minute.
        assert!(rest > Duration::from_secs(99) && rest < Duration::from_secs(101), "{rest:?}");
        let other = FullRead { origin: "https://other.test".parse().unwrap(), ..read(1000, Duration::ZERO) };
        budget.record("shop", &"other".into(), &other, INTERVAL, now);
        assert_eq!(budget.rest(&"other".into(), INTERVAL), Duration::from_secs(27), "another server is not affected");
    }

    #[test]
    fn reads_that_webhooks_cause_stay_within_budget() {
        let budget = ReadBudget::default();
        let now = Instant::now();
        assert_eq!(budget.webhook_rest(&"unknown".into()), Duration::ZERO);
        budget.record("shop", &"alone".into(), &read(20 << 10, Duration::from_millis(20)), INTERVAL, now);
        let rest = budget.webhook_rest(&"alone".into());
        assert!(rest <= Duration::from_millis(10), "a small document has no pause of its own: {rest:?}");
        for number in 0..9 {
            budget.record("shop", &uid(number), &read(64 << 20, Duration::ZERO), INTERVAL, now);
        }
        let elsewhere = FullRead { origin: "https://other.test".parse().unwrap(), ..read(64 << 20, Duration::ZERO) };
        budget.record("shop", &"elsewhere".into(), &elsewhere, INTERVAL, now);
        // Ten environments share the server, and each may take 51.2 MiB a minute.
        assert_eq!(budget.webhook_rest(&"7".into()), Duration::from_secs(75));
        assert_eq!(budget.webhook_rest(&"elsewhere".into()), Duration::from_millis(7_500));
        budget.record(
            "shop",
            &"slow".into(),
            &FullRead { origin: elsewhere.origin, ..read(1, Duration::from_secs(60)) },
            INTERVAL,
            now,
        );
        assert_eq!(budget.webhook_rest(&"slow".into()), MINUTE, "two environments share 120 s of requests");
    }

    #[test]
    fn fair_rate_follows_new_reads_within_a_second() {
        let budget = ReadBudget::default();
        let now = Instant::now();
        let large = read(60 << 20, Duration::ZERO);
        budget.record("shop", &"0".into(), &large, INTERVAL, now);
        assert_eq!(budget.rest(&"0".into(), INTERVAL), Duration::from_secs(27));
        for number in 1..100 {
            budget.record("shop", &uid(number), &large, INTERVAL, now + RATE_AGE / 2);
        }
        assert_eq!(
            budget.rest(&"0".into(), INTERVAL),
            Duration::from_secs(27),
            "the rate is not computed for each read"
        );
        budget.record("shop", &"100".into(), &large, INTERVAL, now + RATE_AGE);
        assert_eq!(budget.rest(&"0".into(), INTERVAL), REST_MAX);
    }

    #[test]
    fn rest_never_exceeds_ten_minutes_and_old_reads_do_not_count() {
        let budget = ReadBudget::default();
        let now = Instant::now();
        for number in 0..1000 {
            budget.record("shop", &uid(number), &read(60 << 20, Duration::ZERO), INTERVAL, now);
        }
        assert_eq!(budget.rest(&"7".into(), INTERVAL), REST_MAX);
        let later = now + FORGOTTEN;
        budget.record("shop", &"7".into(), &read(60 << 20, Duration::ZERO), INTERVAL, later);
        assert_eq!(budget.rest(&"7".into(), INTERVAL), Duration::from_secs(27), "the others are gone");
        assert_eq!(budget.0.lock().places.len(), 1);
        for number in 0..3 {
            let origin = format!("https://{number}.test").parse().unwrap();
            budget.record("shop", &"7".into(), &FullRead { origin, ..read(1, Duration::ZERO) }, INTERVAL, later);
        }
        budget.record("shop", &"7".into(), &read(1, Duration::ZERO), INTERVAL, later + MINUTE);
        assert_eq!(budget.0.lock().servers.len(), 1, "servers without demands are forgotten");
    }

    #[test]
    fn namespace_with_very_many_environments_slows_only_itself() {
        let budget = ReadBudget::default();
        let now = Instant::now();
        let small = read(20 << 10, Duration::from_millis(20));
        budget.record("shop", &"ours".into(), &small, INTERVAL, now);
        budget.record("shop", &"ours, too".into(), &small, INTERVAL, now);
        for number in 0..9_000 {
            budget.record("crowded", &uid(number), &read(20 << 10, Duration::from_millis(200)), INTERVAL, now);
        }
        budget.record("crowded", &uid(9_000), &small, INTERVAL, now + RATE_AGE);
        assert_eq!(budget.rest(&"ours".into(), INTERVAL), Duration::from_secs(27));
        // Two namespaces share the budget, and each of these environments has half of a part.
        assert_eq!(budget.webhook_rest(&"ours".into()).as_millis(), 40);
        assert_eq!(budget.webhook_rest(&"7".into()), REST_MAX);
        // 9,000 environments share 120 s of requests a minute, less what the other namespace takes.
        let rest = budget.rest(&"7".into(), INTERVAL);
        assert!(rest > REST_MAX.mul_f64(0.99), "{rest:?}");
    }

    #[test]
    fn namespaces_beyond_their_share_have_equal_shares() {
        let budget = ReadBudget::default();
        let now = Instant::now();
        let large = read(8 << 20, Duration::ZERO);
        for number in 0..64 {
            budget.record("one", &Uid::from(&*format!("one {number}")), &large, INTERVAL, now);
        }
        for number in 0..256 {
            budget.record("four", &Uid::from(&*format!("four {number}")), &large, INTERVAL, now);
        }
        // Each namespace has 256 MiB a minute.
        let near = |rest: Duration, seconds: f64| (rest.as_secs_f64() - seconds).abs() < 0.01;
        let (one, four) = (budget.rest(&"one 7".into(), INTERVAL), budget.rest(&"four 7".into(), INTERVAL));
        assert!(near(one, 120.0) && near(four, 480.0), "{one:?}, {four:?}");
    }

    #[test]
    fn deleted_environments_of_scope_are_forgotten() {
        let budget = ReadBudget::default();
        let now = Instant::now();
        let large = read(60 << 20, Duration::ZERO);
        for number in 0..100 {
            budget.record("shop", &uid(number), &large, INTERVAL, now);
        }
        budget.record("other", &"elsewhere".into(), &large, INTERVAL, now);
        assert_eq!(budget.rest(&"7".into(), INTERVAL), REST_MAX);
        budget.retain(Some("shop"), |uid| uid.as_str() == "7");
        assert_eq!(budget.rest(&"7".into(), INTERVAL), Duration::from_secs(27));
        assert_eq!(budget.0.lock().places.len(), 2, "another namespace is not in the scope");
        budget.retain(None, |uid| uid.as_str() == "7");
        assert_eq!(budget.0.lock().places.len(), 1);
        budget.retain(None, |_| false);
        assert!(budget.0.lock().servers.is_empty());
    }
}
