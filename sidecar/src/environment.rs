//! What is served at this moment, and for whom.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use arc_swap::{ArcSwapOption, Guard};
use bytes::Bytes;
use remora_snapshot::{Role, Snapshot};
use tokio::sync::watch;

use crate::analytics::Uses;
use crate::budget::InFlight;
use crate::clock::Utc;
use crate::cors::Cors;
use crate::document::{Document, Inflating};
use crate::map::Region;
use crate::metrics::{Evaluations, Reloads, Requests};
use crate::overrun::Overruns;
use crate::stream::{Change, Streams};

/// A snapshot that is served.
pub(crate) struct Loaded {
    pub(crate) snapshot: Snapshot<Region>,
    /// The file that the whole answers are parts of.
    pub(crate) core: Region,
    /// Stands for all bytes that are served, overrides files included.
    pub(crate) state: u64,
    /// When it was taken up.
    pub(crate) since: SystemTime,
    /// The environment's document, where it is served.
    pub(crate) document: Option<Arc<Document>>,
    /// Whether nothing more is to be waited for: what the core tells of is here, if only of an earlier revision, or is not named
    /// by the volume. Objects are no transaction: a kubelet may have seen some of them.
    pub(crate) complete: bool,
    /// Whether the files are mapped where kubelet put them, not copied.
    pub(crate) in_place: bool,
    /// The sizes of the core, of all overrides files, and of the document's.
    pub(crate) sizes: [usize; 3],
}

/// What the volume says about itself beside the snapshot.
#[derive(Debug, Default)]
pub(crate) struct Expectation {
    /// Seconds since 1970 when the revision in the marker file first was another than the one that is
    /// served; zero while they agree, or while there is no marker.
    pub(crate) stale_since: AtomicU64,
}

/// One environment that this process was told to serve.
pub(crate) struct Environment {
    pub(crate) name: String,
    pub(crate) loaded: ArcSwapOption<Loaded>,
    pub(crate) expectation: Expectation,
    pub(crate) changes: watch::Sender<Change>,
    pub(crate) reloads: Reloads,
    pub(crate) evaluations: Evaluations,
    pub(crate) overruns: Overruns,
    pub(crate) uses: Uses,
}

impl Environment {
    /// One that has nothing to serve yet.
    pub(crate) fn new(name: String) -> Environment {
        Environment {
            name,
            loaded: ArcSwapOption::empty(),
            expectation: Expectation::default(),
            changes: watch::Sender::default(),
            reloads: Reloads::default(),
            evaluations: Evaluations::default(),
            overruns: Overruns::default(),
            uses: Uses::default(),
        }
    }
}

/// A snapshot that stays as long as this is held.
pub(crate) type Serving = Guard<Option<Arc<Loaded>>>;

/// What a key gives access to.
pub(crate) enum Access<'a> {
    /// To the environment that is served, in this role.
    Granted(&'a Environment, Serving, Role),
    /// Perhaps to something, but it is not loaded yet.
    NotLoaded,
    /// To nothing.
    Denied,
}

/// All that requests are answered from.
pub(crate) struct State {
    pub(crate) environments: Vec<Environment>,
    pub(crate) requests: Requests,
    pub(crate) streams: Streams,
    pub(crate) inflating: Inflating,
    pub(crate) in_flight: InFlight,
    pub(crate) cors: Cors,
    pub(crate) started: Instant,
    /// After this long, `/startupz` lets the application start without all data.
    pub(crate) patience: Duration,
    /// The process ends: connections are closed with their next answer.
    pub(crate) draining: AtomicBool,
    /// The answer of the health paths while everything is loaded.
    health: ArcSwapOption<Bytes>,
}

impl State {
    /// Nothing loaded.
    pub(crate) fn new(names: impl IntoIterator<Item = String>, patience: Duration, cors: Cors) -> State {
        State {
            environments: names.into_iter().map(Environment::new).collect(),
            requests: Requests::default(),
            streams: Streams::default(),
            inflating: Inflating::default(),
            in_flight: InFlight::default(),
            cors,
            started: Instant::now(),
            patience,
            draining: AtomicBool::new(false),
            health: ArcSwapOption::empty(),
        }
    }

    /// Which environment a key opens.
    pub(crate) fn access(&self, key: &[u8]) -> Access<'_> {
        let mut missing = false;
        for environment in &self.environments {
            let serving = environment.loaded.load();
            match serving.as_ref().map(|loaded| loaded.snapshot.role_of(key)) {
                Some(Some(role)) => return Access::Granted(environment, serving, role),
                Some(None) => {}
                None => missing = true,
            }
        }
        // Its keys come with an environment, so a key is unknown only when all of them are there.
        if missing { Access::NotLoaded } else { Access::Denied }
    }

    /// What a request without a key gets where none is needed: the only environment there is, as a
    /// client sees it.
    pub(crate) fn access_without_key(&self) -> Access<'_> {
        match self.environments.as_slice() {
            [only] => {
                let serving = only.loaded.load();
                if serving.is_some() { Access::Granted(only, serving, Role::Client) } else { Access::NotLoaded }
            }
            _ => Access::Denied,
        }
    }

    /// The environment of this name.
    pub(crate) fn named(&self, name: &str) -> Option<&Environment> {
        self.environments.iter().find(|environment| environment.name == name)
    }

    /// Whether every environment has been loaded once.
    pub(crate) fn is_ready(&self) -> bool {
        self.environments.iter().all(|environment| environment.loaded.load().is_some())
    }

    /// Whether every environment has been loaded, and for none there is more to be waited for.
    pub(crate) fn is_complete(&self) -> bool {
        self.environments.iter().all(|environment| environment.loaded.load().as_ref().is_some_and(|it| it.complete))
    }

    /// Whether the process is about to end.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// The health answer, if everything is loaded.
    pub(crate) fn health(&self) -> Option<Bytes> {
        self.health.load().as_deref().cloned()
    }

    /// Writes the health answer anew; after every change of what is served.
    pub(crate) fn prepare_health(&self) {
        let mut latest = None;
        for environment in &self.environments {
            match environment.loaded.load().as_ref() {
                Some(loaded) => latest = latest.max(Some(loaded.since)),
                None => return,
            }
        }
        if let Some(latest) = latest {
            let text = format!(r#"{{"status":"ok","reason":null,"last_successful_update":"{}"}}"#, Utc(latest));
            self.health.store(Some(Arc::new(Bytes::from(text.into_bytes()))));
        }
    }
}
