//! Follows the volumes: the sidecar serves a valid snapshot as soon as kubelet has written it.
//!
//! Opening and validating files would delay requests, so a separate thread does it. An inotify watch of the directory
//! reports kubelet's rename. Polling every [`INTERVAL`] covers a watch that does not work or misses a rename. On any
//! failure the sidecar keeps serving the previous snapshot: an empty or truncated volume, or one of a newer format, is
//! not a revision.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use remora_snapshot::{Snapshot, files};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

use crate::clock::since_epoch;
use crate::document::Document;
use crate::environment::{Environment, Loaded, State};
use crate::log;
use crate::map::{self, Identity, MapError, Region, Volume};
use crate::metrics::Reload;

/// Interval between two checks of the volumes when the watch reports no change.
const INTERVAL: Duration = Duration::from_secs(3);

/// Number of attempts to read a volume. A directory that is removed between being opened and being read has been
/// replaced by a newer one.
const ATTEMPTS: usize = 3;

/// Largest size of a marker file in bytes: a revision and perhaps a line break.
const MAX_MARKER: u64 = 64;

/// Follows the volumes of all environments of a [`State`].
pub(crate) struct Follower {
    state: Arc<State>,
    volumes: Vec<Followed>,
}

impl Follower {
    /// Creates a follower of the volumes in `directory`. Each volume is a sub-directory with its environment's name.
    pub(crate) fn new(state: Arc<State>, directory: &Path) -> Follower {
        let in_pod = map::is_in_pod();
        let followed = |environment: &Environment| Followed::new(directory.join(&environment.name), in_pod);
        let volumes = state.environments.iter().map(followed).collect();
        Follower { state, volumes }
    }

    /// Checks every volume once.
    pub(crate) fn look(&mut self) {
        for (volume, environment) in self.volumes.iter_mut().zip(&self.state.environments) {
            if volume.look(environment) {
                self.state.prepare_health();
            }
        }
    }

    /// Checks the volumes until the follower is the last owner of the state.
    pub(crate) fn run(mut self) {
        let watch = Watch::new();
        while Arc::strong_count(&self.state) > 1 {
            if let Some(watch) = &watch {
                self.volumes.iter().for_each(|volume| watch.add(&volume.directory));
            }
            // The check follows the setup of the watch, so that it also finds earlier changes.
            self.look();
            match &watch {
                Some(watch) => watch.wait(INTERVAL),
                None => std::thread::sleep(INTERVAL),
            }
        }
    }
}

/// An inotify watch of directories.
struct Watch(OwnedFd);

impl Watch {
    fn new() -> Option<Watch> {
        match inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK) {
            Ok(watch) => Some(Watch(watch)),
            Err(error) => {
                log::info!("directories cannot be watched ({error}); they are looked at every {INTERVAL:?} instead");
                None
            }
        }
    }

    /// Watches a directory. Adding it again has no effect, unless another directory has taken its place: that one is
    /// watched.
    fn add(&self, directory: &Path) {
        let flags = WatchFlags::MOVED_TO | WatchFlags::CREATE | WatchFlags::ONLYDIR;
        if let Err(error) = inotify::add_watch(&self.0, directory, flags) {
            log::debug!("{} cannot be watched: {error}", directory.display());
        }
    }

    /// Waits until something happens in a watched directory, or until `time` has passed.
    fn wait(&self, time: Duration) {
        let timeout =
            Timespec { tv_sec: i64::try_from(time.as_secs()).unwrap_or(1), tv_nsec: time.subsec_nanos().into() };
        let mut descriptors = [PollFd::from_borrowed_fd(self.0.as_fd(), PollFlags::IN)];
        let ready = rustix::event::poll(&mut descriptors, Some(&timeout));
        if let Err(error) = ready {
            log::debug!("waiting for a change was interrupted: {error}");
            std::thread::sleep(Duration::from_millis(100));
        }
        // The events are discarded: there are few directories, and checking an unchanged one costs two system calls.
        let mut events = [0; 4096];
        while rustix::io::read(&self.0, &mut events).is_ok_and(|bytes| bytes > 0) {}
    }
}

