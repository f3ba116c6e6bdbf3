//! Admission of requests to servers: concurrency limits and circuit breakers. A dead, failing or slow server delays
//! only the environments that fetch from it, and each of them for a bounded time.
//!
//! Two circuits exist. A server's circuit opens for all namespaces when the server cannot be reached. The circuit of a
//! namespace at a server opens for that namespace only, after several HTTP 5xx answers in a row, so a namespace that
//! can provoke such answers does not affect others. After a pause, one request probes the server.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};

use super::origin::Origin;

/// Maximum number of concurrent fetches from all servers.
const ALL: usize = 32;
/// Maximum number of concurrent fetches from one server.
const EACH: usize = 8;
/// Maximum wait for admission. A fetch that is not admitted by then gives up its reconciliation's place to others.
const PATIENCE: Duration = Duration::from_secs(2);
/// Number of HTTP 5xx answers in a row to requests of one namespace that opens its circuit.
const ERRORS: u32 = 3;
/// First pause of an open circuit. Each further failure doubles it up to [`PAUSE_MAX`].
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(8);

#[derive(Default)]
pub(super) struct Turnstile {
    servers: Mutex<HashMap<Origin, Server>>,
    all: Places,
}

struct Places(Arc<Semaphore>);

impl Default for Places {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(ALL)))
    }
}

struct Server {
    places: Arc<Semaphore>,
    circuit: Circuit,
    /// Circuits of namespaces that received HTTP 5xx.
    namespaces: HashMap<String, Circuit>,
}

impl Default for Server {
    fn default() -> Self {
        Self { places: Arc::new(Semaphore::new(EACH)), circuit: Circuit::default(), namespaces: HashMap::new() }
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
    fn is_open(&self) -> Option<NotNow> {
        let (until, problem) = self.open.as_ref()?;
        let wait = until.checked_duration_since(Instant::now()).filter(|wait| !wait.is_zero())?;
        Some(NotNow::Closed { problem: problem.clone(), wait })
    }

    /// Admits the caller as the probe after a pause: for other callers the circuit stays open for another [`PAUSE`].
    fn try_for_all(&mut self) {
        if let Some((until, _)) = &mut self.open {
            *until = Instant::now() + PAUSE;
        }
    }

    /// Counts a failure. From the `borne`th failure in a row on, opens the circuit and returns the pause.
    fn fail(&mut self, borne: u32, problem: &str) -> Option<Duration> {
        self.failures = self.failures.saturating_add(1);
        let beyond = self.failures.checked_sub(borne)?;
        let pause = PAUSE.saturating_mul(1 << beyond.min(8)).min(PAUSE_MAX);
        self.open = Some((Instant::now() + pause, problem.to_owned()));
        Some(pause)
    }
}

/// Permit to send requests to a server, held while they run.
#[derive(Debug)]
pub(super) struct Turn {
    _places: [OwnedSemaphorePermit; 2],
}

/// Reason why a request is not admitted.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NotNow {
    /// A concurrency limit was reached for the whole of [`PATIENCE`].
    Busy,
    /// The circuit is open, because the server failed recently.
    Closed {
        /// Description of the last failure.
        problem: String,
        /// Remaining time until a request may probe the server.
        wait: Duration,
    },
}

impl Turnstile {
    /// Returns the reason if a circuit is open for this namespace. A caller can check it before it reads the key.
    pub(super) fn is_open(&self, origin: &Origin, namespace: &str) -> Option<NotNow> {
        let servers = self.servers.lock();
        let server = servers.get(origin)?;
        server.circuit.is_open().or_else(|| server.namespaces.get(namespace)?.is_open())
    }

    /// Waits up to [`PATIENCE`] for admission.
    ///
    /// # Errors
    /// A circuit is open, or a concurrency limit is reached.
    pub(super) async fn enter(&self, origin: &Origin, namespace: &str) -> Result<Turn, NotNow> {
        let places = {
            let mut servers = self.servers.lock();
            let server = servers.entry(origin.clone()).or_default();
            let mut circuits = [Some(&mut server.circuit), server.namespaces.get_mut(namespace)];
            if let Some(not_now) = circuits.iter().flatten().find_map(|circuit| circuit.is_open()) {
                return Err(not_now);
            }
            circuits.iter_mut().flatten().for_each(|circuit| circuit.try_for_all());
            Arc::clone(&server.places)
        };
        // The server's permit comes first, so that no request holds a permit of all servers while it waits for a slow
        // one.
        let turn = async {
            let one = places.acquire_owned().await.ok()?;
            let all = Arc::clone(&self.all.0).acquire_owned().await.ok()?;
            Some(Turn { _places: [one, all] })
        };
        tokio::time::timeout(PATIENCE, turn).await.ok().flatten().ok_or(NotNow::Busy)
    }

