//! Volumes of pods: kubelet's view of the objects becomes files, which the sidecar's own reader reads.

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap},
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use remora_operator::api::names::{EnvironmentName, FORMAT};
use remora_sidecar::{Level, Reader, Served, set_level};
use serde_json::Value;
use tokio::time::Instant;

use super::server::{Kind, Server};

/// Number of a content, of a volume, or of a list of volumes.
type Number = usize;

/// Content of each file of a volume.
type Volume = BTreeMap<String, Number>;

/// Everything that was ever in a volume, and what sidecars made of it. All runs of a thread share it, because most runs
/// have the same volumes.
#[derive(Default)]
struct Library {
    numbers: HashMap<String, Number>,
    contents: Vec<Vec<u8>>,
    volumes: Vec<Volume>,
    volume_numbers: HashMap<Volume, Number>,
    /// Data that a sidecar serves after it has adopted these volumes one after another.
    readings: HashMap<Vec<Number>, Option<Served>>,
}

thread_local! {
    static LIBRARY: RefCell<Library> = RefCell::default();
}

impl Library {
    fn content(&mut self, text: &str) -> Number {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        self.contents.push(STANDARD.decode(text).unwrap());
        self.numbers.insert(text.to_owned(), self.contents.len() - 1);
        self.contents.len() - 1
    }

    fn volume(&mut self, volume: &Volume) -> Number {
        if let Some(number) = self.volume_numbers.get(volume) {
            return *number;
        }
        self.volumes.push(volume.clone());
        self.volume_numbers.insert(volume.clone(), self.volumes.len() - 1);
        self.volumes.len() - 1
    }

    /// Returns what a sidecar serves that has seen these volumes one after another.
    fn read(&mut self, volumes: &[Number]) -> Option<Served> {
        if let Some(known) = self.readings.get(volumes) {
            return known.clone();
        }
        let directory = Directory::new();
        let mut reader = Reader::new(&directory.0, "storefront");
        let mut served = None;
        for (time, number) in volumes.iter().enumerate() {
            self.write(&directory.0.join("storefront"), time, &self.volumes[*number]);
            served = reader.look();
        }
        self.readings.insert(volumes.to_vec(), served.clone());
        served
    }

    /// Writes a volume as kubelet does.
    fn write(&self, directory: &Path, time: usize, volume: &Volume) {
        let name = format!("..{time}");
        fs::create_dir_all(directory.join(&name)).unwrap();
        for (file, content) in volume {
            fs::write(directory.join(&name).join(file), &self.contents[*content]).unwrap();
        }
        symlink(&name, directory.join("..data_tmp")).unwrap();
        fs::rename(directory.join("..data_tmp"), directory.join("..data")).unwrap();
        if time > 0 {
            fs::remove_dir_all(directory.join(format!("..{}", time - 1))).unwrap();
        }
    }
}

struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        set_level(Level::Error);
        // Half of the time of a plan goes to a disk otherwise.
        let memory = PathBuf::from("/dev/shm");
        let parent = if memory.is_dir() { memory } else { std::env::temp_dir() };
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let directory = parent.join(format!("remora-cuts-{}-{number}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        Self(directory)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A sidecar that runs during the whole scenario.
#[derive(Default)]
struct Running {
    /// Volumes that changed what it serves.
    adopted: Vec<Number>,
    serves: Option<Served>,
    /// True if every override must be found. A kubelet that lags may bring the core before the overrides files, or files of two
    /// divisions, to a sidecar that starts. The sidecar serves what it finds then; once it has all overrides, it keeps all.
    was_whole: bool,
    /// Position of the newest revision that was served in the order of the script.
    position: usize,
    /// Time of the return to an older revision, while that is served.
    went_back: Option<Instant>,
}

/// Returns of running sidecars to older revisions.
#[derive(Default)]
pub(super) struct Reversals {
    pub(super) described: Vec<String>,
    /// Longest time until the sidecar served the newest revision again.
    pub(super) longest: Duration,
}

/// A kubelet that observes each object on its own, late.
struct Lagging {
    random: fastrand::Rng,
    observed: Volume,
    sidecar: Running,
}

/// Observer of all states of the objects.
pub(super) struct Watcher {
    /// Revisions in the order in which the script publishes them. Empty if they are not known yet.
    order: Vec<String>,
    running: BTreeMap<Kind, Running>,
    lagging: Lagging,
    /// Contents of objects that were seen before. The objects stay in memory, so that no address is used twice.
    known: HashMap<usize, (Arc<Value>, Number)>,
    pub(super) problems: Vec<String>,
    pub(super) reversals: Reversals,
}

impl Watcher {
    pub(super) fn new(order: Vec<String>, seed: u64) -> Self {
        let random = fastrand::Rng::with_seed(seed.wrapping_mul(31).wrapping_add(7));
        let lagging = Lagging { random, observed: Volume::new(), sidecar: Running::default() };
        Self {
            order,
            running: BTreeMap::new(),
            lagging,
            known: HashMap::new(),
            problems: Vec::new(),
            reversals: Reversals::default(),
        }
    }

    /// Checks what pods can serve now.
    pub(super) fn observe(&mut self, server: &Server, after: &str) {
        let mounted = mounted(server);
        for kind in [Kind::ConfigMap, Kind::Secret] {
            let volume = self.volume(server, kind);
            if !mounted.contains(&kind) {
                // Its pods are gone.
                self.running.remove(&kind);
                continue;
            }
            LIBRARY.with_borrow_mut(|library| self.check(library, kind, &volume, after));
        }
    }

    /// Checks what sidecars serve that start or run over this volume.
    fn check(&mut self, library: &mut Library, kind: Kind, volume: &Volume, after: &str) {
        let Self { order, running, lagging, problems, reversals, .. } = self;
        let number = library.volume(volume);
        if volume.contains_key("core") {
            match library.read(&[number]) {
                Some(served) if served.whole => {}
                Some(served) => problems.push(format!(
                    "a sidecar that starts over {kind:?}s serves revision {} without some overrides after {after:?}; {:?}",
                    served.revision,
                    volume.keys()
                )),
                None => problems.push(format!("a sidecar that starts over {kind:?}s serves nothing after {after:?}")),
            }
        }
        let running = running.entry(kind).or_insert_with(|| Running { was_whole: true, ..Running::default() });
        if let Err(problem) = running.sync(library, number, order, reversals) {
            problems.push(format!("a running sidecar over {kind:?}s serves {problem} after {after:?}"));
        }
        if kind == Kind::ConfigMap
            && let Err(problem) = lagging.sync(library, volume, order, reversals)
        {
            problems.push(format!("over a kubelet that lags, a running sidecar serves {problem}"));
        }
    }

    /// Returns the files of the objects of one kind in the current format.
    fn volume(&mut self, server: &Server, kind: Kind) -> Volume {
        let environment: EnvironmentName = "storefront".parse().unwrap();
        let mut volume = Volume::new();
        for ((_, name), object) in server.objects().iter().filter(|((of, _), _)| *of == kind) {
            let Some((FORMAT, file)) = environment.format_and_file(name) else { continue };
            let field = if kind == Kind::Secret { "data" } else { "binaryData" };
            let Some(text) = object[field][file].as_str() else { continue };
            let (_, number) = self
                .known
                .entry(Arc::as_ptr(object) as usize)
                .or_insert_with(|| (Arc::clone(object), LIBRARY.with_borrow_mut(|library| library.content(text))));
            volume.insert(file.to_owned(), *number);
        }
        volume
    }

    /// Returns the revision that a sidecar serves which starts now, over the kind of objects that new pods mount.
    pub(super) fn serves(&mut self, server: &Server) -> Option<String> {
        let kind = *mounted(server).first()?;
        let volume = self.volume(server, kind);
        let served = LIBRARY.with_borrow_mut(|library| {
            let number = library.volume(&volume);
            library.read(&[number])
        })?;
        Some(if served.complete { served.revision } else { format!("{} in part", served.revision) })
    }
}

impl Running {
    /// Brings a volume. Fails if the sidecar serves nothing any more, or loses overrides.
    fn sync(
        &mut self,
        library: &mut Library,
        volume: Number,
        order: &[String],
        reversals: &mut Reversals,
    ) -> Result<(), String> {
        let volumes: Vec<Number> = self.adopted.iter().copied().chain([volume]).collect();
        let served = library.read(&volumes);
        if served == self.serves {
            return Ok(());
        }
        let before = std::mem::replace(&mut self.serves, served.clone());
        self.adopted = volumes;
        let Some(served) = served else { return Err("nothing any more".to_owned()) };
        let has_lost = self.was_whole && !served.whole;
        self.was_whole |= served.whole;
        if has_lost {
            return Err(format!("revision {} without some overrides", served.revision));
        }
        if order.is_empty() {
            return Ok(());
        }
        let from = order.get(self.position..).unwrap_or_default();
        if let Some(steps) = from.iter().position(|revision| *revision == served.revision) {
            self.position += steps;
            let behind = self.went_back.take().map(|since| since.elapsed());
            reversals.longest = reversals.longest.max(behind.unwrap_or_default());
        } else {
            self.went_back = self.went_back.or_else(|| Some(Instant::now()));
            let before = before.map(|before| before.revision);
            reversals
                .described
                .push(format!("a running sidecar goes back from revision {before:?} to {}", served.revision));
        }
        Ok(())
    }
}

impl Lagging {
    fn sync(
        &mut self,
        library: &mut Library,
        volume: &Volume,
        order: &[String],
        reversals: &mut Reversals,
    ) -> Result<(), String> {
        let names: Vec<String> = self.observed.keys().chain(volume.keys()).cloned().collect();
        for name in names {
            if self.random.u8(..3) == 0 {
                match volume.get(&name) {
                    Some(content) => self.observed.insert(name, *content),
                    None => self.observed.remove(&name),
                };
            }
        }
        if self.random.bool() {
            return Ok(());
        }
        let number = library.volume(&self.observed);
        self.sidecar.sync(library, number, order, reversals)
    }
}

/// Lists the kinds of objects that pods mount: the kind of new pods first.
fn mounted(server: &Server) -> Vec<Kind> {
    let environment = server.get(Kind::Environment, "storefront");
    let mut kinds: Vec<Kind> = environment.map(|environment| new_pods_mount(environment)).into_iter().collect();
    for ((kind, _), pod) in server.objects() {
        if *kind == Kind::Pod {
            let sources = pod["spec"]["volumes"][0]["projected"]["sources"].as_array().cloned().unwrap_or_default();
            let is_secret = sources.iter().any(|source| source["secret"]["name"].is_string());
            kinds.push(if is_secret { Kind::Secret } else { Kind::ConfigMap });
        }
    }
    kinds
}

/// Returns the kind of objects that a pod mounts which is admitted now.
fn new_pods_mount(environment: &Value) -> Kind {
    let (delivered, wanted) = (&environment["status"]["delivery"]["as"], &environment["spec"]["delivery"]["as"]);
    match delivered.as_str().or(wanted.as_str()) {
        Some("Secret") => Kind::Secret,
        _ => Kind::ConfigMap,
    }
}
