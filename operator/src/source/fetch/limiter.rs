//! Admission of requests to servers: concurrency limits and circuit breakers. A dead, failing or slow server delays
//! only the environments that fetch from it, and each of them for a bounded time.
//!
//! Two circuits exist. A server's circuit opens for all namespaces when the server cannot be reached. The circuit of a
//! namespace at a server opens for that namespace only, after several HTTP 5xx answers in a row, so a namespace that
//! can provoke such answers does not affect others. After a pause, one request probes the server.

use std::{collections::HashMap, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::origin::Origin;
use crate::{
    fair_semaphore::{FairSemaphore, Permit},
    source::back_off::ceiling,
};

/// Maximum number of concurrent fetches from all servers. A namespace has at most half of them: a server that sends as
/// slowly as it may occupies them for minutes.
const REQUESTS_MAX: usize = 32;
/// Maximum number of concurrent fetches from one server. A namespace has at most half of them.
const REQUESTS_PER_SERVER_MAX: usize = 16;
/// Maximum wait for admission. A fetch that is not admitted by then gives up its reconciliation's place to others.
const PERMIT_TIMEOUT: Duration = Duration::from_secs(2);
/// Number of HTTP 5xx answers in a row to requests of one namespace that opens its circuit.
const ERRORS_TO_OPEN: u32 = 3;
/// First pause of an open circuit. Each further failure doubles it up to [`PAUSE_MAX`].
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(8);

#[derive(Default)]
pub(super) struct RequestLimiter {
    servers: Mutex<HashMap<Origin, Server>>,
    all: Permits,
}

struct Permits(FairSemaphore);

impl Default for Permits {
    fn default() -> Self {
        Self(FairSemaphore::sparing(REQUESTS_MAX))
    }
}

struct Server {
    permits: FairSemaphore,
    circuit: Circuit,
    /// Circuits of namespaces that received HTTP 5xx.
    namespaces: HashMap<String, Circuit>,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            permits: FairSemaphore::sparing(REQUESTS_PER_SERVER_MAX),
            circuit: Circuit::default(),
            namespaces: HashMap::new(),
        }
    }
}

#[derive(Default)]
struct Circuit {
    /// Number of failures in a row.
    failures: u32,
    /// End of the pause, and the problem that opened the circuit.
    open: Option<(Instant, String)>,
}

impl Circuit {
    fn rejection(&self) -> Option<Rejection> {
        let (until, problem) = self.open.as_ref()?;
        let wait = until.checked_duration_since(Instant::now()).filter(|wait| !wait.is_zero())?;
        Some(Rejection::CircuitOpen { problem: problem.clone(), wait })
    }

    /// Admits the caller as the probe after a pause: for other callers the circuit stays open for another [`PAUSE`].
    fn start_trial(&mut self) {
        if let Some((until, _)) = &mut self.open {
            *until = Instant::now() + PAUSE;
        }
    }

    /// Counts a failure. From the `tolerated`th failure in a row on, opens the circuit and returns the pause.
    fn fail(&mut self, tolerated: u32, problem: &str) -> Option<Duration> {
        self.failures = self.failures.saturating_add(1);
        let beyond = self.failures.checked_sub(tolerated)?;
        let pause = ceiling(PAUSE, PAUSE_MAX, beyond);
        self.open = Some((Instant::now() + pause, problem.to_owned()));
        Some(pause)
    }
}

/// Permit to send requests to a server, held while they run.
#[derive(Debug)]
pub(super) struct RequestPermit {
    _permits: [Permit; 2],
}

/// Reason why a request is not admitted.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Rejection {
    /// A concurrency limit was reached for the whole of [`PERMIT_TIMEOUT`].
    Busy,
    /// The circuit is open, because the server failed recently.
    CircuitOpen {
        /// Description of the last failure.
        problem: String,
        /// Remaining time until a request may probe the server.
        wait: Duration,
    },
}

