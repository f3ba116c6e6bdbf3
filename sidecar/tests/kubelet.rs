//! Tests of volumes that kubelet was killed in the middle of writing: between any two of its system calls, a sidecar that
//! runs and a sidecar that starts find one whole revision.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use remora_compile::compile_to_files_of;
use remora_compile::document::{self, Original};
use remora_compile::prune::{Rules, prune};
use remora_sidecar::{Level, Reader, Served, set_level};
use remora_snapshot::files::{CoreSet, MAX_FILE_BYTES, PART_BYTES, REVISION};
use remora_snapshot::{Written, write};
use support::document::source;
use support::environment::{CLIENT_KEY, environment, sharded, written};
use support::volume::{Directory, in_parts};

/// Content of each file of a volume.
type Files = BTreeMap<String, Vec<u8>>;

/// A system call of kubelet's atomic writer that changes the volume.
#[derive(Debug, Clone)]
enum Call {
    MakeDirectory(PathBuf),
    ChangeMode(PathBuf),
    Open(PathBuf),
    Append(PathBuf, Vec<u8>),
    Link { target: PathBuf, link: PathBuf },
    Rename { from: PathBuf, to: PathBuf },
    Unlink(PathBuf),
    RemoveDirectory(PathBuf),
}

impl Call {
    fn run(&self) -> io::Result<()> {
        match self {
            Call::MakeDirectory(path) => fs::create_dir(path),
            Call::ChangeMode(path) => fs::set_permissions(path, Permissions::from_mode(0o755)),
            Call::Open(path) => File::create(path).map(drop),
            Call::Append(path, bytes) => OpenOptions::new().append(true).open(path)?.write_all(bytes),
            Call::Link { target, link } => symlink(target, link),
            Call::Rename { from, to } => fs::rename(from, to),
            Call::Unlink(path) => fs::remove_file(path),
            Call::RemoveDirectory(path) => fs::remove_dir(path),
        }
    }
}

/// Kubelet's atomic writer, as of Kubernetes 1.34 (`pkg/volume/util/atomic_writer.go`), over one volume.
struct Writer {
    volume: PathBuf,
    /// Number of directories that were made.
    made: u32,
}

impl Writer {
    /// Lists the system calls that write these files, from what the volume has now.
    fn calls(&mut self, files: &Files) -> Vec<Call> {
        self.made += 1;
        let name = format!("..2026_11_21_02_00_00.{}", self.made);
        let (directory, data) = (self.volume.join(&name), self.volume.join("..data"));
        let old = fs::read_link(&data).ok();
        let mut calls = vec![Call::MakeDirectory(directory.clone()), Call::ChangeMode(directory.clone())];
        for (file, bytes) in files {
            let path = directory.join(file);
            // A write of many bytes may be interrupted.
            let (half, rest) = bytes.split_at(bytes.len() / 2);
            calls.push(Call::Open(path.clone()));
            calls.extend([half, rest].map(|bytes| Call::Append(path.clone(), bytes.to_vec())));
            calls.push(Call::ChangeMode(path));
        }
        let temporary = self.volume.join("..data_tmp");
        calls.push(Call::Link { target: name.into(), link: temporary.clone() });
        calls.push(Call::Rename { from: temporary, to: data });
        for file in files.keys() {
            let link = self.volume.join(file);
            if fs::symlink_metadata(&link).is_err() {
                calls.push(Call::Link { target: Path::new("..data").join(file), link });
            }
        }
        let Some(old) = old.map(|old| self.volume.join(old)) else { return calls };
        let before: Vec<_> = fs::read_dir(&old).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        let gone = before.iter().filter(|file| !files.contains_key(file.to_str().unwrap()));
        calls.extend(gone.map(|file| Call::Unlink(self.volume.join(file))));
        calls.extend(before.iter().map(|file| Call::Unlink(old.join(file))));
        calls.push(Call::RemoveDirectory(old));
        calls
    }

    fn write(&mut self, files: &Files) -> io::Result<()> {
        self.calls(files).iter().try_for_each(Call::run)
    }
}

/// A directory with the volume of one environment.
struct Pod {
    directory: Directory,
    writer: Writer,
}

impl Pod {
    /// Creates the volume, with these files if there are any.
    fn new(files: Option<&Files>) -> Pod {
        set_level(Level::Error);
        let directory = Directory::new();
        let mut writer = Writer { volume: directory.volume("shop").path, made: 0 };
        if let Some(files) = files {
            writer.write(files).unwrap();
        }
        Pod { directory, writer }
    }

    fn sidecar(&self) -> Reader {
        Reader::new(self.directory.path(), "shop")
    }
}

fn files_of(files: impl IntoIterator<Item = remora_snapshot::File>) -> Files {
    files.into_iter().map(|file| (file.name, file.bytes)).collect()
}

/// Returns a core in two parts, and the pointer to them.
fn parts(revision: u32, set: CoreSet) -> Files {
    let mut environment = environment("shop", CLIENT_KEY, revision);
    // The core has the value three times.
    environment.features[0].default.value = format!("\"{}\"", "x".repeat(PART_BYTES / 2));
    environment.identity_overrides.clear();
    let written: Written = write(&environment, MAX_FILE_BYTES).unwrap();
    let files: Files = in_parts(&written, set).into_iter().collect();
    assert_eq!(files.len(), 3);
    files
}

