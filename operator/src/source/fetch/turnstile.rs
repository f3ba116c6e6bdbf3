//! Who may ask a server now. One that is dead, ill or slow holds up nobody but those who ask it, and those not for long.
//!
//! Two circuits decide. That of a server opens when it cannot be reached, for everybody. That of a namespace at a server opens
//! when the server answers that namespace with HTTP 5xx several times in a row, and for that namespace only: whoever can make a
//! server answer so holds up nobody else. After a pause, one request tries for all.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};

use super::origin::Origin;

/// Fetches from all servers at one time.
const ALL: usize = 32;
/// Fetches from one server at one time.
const EACH: usize = 8;
/// How long one waits for its turn before it gives others theirs.
const PATIENCE: Duration = Duration::from_secs(2);
/// Answers with HTTP 5xx in a row, to requests of one namespace, after which it leaves the server alone.
const ERRORS: u32 = 3;
/// A server is left alone for this long, doubling up to the most.
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
    /// Of namespaces that were answered with errors.
    namespaces: HashMap<String, Circuit>,
}

impl Default for Server {
    fn default() -> Self {
        Self { places: Arc::new(Semaphore::new(EACH)), circuit: Circuit::default(), namespaces: HashMap::new() }
    }
}

#[derive(Default)]
struct Circuit {
    /// Failures in a row.
    failures: u32,
    /// Until when nobody asks, and why.
    open: Option<(Instant, String)>,
}

impl Circuit {
    fn is_open(&self) -> Option<NotNow> {
        let (until, problem) = self.open.as_ref()?;
        let wait = until.checked_duration_since(Instant::now()).filter(|wait| !wait.is_zero())?;
        Some(NotNow::Closed { problem: problem.clone(), wait })
    }

    /// The first to come after the pause tries for all: the others still find it open.
    fn try_for_all(&mut self) {
        if let Some((until, _)) = &mut self.open {
            *until = Instant::now() + PAUSE;
        }
    }

    /// Returns the pause, from as many failures in a row on as are borne.
    fn fail(&mut self, borne: u32, problem: &str) -> Option<Duration> {
        self.failures = self.failures.saturating_add(1);
        let beyond = self.failures.checked_sub(borne)?;
        let pause = PAUSE.saturating_mul(1 << beyond.min(8)).min(PAUSE_MAX);
        self.open = Some((Instant::now() + pause, problem.to_owned()));
        Some(pause)
    }
}

/// Held while a server is asked.
#[derive(Debug)]
pub(super) struct Turn {
    _places: [OwnedSemaphorePermit; 2],
}

/// Why it is nobody's turn.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NotNow {
    /// Others are before.
    Busy,
    /// The server failed a moment ago.
    Closed {
        /// In which way.
        problem: String,
        /// How long it is left alone from now on.
        wait: Duration,
    },
}

impl Turnstile {
    /// Why this namespace leaves the server alone, if it does. Whoever waits for nothing else need not read its key.
    pub(super) fn is_open(&self, origin: &Origin, namespace: &str) -> Option<NotNow> {
        let servers = self.lock();
        let server = servers.get(origin)?;
        server.circuit.is_open().or_else(|| server.namespaces.get(namespace)?.is_open())
    }

    /// Waits for a turn, for a while.
    pub(super) async fn enter(&self, origin: &Origin, namespace: &str) -> Result<Turn, NotNow> {
        let places = {
            let mut servers = self.lock();
            let server = servers.entry(origin.clone()).or_default();
            let mut circuits = [Some(&mut server.circuit), server.namespaces.get_mut(namespace)];
            if let Some(not_now) = circuits.iter().flatten().find_map(|circuit| circuit.is_open()) {
                return Err(not_now);
            }
            circuits.iter_mut().flatten().for_each(|circuit| circuit.try_for_all());
            Arc::clone(&server.places)
        };
        // First those of this server, so that nobody waits with a place in hand that others could use.
        let turn = async {
            let one = places.acquire_owned().await.ok()?;
            let all = Arc::clone(&self.all.0).acquire_owned().await.ok()?;
            Some(Turn { _places: [one, all] })
        };
        tokio::time::timeout(PATIENCE, turn).await.ok().flatten().ok_or(NotNow::Busy)
    }

    /// The server answered with something else than an error of its own.
    pub(super) fn answered(&self, origin: &Origin, namespace: &str) {
        if let Some(server) = self.lock().get_mut(origin) {
            server.circuit = Circuit::default();
            server.namespaces.remove(namespace);
        }
    }

    /// The server answered with an error of its own; returns how long the namespace leaves it alone.
    pub(super) fn erred(&self, origin: &Origin, namespace: &str, problem: &str) -> Option<Duration> {
        let mut servers = self.lock();
        let server = servers.entry(origin.clone()).or_default();
        server.circuit = Circuit::default();
        server.namespaces.entry(namespace.to_owned()).or_default().fail(ERRORS, problem)
    }

    /// The server could not be reached; returns how long everybody leaves it alone.
    pub(super) fn missed(&self, origin: &Origin, problem: &str) -> Option<Duration> {
        self.lock().entry(origin.clone()).or_default().circuit.fail(1, problem)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Origin, Server>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
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
    async fn a_slow_server_holds_up_itself_only() {
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
    async fn server_that_cannot_be_reached_is_tried_by_one_of_all_namespaces_at_a_time() {
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
    async fn server_that_errs_several_times_in_a_row_is_left_alone_by_that_namespace_only() {
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
    async fn pauses_grow_and_end() {
        let turnstile = Turnstile::default();
        let pauses: Vec<u64> = (0..20).map(|_| turnstile.missed(&origin("dead"), "").unwrap().as_secs()).collect();
        assert_eq!(pauses[..5], [1, 2, 4, 8, 8]);
        assert_eq!(pauses.last(), Some(&PAUSE_MAX.as_secs()));
        tokio::time::advance(PAUSE_MAX).await;
        assert!(turnstile.enter(&origin("dead"), "shop").await.is_ok());
    }
}