    /// Closes the circuits after an answer other than HTTP 5xx.
    pub(super) fn answered(&self, origin: &Origin, namespace: &str) {
        if let Some(server) = self.servers.lock().get_mut(origin) {
            server.circuit = Circuit::default();
            server.namespaces.remove(namespace);
        }
    }

    /// Records an HTTP 5xx answer. The server was reached, so its own circuit closes. Returns the pause if the
    /// namespace's circuit opens.
    pub(super) fn erred(&self, origin: &Origin, namespace: &str, problem: &str) -> Option<Duration> {
        let mut servers = self.servers.lock();
        let server = servers.entry(origin.clone()).or_default();
        server.circuit = Circuit::default();
        server.namespaces.entry(namespace.to_owned()).or_default().fail(ERRORS, problem)
    }

    /// Records a failed connection. Returns the pause of the server's circuit.
    pub(super) fn missed(&self, origin: &Origin, problem: &str) -> Option<Duration> {
        self.servers.lock().entry(origin.clone()).or_default().circuit.fail(1, problem)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(name: &str) -> Origin {
        format!("https://{name}.test").parse().unwrap()
    }

    fn is_closed(entered: &Result<Turn, NotNow>) -> bool {
        matches!(entered, Err(NotNow::Closed { .. }))
    }

    #[tokio::test(start_paused = true)]
    async fn slow_server_delays_no_other_server() {
        let turnstile = Turnstile::default();
        let mut turns = Vec::new();
        for _ in 0..EACH {
            turns.push(turnstile.enter(&origin("slow"), "shop").await.unwrap());
        }
        assert_eq!(turnstile.enter(&origin("slow"), "shop").await.unwrap_err(), NotNow::Busy);
        assert!(turnstile.enter(&origin("other"), "shop").await.is_ok());
        turns.pop();
        assert!(turnstile.enter(&origin("slow"), "shop").await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn unreachable_server_gets_one_attempt_at_a_time_from_all_namespaces() {
        let turnstile = Turnstile::default();
        turnstile.missed(&origin("dead"), "connection refused");
        let Err(NotNow::Closed { problem, wait }) = turnstile.enter(&origin("dead"), "shop").await else { panic!() };
        assert_eq!((problem.as_str(), wait), ("connection refused", PAUSE));
        assert!(turnstile.enter(&origin("other"), "shop").await.is_ok());
        tokio::time::advance(PAUSE).await;
        assert!(turnstile.is_open(&origin("dead"), "shop").is_none());
        assert!(turnstile.enter(&origin("dead"), "shop").await.is_ok());
        assert!(is_closed(&turnstile.enter(&origin("dead"), "bank").await));
        turnstile.answered(&origin("dead"), "shop");
        assert!(turnstile.enter(&origin("dead"), "bank").await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn consecutive_errors_open_circuit_of_that_namespace_only() {
        let turnstile = Turnstile::default();
        let ill = origin("ill");
        for _ in 0..5 {
            assert_eq!(turnstile.erred(&ill, "shop", "HTTP 500"), None);
            assert_eq!(turnstile.erred(&ill, "shop", "HTTP 500"), None);
            turnstile.answered(&ill, "shop");
        }
        for _ in 1..ERRORS {
            assert_eq!(turnstile.erred(&ill, "shop", "HTTP 500"), None);
        }
        assert!(turnstile.enter(&ill, "shop").await.is_ok());
        assert_eq!(turnstile.erred(&ill, "shop", "HTTP 500"), Some(PAUSE));
        assert!(is_closed(&turnstile.enter(&ill, "shop").await));
        assert!(turnstile.enter(&ill, "bank").await.is_ok(), "nobody else is held up");
        tokio::time::advance(PAUSE).await;
        assert!(turnstile.enter(&ill, "shop").await.is_ok());
        assert!(is_closed(&turnstile.enter(&ill, "shop").await), "one tries for all");
        assert_eq!(turnstile.erred(&ill, "shop", "HTTP 500"), Some(PAUSE * 2));
    }

    #[tokio::test(start_paused = true)]
    async fn circuit_pauses_grow_to_a_limit() {
        let turnstile = Turnstile::default();
        let pauses: Vec<u64> = (0..20).map(|_| turnstile.missed(&origin("dead"), "").unwrap().as_secs()).collect();
        assert_eq!(pauses[..5], [1, 2, 4, 8, 8]);
        assert_eq!(pauses.last(), Some(&PAUSE_MAX.as_secs()));
        tokio::time::advance(PAUSE_MAX).await;
        assert!(turnstile.enter(&origin("dead"), "shop").await.is_ok());
    }
}
