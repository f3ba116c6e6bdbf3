//! An exhaustive search through the protocol between publisher, kubelet and sidecar.
//!
//! The publisher writes one object at a time and may end at any moment: its plan follows from the published core, which it
//! reads, so a restart continues it, and a newer document may replace it. The kubelet observes each object by a watch of its own,
//! in any order, and writes what it has observed to the volume at any moment. The sidecar reads the volume at any moment,
//! and may be restarted. The search visits every state that these actions can reach. The order of writes is
//! [`order`](super::order), and volumes are read by the sidecar's own reader.
//!
//! The model has cores in one object and in parts, overrides in up to four files, and a change of the kind of objects: the
//! publisher then writes both kinds until no pod mounts the previous one, which it deletes. In each state:
//!
//! - The objects that new pods mount are a whole revision with all overrides.
//! - When everybody has finished, a sidecar serves the newest revision, with its own overrides.
//! - A running sidecar that has all overrides keeps all.
//! - If the kubelet is at most one publication behind, a running sidecar never goes back to an older revision, and a
//!   sidecar that starts finds a whole core, except for a moment when a core grows beyond one object: the kubelet may observe
//!   the pointer before the core that was kept. It finds all overrides, unless the number of their files changes: the kubelet
//!   may observe the files in another order than the publisher wrote them.
//!
//! The cuts (`tests/cuts.rs`) cover the rest with the whole controller: deletions after the grace period, the served
//! document, history, formats of other versions, failed requests, and more files.

mod documents;
mod publisher;
mod sidecar;

use std::collections::{HashMap, HashSet, VecDeque};

use remora_snapshot::files::{self, CoreSet};

use self::{documents::Document, publisher::Publisher, sidecar::Sidecars};

/// Files of the volume: the core, two parts in each set, and four files of overrides.
const FILES: usize = 9;
const CORE: usize = 0;
const OVERRIDES: usize = 5;

/// Returns the place of a file in a [`Volume`].
fn file_of(name: &str) -> usize {
    (0..FILES).find(|file| name_of(*file) == name).unwrap()
}

fn name_of(file: usize) -> String {
    match file {
        CORE => files::CORE.to_owned(),
        1 | 2 => files::core_part(CoreSet::A, file - 1),
        3 | 4 => files::core_part(CoreSet::B, file - 3),
        _ => files::overrides(file - OVERRIDES),
    }
}

/// Number of a content. 0: the file does not exist.
type Content = u8;

/// Content of each file.
type Volume = [Content; FILES];

/// Number of a kind of objects: ConfigMaps or Secrets.
type Kind = usize;

/// A state of the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct State {
    /// Objects in the cluster, by kind.
    published: [Volume; 2],
    /// Kind that `spec.delivery` names.
    wanted: Kind,
    /// Kind that the status names, which new pods mount.
    delivered: Kind,
    /// True if the objects of the kind that is not wanted are published too, because pods mount them.
    formerly: bool,
    /// Kind that the pod mounts.
    mounted: Kind,
    /// Objects as the kubelet has observed them.
    observed: Volume,
    /// Files in the pod's volume.
    volume: Volume,
    /// Objects that were written and not observed yet, one bit each.
    unseen: u16,
    /// The part of `unseen` that belongs to the last finished publication.
    owed: u16,
    /// Documents whose pointer replaced a core in one object, or none, one bit each.
    grown: u8,
    /// Documents of which something was written while no core was published, one bit each.
    first: u8,
    /// True if something was written of a document that has another number of overrides files than the published one.
    redivided: bool,
    /// Number of the document that the publisher has.
    newest: usize,
    /// Number of what the sidecar serves. 0: nothing.
    serving: usize,
}

/// Limit of the kubelet's lag behind the publisher.
#[derive(Clone, Copy, PartialEq)]
enum Lag {
    /// The kubelet has observed all of a publication before the next one writes its first object.
    OnePublication,
    /// The kubelet may miss publications.
    Any,
    /// The kubelet observes nothing, so that only the publisher acts.
    Endless,
}

