//! Follows the volumes: the sidecar serves a valid snapshot as soon as kubelet has written it.
//!
//! Opening and validating files would delay requests, so a separate thread does it. An inotify watch of the directory
//! reports kubelet's rename. Polling every [`INTERVAL`] covers a watch that does not work or misses a rename. On any
//! failure the sidecar keeps serving the previous snapshot: an empty or truncated volume, or one of a newer format, is
//! not a revision.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use remora_snapshot::files;

use super::load::{LoadedVolume, Problem, load};
use super::state::{Environment, Sizes, State};
use super::watch::Watch;
use crate::clock::since_epoch;
use crate::counters::reloads::Reload;
use crate::log;
use crate::volume::{self, Identity, Region, Volume};

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
    volumes: Vec<FollowedVolume>,
}

impl Follower {
    /// Creates a follower of the volumes in `directory`. Each volume is a sub-directory with its environment's name.
    pub(crate) fn new(state: Arc<State>, directory: &Path) -> Follower {
        let in_pod = volume::is_in_pod();
        let followed = |environment: &Environment| FollowedVolume::new(directory.join(&environment.name), in_pod);
        let volumes = state.environments.iter().map(followed).collect();
        Follower { state, volumes }
    }

    /// Checks every volume once.
    pub(crate) fn check(&mut self) {
        for (volume, environment) in self.volumes.iter_mut().zip(&self.state.environments) {
            if volume.check(environment) {
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
            self.check();
            match &watch {
                Some(watch) => watch.wait(INTERVAL),
                None => std::thread::sleep(INTERVAL),
            }
        }
    }
}

/// The volume of one environment, and the follower's memory of it.
struct FollowedVolume {
    directory: PathBuf,
    /// True if kubelet may have written the volume, because the process runs in a pod.
    in_pod: bool,
    /// The directory that was checked last, whether its snapshot was accepted or refused.
    seen: Option<Identity>,
    /// The directory whose files could not be mapped in place.
    copied: Option<Identity>,
    /// True if another check of the same directory can only have the same result.
    settled: bool,
    /// The overrides files that are served, by slot.
    overrides: [Option<Region>; files::OVERRIDES_SLOTS],
    /// The last problem that was logged. The same problem is not logged again at each check.
    problem: Option<Problem>,
    /// True if the log already says that the marker's revision is not served yet.
    stale_logged: bool,
}

impl FollowedVolume {
    fn new(directory: PathBuf, in_pod: bool) -> FollowedVolume {
        FollowedVolume {
            directory,
            in_pod,
            seen: None,
            copied: None,
            settled: false,
            overrides: [const { None }; files::OVERRIDES_SLOTS],
            problem: None,
            stale_logged: false,
        }
    }

    /// Checks the volume. True if the environment serves other files from now on.
    fn check(&mut self, environment: &Environment) -> bool {
        let began = Instant::now();
        for attempt in 1..=ATTEMPTS {
            let volume = match Volume::open(&self.directory, self.in_pod) {
                Ok(Some(volume)) => volume,
                Ok(None) => {
                    self.report(environment, Reload::Missing, "the volume does not exist".to_owned());
                    return false;
                }
                Err(error) => {
                    self.report(environment, Reload::Unreadable, error.to_string());
                    return false;
                }
            };
            self.check_marker(environment, &volume);
            let seen_before = self.seen == Some(volume.identity());
            if seen_before && self.settled {
                return false;
            }
            self.seen = Some(volume.identity());
            // Another attempt must not take this one for a settled check.
            self.settled = false;
            if self.copied == self.seen {
                volume.copy_files();
            }
            let read = load(&volume, environment, &self.overrides);
            if volume.is_immutable() && !volume.maps_in_place() {
                self.copied = self.seen;
            }
            match read {
                Ok(Some(read)) => {
                    // Files that kubelet wrote never change. Other files may still be in the middle of a write.
                    self.settled = volume.is_immutable() || read.refused.is_empty() && read.incomplete.is_none();
                    // A file that the system refused to read may be readable at the next check.
                    let is_unreadable = |problem: &Problem| problem.reload == Reload::Unreadable;
                    self.settled &= !read.refused.iter().any(|part| part.reason.may_pass)
                        && !read.incomplete.as_ref().is_some_and(is_unreadable);
                    let taken = self.adopt(environment, read, seen_before, began.elapsed());
                    self.check_marker(environment, &volume);
                    return taken;
                }
                Ok(None) if attempt < ATTEMPTS => std::thread::sleep(Duration::from_millis(2)),
                Ok(None) => {
                    let missing = format!("the volume has no file {}", files::CORE);
                    self.report(environment, Reload::Missing, missing);
                }
                Err(problem) => {
                    self.settled =
                        volume.is_immutable() && matches!(problem.reload, Reload::Refused | Reload::Incomplete);
                    self.report(environment, problem.reload, problem.text);
                    return false;
                }
            }
        }
        false
    }