/// The volume of one environment, and the follower's memory of it.
struct Followed {
    directory: PathBuf,
    /// True if kubelet may have written the volume, because the process runs in a pod.
    in_pod: bool,
    /// The directory that was checked last, whether its snapshot was accepted or refused.
    seen: Option<Identity>,
    /// True if another check of the same directory can only have the same result.
    settled: bool,
    /// The overrides files that are served, by slot.
    overrides: [Option<Region>; files::OVERRIDES_SLOTS],
    /// The last problem that was logged. The same problem is not logged again at each check.
    complaint: Option<(Reload, String)>,
    /// True if the log already says that the marker's revision is not served yet.
    told_stale: bool,
}

/// The result of reading a volume.
struct Read {
    loaded: Loaded,
    overrides: [Option<Region>; files::OVERRIDES_SLOTS],
    refused: Vec<String>,
}

impl Followed {
    fn new(directory: PathBuf, in_pod: bool) -> Followed {
        Followed {
            directory,
            in_pod,
            seen: None,
            settled: false,
            overrides: [const { None }; files::OVERRIDES_SLOTS],
            complaint: None,
            told_stale: false,
        }
    }

    /// Checks the volume. True if the environment serves other files from now on.
    fn look(&mut self, environment: &Environment) -> bool {
        let began = Instant::now();
        for attempt in 1..=ATTEMPTS {
            let volume = match Volume::open(&self.directory, self.in_pod) {
                Ok(Some(volume)) => volume,
                Ok(None) => {
                    self.complain(environment, Reload::Missing, "there is no volume".to_owned());
                    return false;
                }
                Err(error) => {
                    self.complain(environment, Reload::Unreadable, error.to_string());
                    return false;
                }
            };
            self.check_marker(environment, &volume);
            let again = self.seen == Some(volume.identity());
            if again && self.settled {
                return false;
            }
            self.seen = Some(volume.identity());
            // Files that kubelet wrote never change. Other files may still be in the middle of a write.
            self.settled = volume.is_immutable();
            match self.read(environment, &volume) {
                Ok(Some(read)) => {
                    self.settled |= read.refused.is_empty();
                    let taken = self.take_up(environment, read, again, began.elapsed());
                    self.check_marker(environment, &volume);
                    return taken;
                }
                Ok(None) if attempt < ATTEMPTS => std::thread::sleep(Duration::from_millis(2)),
                Ok(None) => {
                    let missing = format!("the volume has no file {}", files::CORE);
                    self.complain(environment, Reload::Missing, missing);
                }
                Err((reload, complaint)) => {
                    self.settled &= reload == Reload::Refused;
                    self.complain(environment, reload, complaint);
                    return false;
                }
            }
        }
        self.settled = false;
        false
    }