/// Documents, the publisher and the sidecars.
struct World {
    publisher: Publisher,
    sidecars: Sidecars,
    lag: Lag,
    /// True if `spec.delivery` may change.
    changes_kind: bool,
    /// State of a sidecar that starts over the objects of one document, by document.
    alone: Vec<usize>,
}

impl World {
    fn new(documents: &[Document], lag: Lag, changes_kind: bool) -> Self {
        let (publisher, sidecars) = (Publisher::new(documents), Sidecars::default());
        let mut world = Self { publisher, sidecars, lag, changes_kind, alone: Vec::new() };
        for document in 0..documents.len() {
            let mut volume = Volume::default();
            world
                .publisher
                .plan(document, &Volume::default())
                .iter()
                .for_each(|(file, content)| volume[*file] = *content);
            let alone = world.look(&volume, 0);
            world.alone.push(alone);
        }
        world
    }

    /// Returns what a sidecar serves after it has read the volume.
    fn look(&mut self, volume: &Volume, serving: usize) -> usize {
        self.sidecars.look(&self.publisher.contents, volume, serving)
    }

    /// Returns the number of the document that a sidecar serves, and whether all overrides are found.
    fn served(&self, serving: usize) -> Option<(usize, bool)> {
        let served = self.sidecars.served(serving)?;
        Some((self.publisher.document(&served.revision).unwrap(), served.whole))
    }

    /// Returns the next object that the publisher writes, its kind and its content.
    fn next_write(&mut self, state: &State) -> Option<(Kind, usize, Content)> {
        let other = 1 - state.wanted;
        let is_other_used = state.formerly || state.delivered == other && state.published[other][CORE] != 0;
        let kinds = std::iter::once(state.wanted).chain(is_other_used.then_some(other));
        for kind in kinds {
            let published = state.published[kind];
            let mut plan = self.publisher.plan(state.newest, &published).into_iter();
            if let Some((file, content)) = plan.find(|(file, content)| published[*file] != *content) {
                return Some((kind, file, content));
            }
        }
        None
    }

    fn write(&mut self, state: &State, (kind, file, content): (Kind, usize, Content)) -> State {
        let mut written = *state;
        written.published[kind][file] = content;
        if kind == state.mounted {
            written.unseen |= 1 << file;
            let before = state.published[kind][CORE];
            written.first |= u8::from(before == 0) << state.newest;
            written.redivided |= before != 0 && self.publisher.divides_otherwise(state.newest, before);
            if file == CORE {
                written.owed = written.unseen;
                written.grown |= u8::from(self.publisher.is_one_object(before)) << state.newest;
            }
        }
        written
    }

    /// Returns the state after the publisher has changed the status, or has deleted what no pod mounts. `None` if it
    /// has neither to do. Both follow a publication.
    fn report(&mut self, state: &State) -> Option<State> {
        let other = 1 - state.wanted;
        if self.next_write(state).is_some() {
            None
        } else if state.delivered != state.wanted {
            let formerly = state.published[other][CORE] != 0;
            Some(State { delivered: state.wanted, formerly, ..*state })
        } else if state.mounted != other && state.published[other] != Volume::default() {
            let mut deleted = State { formerly: false, ..*state };
            deleted.published[other] = Volume::default();
            Some(deleted)
        } else {
            None
        }
    }

