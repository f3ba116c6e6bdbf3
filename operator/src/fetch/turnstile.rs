//! Who may ask a server now. One that is dead or slow holds up nobody but those who ask it, and those not for long.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::origin::Origin;

/// Fetches from all servers at one time.
const ALL: usize = 32;
/// Fetches from one server at one time.
const EACH: usize = 8;
/// How long one waits for its turn before it gives others theirs.
const PATIENCE: Duration = Duration::from_secs(2);
/// A server that could not be reached is left alone for this long, doubling up to the most.
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
    /// Times in a row that it could not be reached.
    failures: u32,
    /// Until when it is left alone, and why.
    closed: Option<(Instant, String)>,
}

impl Default for Server {
    fn default() -> Self {
        Self { places: Arc::new(Semaphore::new(EACH)), failures: 0, closed: None }
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
    /// The server could not be reached a moment ago.
    Closed(String),
}

impl Turnstile {
    /// Waits for a turn, for a while.
    pub(super) async fn enter(&self, origin: &Origin) -> Result<Turn, NotNow> {
        let places = {
            let mut servers = self.lock();
            let server = servers.entry(origin.clone()).or_default();
            match &server.closed {
                Some((until, problem)) if Instant::now() < *until => return Err(NotNow::Closed(problem.clone())),
                // The first to come after the pause tries for all: the others still find it closed.
                Some((_, problem)) => server.closed = Some((Instant::now() + PAUSE, problem.clone())),
                None => {}
            }
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

    /// The server answered, whatever it said.
    pub(super) fn reached(&self, origin: &Origin) {
        if let Some(server) = self.lock().get_mut(origin) {
            server.failures = 0;
            server.closed = None;
        }
    }

    /// The server could not be reached.
    pub(super) fn missed(&self, origin: &Origin, problem: &str) {
        let mut servers = self.lock();
        let server = servers.entry(origin.clone()).or_default();
        let pause = PAUSE.saturating_mul(1 << server.failures.min(8)).min(PAUSE_MAX);
        server.failures = server.failures.saturating_add(1);
        server.closed = Some((Instant::now() + pause, problem.to_owned()));
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

    #[tokio::test(start_paused = true)]
    async fn a_slow_server_holds_up_itself_only() {
        let turnstile = Turnstile::default();
        let mut turns = Vec::new();
        for _ in 0..EACH {
            turns.push(turnstile.enter(&origin("slow")).await.unwrap());
        }
        assert_eq!(turnstile.enter(&origin("slow")).await.unwrap_err(), NotNow::Busy);
        assert!(turnstile.enter(&origin("other")).await.is_ok());
        turns.pop();
        assert!(turnstile.enter(&origin("slow")).await.is_ok());
    }

    #[tokio::test]
    async fn a_server_that_cannot_be_reached_is_tried_by_one_at_a_time() {
        let turnstile = Turnstile::default();
        turnstile.missed(&origin("dead"), "connection refused");
        let closed = NotNow::Closed("connection refused".to_owned());
        assert_eq!(turnstile.enter(&origin("dead")).await.unwrap_err(), closed);
        assert!(turnstile.enter(&origin("other")).await.is_ok());
        // As if the pause were over.
        turnstile.lock().get_mut(&origin("dead")).unwrap().closed =
            Some((Instant::now(), "connection refused".to_owned()));
        assert!(turnstile.enter(&origin("dead")).await.is_ok());
        assert_eq!(turnstile.enter(&origin("dead")).await.unwrap_err(), closed);
        turnstile.reached(&origin("dead"));
        assert!(turnstile.enter(&origin("dead")).await.is_ok());
    }

    #[test]
    fn pauses_grow_and_end() {
        let turnstile = Turnstile::default();
        let left = || turnstile.lock()[&origin("dead")].closed.as_ref().unwrap().0.duration_since(Instant::now());
        turnstile.missed(&origin("dead"), "");
        assert!(left() <= PAUSE);
        for _ in 0..20 {
            turnstile.missed(&origin("dead"), "");
        }
        assert!(left() > PAUSE_MAX / 2 && left() <= PAUSE_MAX);
    }
}
