//! An exhaustive search through the protocol between publisher, kubelet and sidecar, for cores in one object and in parts.
//!
//! The publisher writes one object at a time and may end at any moment: its plan follows from the published core, which it
//! reads, so a restart continues it, and a newer document may replace it. The kubelet observes each object by a watch of its own,
//! in any order, and writes what it has observed to the volume at any moment. The sidecar reads the volume at any moment,
//! and may be restarted. The search visits every state that these actions can reach. The plan and the reading of cores
//! are the functions of the program; the choice between the sets is that of the sidecar's `environments::load::core`.
//!
//! In each state: when everybody has finished, a sidecar serves the newest revision. If the kubelet is at most one
//! publication behind, a running sidecar never goes back to an older revision, and a sidecar that starts finds a whole
//! core, except for a moment when a core grows beyond one object: the kubelet may observe the pointer before the core that
//! was kept.

use std::collections::{HashMap, HashSet, VecDeque};

use remora_snapshot::{
    Pointer,
    files::{self, CoreSet},
    model::{Context, Environment, Feature},
    write,
};

use super::{CoreLocation, File, Snapshot, kept, order};
use crate::api::Revision;

/// Files of the volume: the core, and two parts in each set.
const FILES: [(Option<CoreSet>, usize); 5] =
    [(None, 0), (Some(CoreSet::A), 0), (Some(CoreSet::A), 1), (Some(CoreSet::B), 0), (Some(CoreSet::B), 1)];
const CORE: usize = 0;

/// Content of each file, as an index into [`World::contents`]. 0: the file does not exist.
type Volume = [u8; FILES.len()];

/// A state of the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct State {
    /// The objects in the cluster.
    published: Volume,
    /// The objects as the kubelet has observed them.
    observed: Volume,
    /// The files in the pod's volume.
    volume: Volume,
    /// Objects that were written and not observed yet, one bit each.
    unseen: u8,
    /// The part of `unseen` that belongs to the last finished publication.
    owed: u8,
    /// Documents whose pointer replaced a core in one object, or none, one bit each.
    grown: u8,
    /// Number of the document that the publisher has.
    newest: usize,
    /// Number of the document that the sidecar serves.
    serving: Option<usize>,
}

/// Limit of the kubelet's lag behind the publisher.
#[derive(Clone, Copy, PartialEq)]
enum Lag {
    /// The kubelet has observed all of a publication before the next one writes its first object.
    OnePublication,
    /// The kubelet may miss publications.
    Any,
}

/// The documents, and everything that a file can hold.
struct World {
    snapshots: Vec<Snapshot>,
    /// Files of each document in the order in which they are written, by the published content of the file `core`.
    plans: HashMap<(usize, u8), Vec<(usize, u8)>>,
    contents: Vec<Vec<u8>>,
    /// Document and place of the core that each content of the file `core` names.
    placed: HashMap<u8, (usize, CoreLocation)>,
    numbers: HashMap<Vec<u8>, u8>,
    /// Results of reading contents as a core, by the pointer, or by 0 for the set that it does not name.
    read: HashMap<(u8, u8, Vec<u8>), Option<usize>>,
}

fn file_of(name: &str) -> usize {
    let name_of = |(set, part): (Option<CoreSet>, usize)| {
        set.map_or_else(|| files::CORE.to_owned(), |set| files::core_part(set, part))
    };
    FILES.iter().position(|file| name_of(*file) == name).unwrap()
}

/// Returns a snapshot whose core has this many parts, or is one object.
fn snapshot(number: usize, parts: usize) -> Snapshot {
    let of_size = |size: usize| {
        let environment = Environment {
            name: "e".to_owned(),
            client_key: "k".to_owned(),
            features: vec![Feature {
                id: 1,
                name: "f".to_owned(),
                kind: "STANDARD".to_owned(),
                served: true,
                server_only: false,
                default: Context { enabled: true, value: format!("\"{number}{}\"", "x".repeat(size)), split: None },
            }],
            ..Environment::default()
        };
        let written = write(&environment, usize::MAX).unwrap();
        let core = written.files.into_iter().next().unwrap();
        Snapshot::new(Revision::new(written.revision.to_string()), vec![File::new(core.name, core.bytes)])
    };
    let mut sizes = (0..100).map(|steps| 100 + steps * 50_000);
    sizes.find_map(|size| Some(of_size(size)).filter(|snapshot| snapshot.core_parts() == parts)).unwrap()
}