    /// Returns the states that one action can lead to.
    fn successors(&mut self, state: &State) -> Vec<State> {
        let mut next = Vec::new();
        if state.newest + 1 < self.alone.len() {
            next.push(State { newest: state.newest + 1, ..*state });
        }
        if self.changes_kind && state.published[state.delivered][CORE] != 0 {
            next.push(State { wanted: 1 - state.wanted, ..*state });
        }
        if let Some(write) = self.next_write(state)
            && (self.lag != Lag::OnePublication || state.owed == 0 || write.0 != state.mounted)
        {
            next.push(self.write(state, write));
        }
        next.extend(self.report(state));
        if self.lag == Lag::Endless {
            return next;
        }
        let published = state.published[state.mounted];
        for file in (0..FILES).filter(|file| state.observed[*file] != published[*file]) {
            let mut observed = *state;
            observed.observed[file] = published[file];
            observed.unseen &= !(1 << file);
            observed.owed &= !(1 << file);
            next.push(observed);
        }
        next.push(State { volume: state.observed, ..*state });
        next.push(State { serving: self.look(&state.volume, state.serving), ..*state });
        next.push(State { serving: self.look(&state.volume, 0), ..*state });
        if state.mounted != state.delivered {
            next.push(Self::replace_pod(state));
        }
        next
    }

    /// Returns the state with a new pod in place of the pod. Its kubelet reads all objects.
    fn replace_pod(state: &State) -> State {
        let volume = state.published[state.delivered];
        State { mounted: state.delivered, observed: volume, volume, unseen: 0, owed: 0, serving: 0, ..*state }
    }

    /// Lets everybody finish, and returns what the sidecar serves then.
    fn settled(&mut self, state: &State) -> usize {
        let mut state = *state;
        for steps in 0.. {
            assert!(steps <= 4 * FILES, "the publisher writes for ever: {state:?}");
            let reported = self.report(&state);
            state = match (self.next_write(&state), reported) {
                (Some(write), _) => self.write(&state, write),
                (None, Some(reported)) => reported,
                (None, None) => break,
            };
        }
        self.look(&state.published[state.mounted], state.serving)
    }
}

/// Numbers of states.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    states: usize,
    /// States in which a sidecar that starts finds no core although its volume has one.
    without_core: usize,
    /// States in which a sidecar that starts finds a core without some overrides.
    without_overrides: usize,
}

/// Visits every state, and checks what holds in each.
fn search(documents: &[Document], lag: Lag, changes_kind: bool) -> Found {
    let mut world = World::new(documents, lag, changes_kind);
    let nothing = Volume::default();
    let first = State {
        published: [nothing; 2],
        wanted: 0,
        delivered: 0,
        formerly: false,
        mounted: 0,
        observed: nothing,
        volume: nothing,
        unseen: 0,
        owed: 0,
        grown: 0,
        first: 0,
        redivided: false,
        newest: 0,
        serving: 0,
    };
    let (mut seen, mut queue) = (HashSet::from([first]), VecDeque::from([first]));
    let mut settled = HashMap::new();
    let mut found = Found { states: 0, without_core: 0, without_overrides: 0 };
    while let Some(state) = queue.pop_front() {
        let new_pod = world.look(&state.published[state.delivered], 0);
        let is_published = state.published[state.delivered][CORE] != 0;
        let is_whole = world.served(new_pod).is_some_and(|(_, whole)| whole);
        assert!(!is_published || is_whole, "published objects are not whole: {state:?}");

        let (before, after) = (state.serving, world.look(&state.volume, state.serving));
        let (before, after) = (world.served(before), world.served(after));
        assert!(lag == Lag::Any || after >= before, "an older revision replaces a newer one: {state:?}");
        let was_whole = before.is_some_and(|(_, whole)| whole);
        assert!(!was_whole || after.is_some_and(|(_, whole)| whole), "overrides are lost: {state:?}");

        let key = State {
            observed: nothing,
            volume: nothing,
            unseen: 0,
            owed: 0,
            grown: 0,
            first: 0,
            redivided: false,
            ..state
        };
        let end = *settled.entry(key).or_insert_with(|| world.settled(&state));
        assert_eq!(end, world.alone[state.newest], "{state:?}");

        if state.volume[CORE] != 0 {
            let started = world.look(&state.volume, 0);
            match world.served(started) {
                Some((_, true)) => {}
                Some((document, false)) => {
                    found.without_overrides += 1;
                    let is_incomplete = state.first >> document != 0 || state.redivided;
                    assert!(lag == Lag::Any || is_incomplete, "a sidecar that starts misses overrides: {state:?}");
                }
                None => {
                    found.without_core += 1;
                    let document = world.publisher.published(state.volume[CORE]);
                    let has_grown = state.grown >> document & 1 != 0;
                    assert!(lag == Lag::Any || has_grown, "a sidecar that starts finds nothing: {state:?}");
                }
            }
        }
        for next in world.successors(&state) {
            if seen.insert(next) {
                queue.push_back(next);
            }
        }
    }
    found.states = seen.len();
    found
}