    /// Serves the snapshot that was read. False if the same snapshot is served already.
    fn adopt(&mut self, environment: &Environment, read: LoadedVolume, seen_before: bool, time: Duration) -> bool {
        let LoadedVolume { mut loaded, overrides, refused, incomplete, .. } = read;
        let previous = environment.loaded.load();
        let served_since =
            previous.as_ref().filter(|previous| previous.content_hash == loaded.content_hash).map(|same| same.since);
        let same = served_since.is_some();
        loaded.since = served_since.unwrap_or(loaded.since);
        let loaded = Arc::new(loaded);
        let revision = loaded.snapshot.revision();
        if !(same && seen_before) {
            // New files with the same content are served too, because that frees the memory of the old files.
            environment.serve(&loaded);
            environment.reloads.count(if same { Reload::Same } else { Reload::Swapped });
            if !same {
                let now = since_epoch(loaded.since);
                let updated_at = loaded.document.as_ref().and_then(|document| document.updated_at());
                environment
                    .changes
                    .send_modify(|change| *change = change.next(revision, loaded.content_hash, now, updated_at));
            }
            self.overrides = overrides;
            let (name, features) = (&environment.name, loaded.snapshot.served_features());
            let Sizes { core, overrides, document } = loaded.sizes;
            let how = if loaded.in_place { "mapped" } else { "copied" };
            if same {
                log::debug!(
                    "environment {name:?}: the volume was written again with the same content, revision {revision} stays"
                );
            } else {
                log::info!(
                    "environment {name:?} serves revision {revision}: {features} features, {core} bytes of core, {overrides} of overrides, {document} of document, {how} in {time:?}"
                );
            }
        }
        match incomplete {
            Some(Problem { reload, text }) => self.report(environment, reload, text),
            None if refused.is_empty() => self.problem = None,
            None => {
                let refused: Vec<String> = refused.iter().map(ToString::to_string).collect();
                self.report(environment, Reload::PartRefused, refused.join("; "));
            }
        }
        !(same && seen_before)
    }

    /// Compares the revision in the marker file, which notifies the pod, with the revision that is served.
    fn check_marker(&mut self, environment: &Environment, volume: &Volume) {
        let marker = volume.read(files::REVISION, MAX_MARKER).ok().flatten().unwrap_or_default();
        // The number of repeated notifications may follow the revision: a changed text makes kubelet sync the pod
        // again.
        let marker = marker.split_whitespace().next().unwrap_or_default();
        let loaded = environment.loaded.load();
        let served = loaded.as_ref().map(|loaded| loaded.snapshot.revision().to_string());
        let stale_since = &environment.stale_since;
        if marker.is_empty() || served.as_deref() == Some(marker) {
            stale_since.store(0, Ordering::Relaxed);
            self.stale_logged = false;
            return;
        }
        if stale_since.load(Ordering::Relaxed) == 0 {
            stale_since.store(since_epoch(SystemTime::now()).as_secs(), Ordering::Relaxed);
        }
        // The files may arrive a moment after the marker.
        if !self.stale_logged && self.seen == Some(volume.identity()) {
            self.stale_logged = true;
            let served = served.as_deref().unwrap_or("none");
            log::warning!(
                "environment {:?}: the pod was notified of revision {marker:?} and serves {served}; kubelet has not updated the volume yet",
                environment.name
            );
        }
    }

    /// Counts and logs a problem, unless it is the same as the last one.
    fn report(&mut self, environment: &Environment, reload: Reload, text: String) {
        let problem = Some(Problem { reload, text });
        if self.problem == problem {
            return;
        }
        environment.reloads.count(reload);
        if let Some(Problem { text, .. }) = &problem {
            let name = &environment.name;
            match environment.loaded.load().as_ref() {
                // Objects are published one after another, so this is expected for a moment.
                Some(loaded) if reload == Reload::Incomplete => {
                    log::info!("environment {name:?}: {text}; serving revision {}", loaded.snapshot.revision());
                }
                Some(loaded) if reload == Reload::PartRefused => {
                    log::warning!(
                        "environment {name:?} serves revision {} without files that were refused: {text}",
                        loaded.snapshot.revision()
                    );
                }
                Some(loaded) => {
                    log::warning!(
                        "environment {name:?}: {text}; still serving revision {}",
                        loaded.snapshot.revision()
                    );
                }
                None => {
                    log::info!("environment {name:?}: {text}; waiting for a snapshot in {}", self.directory.display());
                }
            }
        }
        self.problem = problem;
    }
}

/// Starts the follower on a thread of its own.
pub(crate) fn spawn(follower: Follower) -> io::Result<()> {
    std::thread::Builder::new().name("follow".to_owned()).stack_size(256 * 1024).spawn(|| follower.run()).map(drop)
}

#[cfg(test)]
mod tests;