impl RequestLimiter {
    /// Returns the reason if a circuit is open for this namespace. A caller can check it before it reads the key.
    pub(super) fn rejection(&self, origin: &Origin, namespace: &str) -> Option<Rejection> {
        let servers = self.servers.lock();
        let server = servers.get(origin)?;
        server.circuit.rejection().or_else(|| server.namespaces.get(namespace)?.rejection())
    }

    /// Waits up to [`PERMIT_TIMEOUT`] for admission.
    ///
    /// # Errors
    /// A circuit is open, or a concurrency limit is reached.
    pub(super) async fn acquire(&self, origin: &Origin, namespace: &str) -> Result<RequestPermit, Rejection> {
        let permits = {
            let mut servers = self.servers.lock();
            let server = servers.entry(origin.clone()).or_default();
            let mut circuits = [Some(&mut server.circuit), server.namespaces.get_mut(namespace)];
            if let Some(rejection) = circuits.iter().flatten().find_map(|circuit| circuit.rejection()) {
                return Err(rejection);
            }
            circuits.iter_mut().flatten().for_each(|circuit| circuit.start_trial());
            server.permits.clone()
        };
        // The server's permit comes first, so that no request holds a permit of all servers while it waits for a slow
        // one.
        let permit = async {
            let one = permits.acquire(namespace).await;
            let all = self.all.0.acquire(namespace).await;
            RequestPermit { _permits: [one, all] }
        };
        tokio::time::timeout(PERMIT_TIMEOUT, permit).await.map_err(|_| Rejection::Busy)
    }

    /// Closes the circuits after any other outcome: an answer, or a failure that does not show that the server is down, such
    /// as a certificate that is not trusted.
    pub(super) fn record_answer(&self, origin: &Origin, namespace: &str) {
        if let Some(server) = self.servers.lock().get_mut(origin) {
            server.circuit = Circuit::default();
            server.namespaces.remove(namespace);
        }
    }

    /// Records an HTTP 5xx answer. The server was reached, so its own circuit closes. Returns the pause if the
    /// namespace's circuit opens.
    pub(super) fn record_error(&self, origin: &Origin, namespace: &str, problem: &str) -> Option<Duration> {
        let mut servers = self.servers.lock();
        let server = servers.entry(origin.clone()).or_default();
        server.circuit = Circuit::default();
        server.namespaces.entry(namespace.to_owned()).or_default().fail(ERRORS_TO_OPEN, problem)
    }

    /// Forgets the circuits of the namespaces for which `exists` returns false.
    pub(super) fn retain(&self, exists: impl Fn(&str) -> bool) {
        for server in self.servers.lock().values_mut() {
            server.namespaces.retain(|namespace, _| exists(namespace));
        }
    }