impl World {
    fn new(parts: &[usize]) -> Self {
        Self {
            snapshots: parts.iter().enumerate().map(|(number, parts)| snapshot(number, *parts)).collect(),
            plans: HashMap::new(),
            contents: vec![Vec::new()],
            placed: HashMap::new(),
            numbers: HashMap::new(),
            read: HashMap::new(),
        }
    }

    /// Returns the files of a document in the order in which the publisher writes them over this content of the file
    /// `core`.
    fn plan(&mut self, document: usize, core: u8) -> Vec<(usize, u8)> {
        if let Some(known) = self.plans.get(&(document, core)) {
            return known.clone();
        }
        let before = self.placed.get(&core).map(|(_, placed)| placed.clone());
        let snapshot = self.snapshots[document].clone();
        let placed = CoreLocation::next(&snapshot, before.as_ref());
        let published = || File::new(files::CORE.to_owned(), self.contents[usize::from(core)].clone());
        let kept = placed.set.filter(|_| placed.outgrows(before.as_ref())).map(|set| kept(published(), set).into());
        let contents = snapshot.contents(placed.set.unwrap_or(CoreSet::A)).unwrap();
        let ordered = order(contents, before.as_ref(), &placed, kept);
        let plan: Vec<_> =
            ordered.iter().map(|content| (file_of(&content.file), self.number(&content.bytes))).collect();
        let (last, written) = *plan.last().unwrap();
        assert_eq!(last, CORE, "the core is written last");
        self.placed.insert(written, (document, placed));
        self.plans.insert((document, core), plan.clone());
        plan
    }

    fn number(&mut self, bytes: &[u8]) -> u8 {
        if let Some(number) = self.numbers.get(bytes) {
            return *number;
        }
        let number = u8::try_from(self.contents.len()).unwrap();
        self.contents.push(bytes.to_vec());
        self.numbers.insert(bytes.to_vec(), number);
        number
    }

    /// Returns the next object that the publisher writes, and its content.
    fn next_write(&mut self, state: &State) -> Option<(usize, u8)> {
        let plan = self.plan(state.newest, state.published[CORE]);
        plan.into_iter().find(|(file, content)| state.published[*file] != *content)
    }

    /// Reads files as one core, and returns the number of its document.
    fn read(&mut self, pointer: u8, other: bool, parts: &[u8]) -> Option<usize> {
        let key = (pointer, u8::from(other), parts.to_vec());
        if let Some(known) = self.read.get(&key) {
            return *known;
        }
        let bytes = parts.iter().map(|part| self.contents[usize::from(*part)].as_slice()).collect::<Vec<_>>().concat();
        let pointer = Pointer::read(&self.contents[usize::from(pointer)]).unwrap();
        let read = match (&pointer, other) {
            (None, _) => remora_snapshot::Snapshot::read(bytes.as_slice()),
            (Some(pointer), false) => remora_snapshot::Snapshot::read_parts(bytes.as_slice(), pointer),
            (Some(pointer), true) => remora_snapshot::Snapshot::read_other_parts(bytes.as_slice(), pointer),
        };
        let revision = read.ok().map(|read| Revision::new(read.revision().to_string()));
        let number = self.snapshots.iter().position(|snapshot| Some(&snapshot.revision) == revision.as_ref());
        assert_eq!(number.is_some(), revision.is_some(), "a core that nobody published");
        self.read.insert(key, number);
        number
    }

    /// Returns the document that a sidecar serves after it has read the volume.
    fn serve(&mut self, volume: &Volume, serving: Option<usize>) -> Option<usize> {
        let core = volume[CORE];
        if core == 0 {
            return serving;
        }
        let Some(pointer) = Pointer::read(&self.contents[usize::from(core)]).unwrap() else {
            return self.read(core, false, &[core]);
        };
        let parts = |set: CoreSet, length: usize| -> Vec<u8> {
            let count = files::part_lengths(length).count();
            let of_set = (1..FILES.len()).filter(|file| FILES[*file].0 == Some(set));
            of_set.take(count).map(|file| volume[file]).collect()
        };
        let pointed = self.read(core, false, &parts(pointer.set(), pointer.length()));
        if pointed.is_some() || serving.is_some() {
            return pointed.or(serving);
        }
        let other = pointer.set().other();
        let first = &self.contents[usize::from(parts(other, 1)[0])];
        let length = remora_snapshot::core_length(first).ok()?;
        self.read(core, true, &parts(other, length))
    }