    /// Reads the files of a volume. `None` if the volume has no core file.
    fn read(&self, environment: &Environment, volume: &Volume) -> Result<Option<Read>, (Reload, String)> {
        let unreadable = |error: MapError| (Reload::Unreadable, error.to_string());
        let Some(core) = volume.map(files::CORE).map_err(unreadable)? else { return Ok(None) };
        let mut snapshot =
            Snapshot::read(core.clone()).map_err(|error| (Reload::Refused, format!("{}: {error}", files::CORE)))?;
        let mut sizes = [core.as_ref().len(), 0, 0];
        let mut state = DefaultHasher::new();
        head(&core).hash(&mut state);

        // The operator does not remove an overrides file while the core stays, so a missing file is a failure here.
        let previous = environment.loaded.load();
        let same_core = previous.as_ref().is_some_and(|loaded| loaded.snapshot.revision() == snapshot.revision());
        let mut refused = Vec::new();
        let mut overrides = [const { None }; files::OVERRIDES_SLOTS];
        for (slot, (place, last_good)) in overrides.iter_mut().zip(&self.overrides).enumerate() {
            let name = files::overrides(slot);
            let candidate = match volume.map(&name) {
                Ok(Some(region)) => attach(&mut snapshot, region, &mut refused, &name),
                Ok(None) if same_core || snapshot.overrides_files().is_some_and(|files| slot < files) => None,
                Ok(None) => continue,
                Err(error) => {
                    refused.push(error.to_string());
                    None
                }
            };
            let taken = candidate.or_else(|| attach(&mut snapshot, last_good.clone()?, &mut refused, &name));
            if let Some(region) = &taken {
                sizes[1] += region.as_ref().len();
                (slot, head(region)).hash(&mut state);
            }
            *place = taken;
        }
        let incomplete = snapshot.overrides_files().filter(|_| !snapshot.is_whole());
        if let Some(files) = incomplete {
            refused.push(format!(
                "not all of the {files} overrides files are here; if they do not come, the pod was admitted when fewer were needed: restart it"
            ));
            // Without a complete predecessor, an incomplete snapshot is better than none: most identities get the right
            // flags.
            if previous.as_ref().is_some_and(|previous| previous.snapshot.is_whole()) {
                return Err((Reload::Refused, refused.join("; ")));
            }
        }
        let since = SystemTime::now();
        let previous = previous.as_ref().and_then(|loaded| loaded.document.as_ref());
        let document = match document(volume, &snapshot, previous, since) {
            Ok(document) => document,
            Err(problem) => {
                refused.push(problem);
                None
            }
        };
        // If the new document is refused, the last good one stays, as long as it belongs to this environment.
        let document = document.or_else(|| {
            let previous = previous.filter(|_| snapshot.serves_document())?;
            snapshot.document(previous.files().to_vec()).is_ok().then(|| Arc::clone(previous))
        });
        if let Some(document) = &document {
            sizes[2] = document.files().iter().map(|file| file.as_ref().len()).sum();
            document.name().hash(&mut state);
        }
        let complete = incomplete.is_none_or(|files| names_fewer(&overrides, files))
            && document.is_some() == snapshot.serves_document();
        let in_place = volume.is_immutable();
        let state = state.finish();
        let loaded = Loaded { snapshot, core, state, since, document, complete, in_place, sizes };
        Ok(Some(Read { loaded, overrides, refused }))
    }

    /// Serves the snapshot that was read. False if the same snapshot is served already.
    fn take_up(&mut self, environment: &Environment, read: Read, again: bool, time: Duration) -> bool {
        let Read { loaded, overrides, refused } = read;
        let loaded = Arc::new(loaded);
        let revision = loaded.snapshot.revision();
        let same = environment.loaded.load().as_ref().is_some_and(|previous| previous.state == loaded.state);
        if !(same && again) {
            // New files with the same content are served too, because that frees the memory of the old files.
            environment.loaded.store(Some(Arc::clone(&loaded)));
            environment.reloads.count(if same { Reload::Same } else { Reload::Swapped });
            if !same {
                let now = since_epoch(loaded.since);
                environment.changes.send_modify(|change| *change = change.next(revision, loaded.state, now));
            }
            self.overrides = overrides;
            let (name, features, [core, overrides, document]) =
                (&environment.name, loaded.snapshot.features(), loaded.sizes);
            let how = if loaded.in_place { "mapped" } else { "copied" };
            if same {
                log::debug!("{name}: the volume was written again, revision {revision} stays");
            } else {
                log::info!(
                    "{name}: revision {revision} is served: {features} features, {core} bytes, {overrides} of overrides and {document} of the document, {how} in {time:?}"
                );
            }
        }
        if refused.is_empty() {
            self.complaint = None;
        } else {
            self.complain(environment, Reload::PartRefused, refused.join("; "));
        }
        !(same && again)
    }

