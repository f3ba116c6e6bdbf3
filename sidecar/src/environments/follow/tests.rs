//! Tests of cores in parts: kubelet brings the files of a revision in any order, one by one. A sidecar serves one
//! revision or another, and never a mix. A sidecar that starts in between finds one.

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::sync::atomic::AtomicU32;

use remora_snapshot::files::{self, CORE, CoreSet, PART_BYTES, core_part};
use remora_snapshot::model::{self, Context, Feature};
use remora_snapshot::{FlagOverride, OverriddenBy, Role, Snapshot, pointer, write};

use super::*;

/// Name and content of a file.
type Named = (String, Vec<u8>);

/// Content of a directory, by name.
type Files = BTreeMap<String, Vec<u8>>;

/// Writes a core with a value of `bytes` bytes. The revision is in all of them.
fn core_of(client_key: &str, revision: u8, bytes: usize) -> Vec<u8> {
    let value = format!("\"{}\"", char::from(b'a' + revision).to_string().repeat(bytes));
    let default = Context { enabled: true, value, split: None };
    let (name, kind) = ("large".to_owned(), "STANDARD".to_owned());
    let features = vec![Feature { id: 1, name, kind, served: true, server_only: false, default }];
    let environment = model::Environment { client_key: client_key.to_owned(), features, ..Default::default() };
    write(&environment, files::MAX_FILE_BYTES).unwrap().files.swap_remove(0).bytes
}

/// Writes a core of two parts.
fn core(revision: u8) -> Vec<u8> {
    // The value is in the core twice.
    let core = core_of("client", revision, PART_BYTES / 4 * 3);
    assert_eq!(files::part_lengths(core.len()).count(), 2, "{} bytes", core.len());
    core
}

/// Writes a core that fits into one file.
fn small_core(revision: u8) -> Vec<u8> {
    core_of("client", revision, 1_000)
}

fn parts(set: CoreSet, core: &[u8]) -> Vec<Named> {
    files::parts(core).enumerate().map(|(part, bytes)| (core_part(set, part), bytes.to_vec())).collect()
}

/// Returns the file `core` of a core in parts.
fn named(set: CoreSet, core: &[u8]) -> Named {
    (CORE.to_owned(), pointer(core, set).unwrap())
}

fn revision(core: &[u8]) -> String {
    Snapshot::read(core).unwrap().revision().to_string()
}

/// A volume in a temporary directory, and a sidecar that follows it.
struct Pod {
    directory: PathBuf,
    written: u32,
    follower: FollowedVolume,
    environment: Environment,
}