/// Returns a core and overrides, and the environment's document in several files if it is served.
fn documents(limit: u32, is_served: bool) -> Files {
    let bytes = serde_json::to_vec(&source(limit, 400)).unwrap();
    let pruned = prune(document::parse(&bytes).unwrap(), &Rules::default());
    let original = is_served.then(|| Original::new(bytes));
    let options = remora_compile::Options {
        environment: "shop",
        document: original.as_ref(),
        ..remora_compile::Options::default()
    };
    let files = files_of(compile_to_files_of(3_000, &pruned, &options).unwrap().files);
    assert!(files.contains_key("document-01") == is_served && files.contains_key("overrides-00"), "{:?}", files.keys());
    files
}

/// Returns the volumes before and after each kind of change.
fn changes() -> Vec<(&'static str, Option<Files>, Files)> {
    let core = |revision| files_of(written(revision).files);
    let shards = |revision, overrides| files_of(sharded(revision, overrides).files);
    assert!(shards(1, 800).len() > 2);
    // The pod's annotation, which kubelet writes beside the files of the objects.
    let annotated = |revision| {
        let written = written(revision);
        let marker = (REVISION.to_owned(), written.revision.to_string().into_bytes());
        files_of(written.files).into_iter().chain([marker]).collect::<Files>()
    };
    let of_two_parts = parts(2, CoreSet::A);
    let mut kept = of_two_parts.clone();
    kept.insert("core-b-00".to_owned(), core(1).remove("core").unwrap());
    let mut next = of_two_parts.clone();
    next.extend(parts(3, CoreSet::B));
    vec![
        ("the first core", None, core(1)),
        ("core", Some(core(1)), core(2)),
        ("overrides", Some(shards(1, 800)), shards(2, 800)),
        ("more overrides", Some(core(1)), shards(2, 800)),
        ("fewer overrides", Some(shards(1, 800)), core(2)),
        ("a first revision file", Some(core(1)), annotated(2)),
        ("revision file", Some(annotated(1)), annotated(2)),
        ("document", Some(documents(1, true)), documents(2, true)),
        ("a document that is added", Some(documents(1, false)), documents(2, true)),
        ("a document that is removed", Some(documents(1, true)), documents(2, false)),
        ("a core that grows into parts", Some(core(1)), kept),
        ("parts that shrink into a core", Some(of_two_parts.clone()), core(4)),
        ("parts", Some(of_two_parts), next),
    ]
}

/// Returns what a sidecar that starts over these files serves.
fn served(files: &Files) -> Option<Served> {
    let pod = Pod::new(Some(files));
    let served = pod.sidecar().look();
    assert!(served.as_ref().is_some_and(|served| served.complete), "{:?}", files.keys());
    served
}

#[test]
fn volume_cut_between_any_two_system_calls_is_one_whole_revision() {
    for (what, before, after) in changes() {
        let (old, new) = (before.as_ref().and_then(served), served(&after));
        assert_ne!(old, new, "{what}");
        // One sidecar checks the volume after each call. Others start after a call and check it once.
        let mut pod = Pod::new(before.as_ref());
        let mut running = pod.sidecar();
        assert_eq!(running.look(), old, "{what}");
        let calls = pod.writer.calls(&after);
        let renamed = calls.iter().position(|call| matches!(call, Call::Rename { .. })).unwrap();
        for (number, call) in calls.iter().enumerate() {
            call.run().unwrap();
            let expected = if number < renamed { &old } else { &new };
            assert_eq!(running.look(), *expected, "{what}: a running sidecar after {call:?}");
            assert_eq!(pod.sidecar().look(), *expected, "{what}: a sidecar that starts after {call:?}");
        }
    }
}

/// A kubelet that starts again writes the volume again, over the files of the killed one. Only the link `..data_tmp`
/// stops it, because kubelet does not replace an existing one. Then the pod keeps the previous revision until it is
/// replaced, and the controller reports it as behind.
#[test]
fn volume_written_again_after_any_cut_is_the_next_revision_or_stays_whole() {
    // The time of this test is waiting.
    std::thread::scope(|scope| {
        for (what, before, after) in changes() {
            scope.spawn(move || assert_survives_second_writer(what, before.as_ref(), &after));
        }
    });
}

/// Cuts a change after each of its calls and writes it again.
fn assert_survives_second_writer(what: &str, before: Option<&Files>, after: &Files) {
    let (old, new) = (before.and_then(served), served(after));
    let mut stuck = 0;
    for survives in 0.. {
        let mut pod = Pod::new(before);
        let mut running = pod.sidecar();
        assert_eq!(running.look(), old, "{what}");
        let calls = pod.writer.calls(after);
        calls.iter().take(survives).for_each(|call| call.run().unwrap());
        let has_link = fs::symlink_metadata(pod.writer.volume.join("..data_tmp")).is_ok();
        // Where the file system counts time in coarse steps, a directory that is made in the same step as the one
        // before it may have its inode, and cannot be told from it.
        std::thread::sleep(Duration::from_millis(20));
        let written = pod.writer.write(after);
        assert_eq!(written.is_err(), has_link, "{what}, after {survives} calls: {written:?}");
        stuck += usize::from(has_link);
        let expected = if has_link { &old } else { &new };
        assert_eq!(running.look(), *expected, "{what}, after {survives} calls");
        assert_eq!(pod.sidecar().look(), *expected, "{what}, after {survives} calls");
        if survives >= calls.len() {
            break;
        }
    }
    assert_eq!(stuck, 1, "{what}: between two calls only");
}
