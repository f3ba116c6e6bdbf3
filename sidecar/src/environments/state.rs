//! Environments, the data that each serves at the moment, and access to them by key.

use std::hash::{BuildHasher as _, DefaultHasher, Hash as _, Hasher as _, RandomState};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use http::HeaderValue;
use remora_snapshot::{FlagOverride, Role, Snapshot};
use tokio::sync::watch;

use super::document::{Document, InflateSlots};
use super::stream::{Change, Streams};
use crate::clock::Utc;
use crate::counters::latency::Latency;
use crate::counters::overruns::Overruns;
use crate::counters::reloads::Reloads;
use crate::counters::requests::{Evaluations, Requests};
use crate::counters::uses::{Generation, Uses};
use crate::http::budget::InFlight;
use crate::http::cors::Cors;
use crate::http::shared_page::SharedPage;
use crate::routes;
use crate::volume::Region;

/// A snapshot that is served, and its files. A clone shares the files.
#[derive(Clone)]
pub(crate) struct Loaded {
    pub(crate) snapshot: Snapshot<Region>,
    /// The core, which contains complete answers.
    pub(crate) core: Region,
    /// The end of every bulk answer of OFREP.
    pub(crate) ofrep_end: Box<[u8]>,
    /// Hash of all bytes that are served, overrides files included.
    pub(crate) content_hash: u64,
    /// Time since which this content is served.
    pub(crate) since: SystemTime,
    /// The environment's document, if it is served.
    pub(crate) document: Option<Arc<Document>>,
    /// True if nothing is missing: every object that the core file refers to is loaded, possibly from an earlier
    /// revision, or the volume does not name it. Objects are not written in one transaction, so kubelet may have seen
    /// only some of them.
    pub(crate) complete: bool,
    /// True if the files are mapped where kubelet wrote them, false if they were copied.
    pub(crate) in_place: bool,
    pub(crate) sizes: Sizes,
    /// Value of the header that names the overridden flags. `None` if the environment has none.
    pub(crate) overridden: Option<HeaderValue>,
    /// Generation of the snapshot, which says to which numbers of features the counted uses belong.
    pub(crate) generation: Generation,
}

impl Loaded {
    /// Largest length in bytes of the list of overridden flags. Further names are left out, and `...` follows.
    const MAX_OVERRIDDEN: usize = 1000;

    /// Returns this with overridden flags.
    pub(super) fn overriding(mut self, overrides: &[FlagOverride]) -> Loaded {
        self.snapshot.override_flags(overrides);
        // Entity tags follow from this hash, and clients may keep answers of an earlier process of the pod.
        let mut hasher = DefaultHasher::new();
        (self.content_hash, overrides).hash(&mut hasher);
        self.content_hash = hasher.finish();
        let mut list = String::new();
        for flag in self.snapshot.overridden_flags() {
            let name = routes::encode(flag);
            if list.len() + name.len() > Self::MAX_OVERRIDDEN {
                list.push_str("...,");
                break;
            }
            list.push_str(&name);
            list.push(',');
        }
        list.pop();
        self.overridden = HeaderValue::try_from(list).ok().filter(|list| !list.is_empty());
        self
    }
}

/// Sizes of loaded files in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) core: usize,
    /// All overrides files together.
    pub(crate) overrides: usize,
    /// All files of the document together.
    pub(crate) document: usize,
}

/// An environment that this process serves.
pub(crate) struct Environment {
    pub(crate) name: String,
    pub(crate) loaded: ArcSwapOption<Loaded>,
    /// Second since 1970 at which the revision that the volume's marker file announces first differed from the one that is
    /// served. Zero while they agree, or while there is no marker.
    pub(crate) stale_since: AtomicU64,
    pub(crate) changes: watch::Sender<Change>,
    pub(crate) reloads: Reloads,
    pub(crate) evaluations: Evaluations,
    pub(crate) overruns: Overruns,
    pub(crate) uses: Uses,
    /// The page of the admin port with the uses.
    pub(crate) uses_page: SharedPage,
    /// Flags that this process answers with another state or value, in all requests.
    pub(super) overrides: Arc<[FlagOverride]>,
}

impl Environment {
    /// Creates an environment without a snapshot.
    pub(crate) fn new(name: String, overrides: Arc<[FlagOverride]>) -> Environment {
        Environment {
            name,
            loaded: ArcSwapOption::empty(),
            stale_since: AtomicU64::default(),
            changes: watch::Sender::default(),
            reloads: Reloads::default(),
            evaluations: Evaluations::default(),
            overruns: Overruns::default(),
            uses: Uses::default(),
            uses_page: SharedPage::default(),
            overrides,
        }
    }

    /// Returns what is served with the overrides of one request. An override of the request replaces the pod's override of
    /// the same flag.
    pub(crate) fn with_overrides(&self, loaded: &Loaded, mut overrides: Vec<FlagOverride>) -> Loaded {
        let is_replaced = |own: &&FlagOverride| overrides.iter().any(|replacing| replacing.flag == own.flag);
        let kept: Vec<_> = self.overrides.iter().filter(|own| !is_replaced(own)).cloned().collect();
        overrides.extend(kept);
        loaded.clone().overriding(&overrides)
    }

    /// Serves a snapshot from now on. The counted uses move to its features.
    pub(crate) fn serve(&self, loaded: &Arc<Loaded>) {
        let previous = self.loaded.load();
        let from = previous.as_ref().map(|previous| &previous.snapshot);
        let store = || self.loaded.store(Some(Arc::clone(loaded)));
        self.uses.move_to(from, &loaded.snapshot, loaded.generation, store);
    }