    /// Records a failed connection. Returns the pause of the server's circuit.
    pub(super) fn record_unreachable(&self, origin: &Origin, problem: &str) -> Option<Duration> {
        self.servers.lock().entry(origin.clone()).or_default().circuit.fail(1, problem)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(name: &str) -> Origin {
        format!("https://{name}.test").parse().unwrap()
    }

    fn is_rejected(entered: &Result<RequestPermit, Rejection>) -> bool {
        matches!(entered, Err(Rejection::CircuitOpen { .. }))
    }

    #[test]
    fn circuits_of_deleted_namespaces_are_forgotten() {
        let limiter = RequestLimiter::default();
        for number in 0..1_000 {
            limiter.record_error(&origin("down"), &format!("preview-{number}"), "HTTP 500");
        }
        limiter.retain(|namespace| namespace == "preview-7");
        let servers = limiter.servers.lock();
        assert_eq!(servers[&origin("down")].namespaces.keys().collect::<Vec<_>>(), ["preview-7"]);
    }

    #[tokio::test(start_paused = true)]
    async fn slow_server_delays_no_other_server() {
        let limiter = RequestLimiter::default();
        let mut permits = Vec::new();
        for _ in 0..REQUESTS_PER_SERVER_MAX / 2 {
            permits.push(limiter.acquire(&origin("slow"), "shop").await.unwrap());
        }
        assert_eq!(limiter.acquire(&origin("slow"), "shop").await.unwrap_err(), Rejection::Busy);
        assert!(limiter.acquire(&origin("other"), "shop").await.is_ok());
        permits.pop();
        assert!(limiter.acquire(&origin("slow"), "shop").await.is_ok());
    }

    /// Two namespaces have requests that no server answers, to one server each and to a common one.
    #[tokio::test(start_paused = true)]
    async fn namespaces_with_slow_servers_delay_no_request_of_another() {
        let limiter = RequestLimiter::default();
        let mut permits = Vec::new();
        for namespace in ["one", "two"] {
            for server in ["common", namespace] {
                while let Ok(permit) = limiter.acquire(&origin(server), namespace).await {
                    permits.push(permit);
                }
            }
        }
        assert!(permits.len() >= REQUESTS_MAX * 3 / 4, "{} requests", permits.len());
        let began = Instant::now();
        for server in ["common", "other"] {
            permits.push(limiter.acquire(&origin(server), "shop").await.unwrap());
        }
        assert_eq!(began.elapsed(), Duration::ZERO, "they do not wait");
    }

    #[tokio::test(start_paused = true)]
    async fn unreachable_server_gets_one_attempt_at_a_time_from_all_namespaces() {
        let limiter = RequestLimiter::default();
        limiter.record_unreachable(&origin("dead"), "connection refused");
        let Err(Rejection::CircuitOpen { problem, wait }) = limiter.acquire(&origin("dead"), "shop").await else {
            panic!()
        };
        assert_eq!((problem.as_str(), wait), ("connection refused", PAUSE));
        assert!(limiter.acquire(&origin("other"), "shop").await.is_ok());
        tokio::time::advance(PAUSE).await;
        assert!(limiter.rejection(&origin("dead"), "shop").is_none());
        assert!(limiter.acquire(&origin("dead"), "shop").await.is_ok());
        assert!(is_rejected(&limiter.acquire(&origin("dead"), "bank").await));
        limiter.record_answer(&origin("dead"), "shop");
        assert!(limiter.acquire(&origin("dead"), "bank").await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn consecutive_errors_open_circuit_of_that_namespace_only() {
        let limiter = RequestLimiter::default();
        let ill = origin("ill");
        for _ in 0..5 {
            assert_eq!(limiter.record_error(&ill, "shop", "HTTP 500"), None);
            assert_eq!(limiter.record_error(&ill, "shop", "HTTP 500"), None);
            limiter.record_answer(&ill, "shop");
        }
        for _ in 1..ERRORS_TO_OPEN {
            assert_eq!(limiter.record_error(&ill, "shop", "HTTP 500"), None);
        }
        assert!(limiter.acquire(&ill, "shop").await.is_ok());
        assert_eq!(limiter.record_error(&ill, "shop", "HTTP 500"), Some(PAUSE));
        assert!(is_rejected(&limiter.acquire(&ill, "shop").await));
        assert!(limiter.acquire(&ill, "bank").await.is_ok(), "another namespace is not affected");
        tokio::time::advance(PAUSE).await;
        assert!(limiter.acquire(&ill, "shop").await.is_ok());
        assert!(is_rejected(&limiter.acquire(&ill, "shop").await), "one request at a time tries the server");
        assert_eq!(limiter.record_error(&ill, "shop", "HTTP 500"), Some(PAUSE * 2));
    }

    #[tokio::test(start_paused = true)]
    async fn circuit_pauses_grow_to_a_limit() {
        let limiter = RequestLimiter::default();
        let pauses: Vec<u64> =
            (0..20).map(|_| limiter.record_unreachable(&origin("dead"), "").unwrap().as_secs()).collect();
        assert_eq!(pauses[..5], [1, 2, 4, 8, 8]);
        assert_eq!(pauses.last(), Some(&PAUSE_MAX.as_secs()));
        tokio::time::advance(PAUSE_MAX).await;
        assert!(limiter.acquire(&origin("dead"), "shop").await.is_ok());
    }
}