    /// Returns the states that one action can lead to.
    fn successors(&mut self, state: &State, lag: Lag) -> Vec<State> {
        let mut next = Vec::new();
        if state.newest + 1 < self.snapshots.len() {
            next.push(State { newest: state.newest + 1, ..*state });
        }
        if (lag == Lag::Any || state.owed == 0)
            && let Some((file, content)) = self.next_write(state)
        {
            let mut written = *state;
            written.published[file] = content;
            written.unseen |= 1 << file;
            if file == CORE {
                written.owed = written.unseen;
                let grows = self.placed.get(&state.published[CORE]).is_none_or(|(_, before)| before.set.is_none());
                written.grown |= u8::from(grows) << state.newest;
            }
            next.push(written);
        }
        for file in (0..FILES.len()).filter(|file| state.observed[*file] != state.published[*file]) {
            let mut observed = *state;
            observed.observed[file] = state.published[file];
            observed.unseen &= !(1 << file);
            observed.owed &= !(1 << file);
            next.push(observed);
        }
        next.push(State { volume: state.observed, ..*state });
        next.push(State { serving: self.serve(&state.volume, state.serving), ..*state });
        next.push(State { serving: self.serve(&state.volume, None), ..*state });
        next
    }

    /// Lets everybody finish, and returns what the sidecar serves then.
    fn settled(&mut self, state: &State) -> Option<usize> {
        let mut state = *state;
        for writes in 0.. {
            assert!(writes <= FILES.len(), "the publisher writes for ever: {state:?}");
            let Some((file, content)) = self.next_write(&state) else { break };
            state.published[file] = content;
        }
        self.serve(&state.published, state.serving)
    }
}

/// Visits every state, checks what holds in each, and returns the number of states, and of states in which a sidecar
/// that starts finds nothing.
fn search(parts: &[usize], lag: Lag) -> (usize, usize) {
    let mut world = World::new(parts);
    let nothing = Volume::default();
    let first = State {
        published: nothing,
        observed: nothing,
        volume: nothing,
        unseen: 0,
        owed: 0,
        grown: 0,
        newest: 0,
        serving: None,
    };
    let (mut seen, mut queue) = (HashSet::from([first]), VecDeque::from([first]));
    let mut settled: HashMap<(Volume, usize, Option<usize>), Option<usize>> = HashMap::new();
    let mut lost = 0;
    while let Some(state) = queue.pop_front() {
        let after = world.serve(&state.volume, state.serving);
        assert!(lag == Lag::Any || after >= state.serving, "an older revision replaces a newer one: {state:?}");
        let key = (state.published, state.newest, state.serving);
        let end = *settled.entry(key).or_insert_with(|| world.settled(&state));
        assert_eq!(end, Some(state.newest), "{state:?}");
        if state.volume[CORE] != 0 && world.serve(&state.volume, None).is_none() {
            lost += 1;
            // Kubelet may observe the pointer before it observes the core that was kept.
            let (document, _) = world.placed[&state.volume[CORE]];
            let has_grown = state.grown >> document & 1 != 0;
            assert!(lag == Lag::Any || has_grown, "a sidecar that starts finds nothing: {state:?}");
        }
        for next in world.successors(&state, lag) {
            if seen.insert(next) {
                queue.push_back(next);
            }
        }
    }
    (seen.len(), lost)
}

#[test]
fn sidecar_that_starts_finds_whole_core_while_parts_change() {
    let (states, _) = search(&[2, 2, 2, 2], Lag::OnePublication);
    assert!(states > 10_000, "{states}");
}

#[test]
fn sidecar_that_starts_finds_whole_core_while_core_grows_and_shrinks() {
    let (states, _) = search(&[0, 2, 2, 0, 2], Lag::OnePublication);
    assert!(states > 10_000, "{states}");
}

/// Until the kubelet has observed everything, a start may find nothing.
#[test]
fn kubelet_that_misses_publications_ends_with_newest_revision() {
    let (states, lost) = search(&[0, 2, 2, 2], Lag::Any);
    assert!(states > 10_000 && lost > 0, "{states}, {lost}");
}