    /// Calls `with` for each flag of the served snapshot that was used.
    pub(crate) fn each_use(&self, with: impl FnMut(&str, u64)) {
        // The lock comes first, so that the counts belong to the snapshot.
        let uses = self.uses.lock();
        if let Some(loaded) = self.loaded.load().as_ref() {
            uses.each(&loaded.snapshot, with);
        }
    }
}

/// Reason why a request gets no access to an environment.
pub(crate) enum NoAccess {
    /// The key is unknown, and an environment that may know it is not loaded yet.
    NotLoaded,
    /// The key is unknown.
    Denied,
}

/// Settings of a process that its state contains.
#[derive(Default)]
pub(crate) struct Settings {
    pub(crate) startup_timeout: Duration,
    pub(crate) cors: Cors,
    /// Flags that the process answers with another state or value.
    pub(crate) overrides: Arc<[FlagOverride]>,
    /// File with the key of headers that override flags.
    pub(crate) override_key: Option<PathBuf>,
}

/// State that all requests share.
pub(crate) struct State {
    pub(crate) environments: Vec<Environment>,
    pub(crate) requests: Requests,
    pub(crate) latency: Latency,
    /// Random number of this process. An earlier process of the same pod, whose counts are lost, has another number.
    pub(crate) process: u64,
    pub(crate) streams: Streams,
    pub(crate) inflate_slots: InflateSlots,
    pub(crate) in_flight: InFlight,
    pub(crate) admin_in_flight: InFlight,
    /// The page of the admin port with the metrics.
    pub(crate) metrics_page: SharedPage,
    pub(crate) cors: Cors,
    /// File with the key of headers that override flags. `None` if the headers are not read.
    pub(crate) override_key: Option<PathBuf>,
    pub(crate) started: Instant,
    /// Startup timeout: after it, `/startupz` lets the application start even if data is missing.
    pub(crate) startup_timeout: Duration,
    /// True while the process ends. Each connection is closed with its next answer.
    pub(crate) draining: AtomicBool,
    /// The answer of the health paths. `None` until every environment is loaded.
    health: ArcSwapOption<Bytes>,
}

impl State {
    /// Creates a state without snapshots.
    pub(crate) fn new(names: impl IntoIterator<Item = String>, settings: Settings) -> State {
        let Settings { startup_timeout, cors, overrides, override_key } = settings;
        let environment = |name| Environment::new(name, Arc::clone(&overrides));
        State {
            environments: names.into_iter().map(environment).collect(),
            requests: Requests::default(),
            latency: Latency::default(),
            process: RandomState::new().build_hasher().finish(),
            streams: Streams::default(),
            inflate_slots: InflateSlots::default(),
            in_flight: InFlight::of_data(),
            admin_in_flight: InFlight::of_admin(),
            metrics_page: SharedPage::default(),
            cors,
            override_key,
            started: Instant::now(),
            startup_timeout,
            draining: AtomicBool::new(false),
            health: ArcSwapOption::empty(),
        }
    }

    /// Calls `answer` with the environment of a key, its served snapshot, and the role of the key.
    #[inline]
    pub(crate) fn with_access<T>(
        &self,
        key: &[u8],
        answer: impl FnOnce(&Environment, &Loaded, Role) -> T,
    ) -> Result<T, NoAccess> {
        let mut missing = false;
        for environment in &self.environments {
            let serving = environment.loaded.load();
            let Some(loaded) = serving.as_ref() else {
                missing = true;
                continue;
            };
            if let Some(role) = loaded.snapshot.role_of(key) {
                return Ok(answer(environment, loaded, role));
            }
        }
        // An environment's keys are part of its snapshot, so a key is known to be invalid only when every environment
        // is loaded.
        Err(if missing { NoAccess::NotLoaded } else { NoAccess::Denied })
    }

    /// Calls `answer` for a request without a key, where none is required: with the client's role in the only
    /// environment.
    #[inline]
    pub(crate) fn with_access_without_key<T>(
        &self,
        answer: impl FnOnce(&Environment, &Loaded, Role) -> T,
    ) -> Result<T, NoAccess> {
        let [only] = self.environments.as_slice() else { return Err(NoAccess::Denied) };
        let serving = only.loaded.load();
        let loaded = serving.as_ref().ok_or(NoAccess::NotLoaded)?;
        Ok(answer(only, loaded, Role::Client))
    }

    /// Finds an environment by its name.
    pub(crate) fn named(&self, name: &str) -> Option<&Environment> {
        self.environments.iter().find(|environment| environment.name == name)
    }

    /// Returns the first environment without a snapshot.
    pub(crate) fn first_not_loaded(&self) -> Option<&Environment> {
        self.environments.iter().find(|environment| environment.loaded.load().is_none())
    }

    /// Returns the first environment without a complete snapshot.
    pub(crate) fn first_incomplete(&self) -> Option<&Environment> {
        let is_complete = |environment: &Environment| environment.loaded.load().as_ref().is_some_and(|it| it.complete);
        self.environments.iter().find(|environment| !is_complete(environment))
    }

    /// True if the process is about to end.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Returns the health answer, if every environment is loaded.
    pub(crate) fn health(&self) -> Option<Bytes> {
        self.health.load().as_deref().cloned()
    }

    /// Renders the health answer. Called after every change of the served data.
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