    /// Compares the revision in the marker file, which notifies the pod, with the revision that is served.
    fn check_marker(&mut self, environment: &Environment, volume: &Volume) {
        let marker = volume.read(files::REVISION, MAX_MARKER).ok().flatten().unwrap_or_default();
        // The number of repeated notifications may follow the revision: a changed text makes kubelet sync the pod
        // again.
        let marker = marker.split_whitespace().next().unwrap_or_default();
        let loaded = environment.loaded.load();
        let served = loaded.as_ref().map(|loaded| loaded.snapshot.revision().to_string());
        let stale_since = &environment.expectation.stale_since;
        if marker.is_empty() || served.as_deref() == Some(marker) {
            stale_since.store(0, Ordering::Relaxed);
            self.told_stale = false;
            return;
        }
        if stale_since.load(Ordering::Relaxed) == 0 {
            stale_since.store(since_epoch(SystemTime::now()).as_secs(), Ordering::Relaxed);
        }
        // The files may arrive a moment after the marker.
        if !self.told_stale && self.seen == Some(volume.identity()) {
            self.told_stale = true;
            let served = served.as_deref().unwrap_or("none");
            log::warning!("{}: the pod should have revision {marker}, and has {served}", environment.name);
        }
    }

    /// Counts and logs a problem, unless it is the same as the last one.
    fn complain(&mut self, environment: &Environment, reload: Reload, complaint: String) {
        let complaint = Some((reload, complaint));
        if self.complaint == complaint {
            return;
        }
        environment.reloads.count(reload);
        if let Some((_, text)) = &complaint {
            let name = &environment.name;
            match environment.loaded.load().as_ref() {
                Some(loaded) if reload == Reload::PartRefused => {
                    log::warning!(
                        "{name}: {text}; the last good one stays beside revision {}",
                        loaded.snapshot.revision()
                    );
                }
                Some(loaded) => log::warning!("{name}: {text}; revision {} stays", loaded.snapshot.revision()),
                None => log::info!("{name}: {text}; waiting in {}", self.directory.display()),
            }
        }
        self.complaint = complaint;
    }
}

/// Reads the environment's document from its objects, which follow one another. `None` if the document is not served or
/// not complete.
fn document(
    volume: &Volume,
    snapshot: &Snapshot<Region>,
    previous: Option<&Arc<Document>>,
    now: SystemTime,
) -> Result<Option<Arc<Document>>, String> {
    if !snapshot.serves_document() {
        return Ok(None);
    }
    let part = |slot| volume.map(&files::document(slot)).map_err(|error| error.to_string());
    let malformed = |error: &dyn std::fmt::Display| format!("{}: {error}", files::document(0));
    let Some(first) = part(0)? else { return Ok(None) };
    let count = remora_snapshot::Document::<Region>::count(first.as_ref()).map_err(|error| malformed(&error))?;
    let mut parts = vec![first];
    for slot in 1..count {
        let Some(next) = part(slot)? else { return Ok(None) };
        parts.push(next);
    }
    let read = Document::read(parts, snapshot, previous.map(Arc::as_ref), now);
    read.map(|document| Some(Arc::new(document))).map_err(|error| malformed(&error))
}

/// True if the volume seems to name fewer overrides files than the snapshot has: the first ones are present, and no
/// others. The files that a volume names are fixed when the pod is admitted.
fn names_fewer(overrides: &[Option<Region>], files: usize) -> bool {
    let first = overrides.iter().take_while(|file| file.is_some()).count();
    (1..files).contains(&first) && overrides.iter().skip(first).all(Option::is_none)
}

/// Returns the first bytes of a file, which include the checksum of the rest.
fn head(region: &Region) -> &[u8] {
    let bytes = region.as_ref();
    bytes.get(..64).unwrap_or(bytes)
}

/// Adds an overrides file to a snapshot. Returns `None` if the file is refused, and adds the reason to `refused`.
fn attach(snapshot: &mut Snapshot<Region>, region: Region, refused: &mut Vec<String>, name: &str) -> Option<Region> {
    match snapshot.attach(region.clone()) {
        Ok(()) => Some(region),
        Err(error) => {
            refused.push(format!("{name}: {error}"));
            None
        }
    }
}

/// Starts the follower on a thread of its own.
pub(crate) fn spawn(follower: Follower) -> io::Result<()> {
    std::thread::Builder::new().name("follow".to_owned()).stack_size(256 * 1024).spawn(|| follower.run()).map(drop)
}