/// Documents whose cores have these numbers of parts, without overrides.
fn of_parts<const N: usize>(parts: [usize; N]) -> [Document; N] {
    parts.map(|parts| Document { parts, overrides: 0 })
}

/// Documents with these numbers of overrides files, and cores in one object.
fn of_overrides<const N: usize>(overrides: [usize; N]) -> [Document; N] {
    overrides.map(|overrides| Document { parts: 0, overrides })
}

#[test]
fn sidecar_that_starts_finds_whole_core_while_parts_change() {
    let found = search(&of_parts([2, 2, 2, 2]), Lag::OnePublication, false);
    assert_eq!(found, Found { states: 16_379, without_core: 2808, without_overrides: 0 });
}

#[test]
fn sidecar_that_starts_finds_whole_core_while_core_grows_and_shrinks() {
    let found = search(&of_parts([0, 2, 2, 0, 2]), Lag::OnePublication, false);
    assert_eq!(found, Found { states: 45_706, without_core: 4632, without_overrides: 0 });
}

/// Until the kubelet has observed everything, a start may find nothing.
#[test]
fn kubelet_that_misses_publications_ends_with_newest_revision() {
    let found = search(&of_parts([0, 2, 2, 2]), Lag::Any, false);
    assert_eq!(found, Found { states: 92_494, without_core: 20_338, without_overrides: 0 });
}

#[test]
fn sidecar_that_starts_finds_all_overrides_while_their_number_of_files_stays() {
    let found = search(&of_overrides([2, 2, 2, 2]), Lag::OnePublication, false);
    assert_eq!(found, Found { states: 42_650, without_core: 0, without_overrides: 5704 });
}

/// The kubelet may observe the files in another order.
#[test]
fn running_sidecar_keeps_all_overrides_while_their_number_of_files_changes() {
    let found = search(&of_overrides([2, 4, 2]), Lag::OnePublication, false);
    assert_eq!(found, Found { states: 49_299, without_core: 0, without_overrides: 24_198 });
}

#[test]
fn kubelet_that_misses_publications_ends_with_newest_overrides() {
    let found = search(&of_overrides([2, 1, 2]), Lag::Any, false);
    assert_eq!(found, Found { states: 9401, without_core: 0, without_overrides: 2980 });
}

/// Each document may replace one whose publication was cut off at any write.
#[test]
fn new_pods_find_all_overrides_while_number_of_files_changes() {
    let found = search(&of_overrides([4, 1, 4, 2, 4, 0, 2, 1]), Lag::Endless, false);
    assert_eq!(found, Found { states: 17_353, without_core: 0, without_overrides: 0 });
}

#[test]
fn core_in_parts_with_overrides_ends_with_newest_of_both() {
    let documents = [(0, 1), (2, 2), (2, 1)].map(|(parts, overrides)| Document { parts, overrides });
    let found = search(&documents, Lag::OnePublication, false);
    assert_eq!(found, Found { states: 71_236, without_core: 7634, without_overrides: 13_858 });
}

#[test]
fn new_pods_mount_whole_revision_while_kind_of_objects_changes() {
    let found = search(&of_overrides([1, 2, 0]), Lag::OnePublication, true);
    assert_eq!(found, Found { states: 74_828, without_core: 0, without_overrides: 17_596 });
}