impl Pod {
    fn new() -> Pod {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("remora-parts-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let (follower, environment) = Pod::start(&directory);
        Pod { directory, written: 0, follower, environment }
    }

    fn start(directory: &Path) -> (FollowedVolume, Environment) {
        (FollowedVolume::new(directory.to_owned(), false), Environment::new("shop".to_owned(), Arc::default()))
    }

    /// Starts the sidecar again.
    fn restart(&mut self) {
        (self.follower, self.environment) = Pod::start(&self.directory);
    }

    /// Writes the volume as kubelet does.
    fn write(&mut self, files: &Files) {
        self.written += 1;
        let name = format!("..{}", self.written);
        let directory = self.directory.join(&name);
        std::fs::create_dir(&directory).unwrap();
        for (file, bytes) in files {
            std::fs::write(directory.join(file), bytes).unwrap();
        }
        symlink(&name, self.directory.join("..data_tmp")).unwrap();
        std::fs::rename(self.directory.join("..data_tmp"), self.directory.join("..data")).unwrap();
        let _ = std::fs::remove_dir_all(self.directory.join(format!("..{}", self.written - 1)));
    }

    /// Returns the revision that is served after a check of the volume, and whether it is the one that `core` names.
    fn serves(&mut self) -> Option<(String, bool)> {
        self.follower.check(&self.environment);
        let loaded = self.environment.loaded.load();
        let loaded = loaded.as_ref()?;
        // All of the value is of this revision.
        let flags = loaded.snapshot.flags(Role::Client);
        let value = flags.windows(2).filter(|pair| *pair == [flags[flags.len() / 2]; 2]).count();
        assert!(value > 900 && value + 200 > flags.len(), "{value} of {} bytes", flags.len());
        Some((loaded.snapshot.revision().to_string(), loaded.complete))
    }

    fn incomplete(&self) -> u64 {
        self.environment.reloads.of(Reload::Incomplete)
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Calls `each` for every choice of one element of each list.
fn every_choice<T: Clone>(lists: &[Vec<T>], mut each: impl FnMut(&[T])) {
    let count: usize = lists.iter().map(Vec::len).product();
    for number in 0..count {
        let mut rest = number;
        let chosen: Vec<T> = lists
            .iter()
            .map(|list| {
                let index = rest % list.len();
                rest /= list.len();
                list[index].clone()
            })
            .collect();
        each(&chosen);
    }
}

#[test]
fn next_revision_is_served_only_as_a_whole_whatever_has_arrived() {
    let [earlier, before, next] = [core(0), core(1), core(2)];
    let published: Files = parts(CoreSet::A, &before).into_iter().chain([named(CoreSet::A, &before)]).collect();
    // Each file of set b may be missing, of the revision before the last, or new; `core` may be old or new.
    let (new, old) = (parts(CoreSet::B, &next), parts(CoreSet::B, &earlier));
    let mut choices: Vec<Vec<Option<Named>>> =
        new.iter().zip(old).map(|(new, old)| vec![None, Some(old), Some(new.clone())]).collect();
    choices.push(vec![Some(named(CoreSet::A, &before)), Some(named(CoreSet::B, &next))]);
    let (mut swapped, mut fallbacks) = (0, 0);
    every_choice(&choices, |arrived| {
        let mut files = published.clone();
        files.extend(arrived.iter().flatten().cloned());
        let is_named = files[CORE] != published[CORE];
        let is_whole = new.iter().all(|(name, bytes)| files.get(name) == Some(bytes));
        let expected = if is_named && is_whole { revision(&next) } else { revision(&before) };

        let mut pod = Pod::new();
        pod.write(&published);
        assert_eq!(pod.serves(), Some((revision(&before), true)));
        pod.write(&files);
        assert_eq!(pod.serves(), Some((expected.clone(), true)), "{is_named} {is_whole}");
        assert_eq!(pod.incomplete(), u64::from(is_named && !is_whole));
        // Looking again changes nothing, and is not counted again.
        assert_eq!(pod.serves(), Some((expected.clone(), true)));
        assert_eq!(pod.incomplete(), u64::from(is_named && !is_whole));

        pod.restart();
        assert_eq!(pod.serves(), Some((expected, !is_named || is_whole)));
        assert_eq!(pod.incomplete(), u64::from(is_named && !is_whole));
        swapped += usize::from(is_named && is_whole);
        fallbacks += usize::from(is_named && !is_whole);

        // The rest arrives.
        files.extend(new.iter().cloned().chain([named(CoreSet::B, &next)]));
        pod.write(&files);
        assert_eq!(pod.serves(), Some((revision(&next), true)));
    });
    assert_eq!((swapped, fallbacks), (1, 8));
}

/// The writer publishes twice while kubelet brings only some files. The set of the first revision is overwritten then.
#[test]
fn two_revisions_ahead_are_never_mixed() {
    let [before, next, last] = [core(1), core(2), core(3)];
    let (old, new) = (parts(CoreSet::A, &before), parts(CoreSet::A, &last));
    let mut choices: Vec<Vec<Named>> = old.iter().zip(&new).map(|(old, new)| vec![old.clone(), new.clone()]).collect();
    choices.push(vec![named(CoreSet::A, &before), named(CoreSet::B, &next), named(CoreSet::A, &last)]);
    every_choice(&choices, |arrived| {
        let files: Files = arrived.iter().cloned().chain(parts(CoreSet::B, &next)).collect();
        let holds = |parts: &[Named]| parts.iter().all(|(name, bytes)| files[name] == *bytes);
        let is_named = |set, core: &[u8]| files[CORE] == named(set, core).1;
        let (expected, complete) = match () {
            () if is_named(CoreSet::A, &before) && holds(&old) => (revision(&before), true),
            () if is_named(CoreSet::A, &last) && holds(&new) => (revision(&last), true),
            () => (revision(&next), is_named(CoreSet::B, &next)),
        };
        let mut pod = Pod::new();
        pod.write(&files);
        assert_eq!(pod.serves(), Some((expected, complete)));
    });
}

#[test]
fn core_that_outgrows_a_file_is_served_before_and_after_and_shrinks_again() {
    let (small, large) = (small_core(1), core(2));
    let of_one = (core_part(CoreSet::B, 0), small.clone());
    let published: Files = [(CORE.to_owned(), small.clone())].into();
    let mut choices: Vec<Vec<Option<Named>>> =
        parts(CoreSet::A, &large).into_iter().map(|part| vec![None, Some(part)]).collect();
    choices.push(vec![None, Some(of_one.clone())]);
    choices.push(vec![None, Some(named(CoreSet::A, &large))]);
    every_choice(&choices, |arrived| {
        let mut files = published.clone();
        files.extend(arrived.iter().flatten().cloned());
        let is_named = files[CORE] != small;
        let is_whole = (0..2).all(|part| files.contains_key(&core_part(CoreSet::A, part)));
        let expected = if is_named && is_whole { revision(&large) } else { revision(&small) };
        let mut pod = Pod::new();
        pod.write(&published);
        assert_eq!(pod.serves(), Some((revision(&small), true)));
        pod.write(&files);
        assert_eq!(pod.serves(), Some((expected.clone(), true)));
        pod.restart();
        if is_named && !is_whole && !files.contains_key(&of_one.0) {
            assert_eq!(pod.serves(), None, "the writer puts the small core into set b first");
            assert_eq!(pod.incomplete(), 1);
        } else {
            assert_eq!(pod.serves(), Some((expected, !is_named || is_whole)));
        }
        // The core shrinks, and the parts stay for a while.
        files.insert(CORE.to_owned(), small.clone());
        pod.write(&files);
        assert_eq!(pod.serves(), Some((revision(&small), true)));
    });
}

#[test]
fn damaged_part_leaves_what_is_served_and_a_start_finds_the_other_set() {
    let [before, next] = [core(1), core(2)];
    let published: Files = parts(CoreSet::A, &before).into_iter().chain([named(CoreSet::A, &before)]).collect();
    let good = parts(CoreSet::B, &next);
    for (number, (name, bytes)) in good.iter().enumerate() {
        let mut flipped = bytes.clone();
        flipped[bytes.len() / 2] ^= 1;
        let longer = [bytes.as_slice(), b"x"].concat();
        let other = good[1 - number].1.clone();
        for damaged in [flipped, longer, bytes[1..].to_vec(), Vec::new(), other] {
            let mut files = published.clone();
            files.extend(good.iter().cloned().chain([(name.clone(), damaged), named(CoreSet::B, &next)]));
            let mut pod = Pod::new();
            pod.write(&published);
            assert_eq!(pod.serves(), Some((revision(&before), true)));
            pod.write(&files);
            assert_eq!(pod.serves(), Some((revision(&before), true)));
            pod.restart();
            assert_eq!(pod.serves(), Some((revision(&before), false)));
            assert_eq!(pod.incomplete(), 1);
        }
    }
}

#[test]
fn set_of_another_environment_is_not_served() {
    let (next, foreign) = (core(2), core_of("other", 1, PART_BYTES / 4 * 3));
    let mut files: Files = parts(CoreSet::B, &foreign).into_iter().chain([named(CoreSet::A, &next)]).collect();
    let mut pod = Pod::new();
    pod.write(&files);
    assert_eq!(pod.serves(), None);
    assert_eq!(pod.incomplete(), 1);
    files.extend(parts(CoreSet::A, &next));
    pod.write(&files);
    assert_eq!(pod.serves(), Some((revision(&next), true)));
}

#[test]
fn damaged_pointer_is_refused() {
    let before = core(1);
    let mut files: Files = parts(CoreSet::A, &before).into_iter().chain([named(CoreSet::A, &before)]).collect();
    let mut pod = Pod::new();
    pod.write(&files);
    assert_eq!(pod.serves(), Some((revision(&before), true)));
    files.get_mut(CORE).unwrap()[70] ^= 1;
    pod.write(&files);
    assert_eq!(pod.serves(), Some((revision(&before), true)));
    assert_eq!(pod.environment.reloads.of(Reload::Refused), 1);
    pod.restart();
    assert_eq!(pod.serves(), None);
}

/// Writes the overrides of so many identities, as files of about 10,000 bytes.
fn with_overrides(identities: u32) -> Files {
    let (name, kind) = ("limit".to_owned(), "STANDARD".to_owned());
    let default = Context { enabled: true, value: "1".to_owned(), split: None };
    let features = vec![Feature { id: 1, name, kind, served: true, server_only: false, default }];
    let identity_overrides = (0..identities)
        .map(|number| model::IdentityOverride {
            identifier: format!("user {number}"),
            flags: vec![model::IdentityFlag { feature: 1, enabled: true, value: number.to_string(), variant: None }],
        })
        .collect();
    let client_key = "client".to_owned();
    let environment = model::Environment { client_key, features, identity_overrides, ..Default::default() };
    write(&environment, 10_000).unwrap().files.into_iter().map(|file| (file.name, file.bytes)).collect()
}

fn overrides_bytes(files: &Files) -> usize {
    files.iter().filter(|(name, _)| *name != CORE).map(|(_, bytes)| bytes.len()).sum()
}

impl Pod {
    /// Size of the overrides files that are served, and the state.
    fn loads(&mut self, files: &Files) -> (usize, u64) {
        self.write(files);
        self.follower.check(&self.environment);
        let loaded = self.environment.loaded.load();
        let loaded = loaded.as_ref().unwrap();
        assert!(loaded.complete);
        let kept: usize = self.follower.overrides.iter().flatten().map(|file| file.as_ref().len()).sum();
        assert_eq!(kept, loaded.sizes.overrides);
        (kept, loaded.content_hash)
    }

    fn reloads(&self, reload: Reload) -> u64 {
        self.environment.reloads.of(reload)
    }
}

#[test]
fn leftover_overrides_files_are_not_kept() {
    let (many, few) = (with_overrides(2_000), with_overrides(700));
    assert!(many.len() > few.len() && few.len() > 2, "{} and {} files", many.len(), few.len());
    let mut with_leftovers = many.clone();
    with_leftovers.extend(few.clone());
    for start in [&many, &with_leftovers] {
        let mut pod = Pod::new();
        pod.loads(start);
        let (bytes, state) = pod.loads(&with_leftovers);
        assert_eq!(bytes, overrides_bytes(&few));
        // The operator deletes the leftovers later.
        assert_eq!(pod.loads(&few), (bytes, state));
        assert!(pod.reloads(Reload::Same) >= 1 && pod.reloads(Reload::PartRefused) == 0);
        let (bytes, _) = pod.loads(&many);
        assert_eq!(bytes, overrides_bytes(&many));
    }
}

#[test]
fn overrides_file_under_the_name_of_another_is_refused() {
    let good = with_overrides(2_000);
    let [first, second] = [files::overrides(0), files::overrides(1)];
    let mut swapped = good.clone();
    swapped.insert(first.clone(), good[&second].clone());
    swapped.insert(second, good[&first].clone());
    let mut pod = Pod::new();
    let served = pod.loads(&good);
    assert_eq!(pod.loads(&swapped), served, "the last good files stay");
    assert_eq!(pod.reloads(Reload::PartRefused), 1);
    let problem = |pod: &Pod| pod.follower.problem.as_ref().map(|problem| problem.text.clone()).unwrap();
    let (kept, missing) = ("the last good file is served in its place", "it has no earlier file");
    let text = problem(&pod);
    assert!(text.matches(kept).count() == 2 && !text.contains(missing), "{text}");
    // Without an earlier file, the first load serves what there is, and says so.
    pod.restart();
    pod.follower.check(&pod.environment);
    let loaded = pod.environment.loaded.load();
    assert!(!loaded.as_ref().unwrap().snapshot.is_whole());
    let text = problem(&pod);
    assert!(!text.contains(kept) && text.matches(missing).count() >= 2, "{text}");
    assert!(text.contains("identities with overrides in it get flags without these overrides"), "{text}");
}

#[test]
fn volume_written_again_with_equal_content_keeps_its_time() {
    let override_of =
        |flag: &str| FlagOverride { flag: flag.to_owned(), enabled: Some(false), value: None, by: OverriddenBy::Pod };
    for overrides in [vec![], vec![override_of("large")]] {
        let files = with_overrides(2_000);
        let mut pod = Pod::new();
        pod.environment.overrides = overrides.into();
        pod.loads(&files);
        let since = |pod: &Pod| pod.environment.loaded.load().as_ref().unwrap().since;
        let first = since(&pod);
        pod.loads(&files);
        assert_eq!((since(&pod), pod.reloads(Reload::Same)), (first, 1));
        pod.loads(&with_overrides(2_001));
        assert!(since(&pod) > first);
    }
}
