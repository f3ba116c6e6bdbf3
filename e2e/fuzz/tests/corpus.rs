//! Tests that replay every file of `corpus/` without an engine, so that a repaired fault stays repaired on every
//! platform.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::Builder;
use std::time::Duration;

use remora_fuzz::{TARGETS, target};

/// Time limit for one file. Only an input that never ends reaches it.
const PATIENCE: Duration = Duration::from_secs(120);
/// Stack size in bytes, as of the main thread of a program.
const STACK: usize = 8 << 20;

fn directory(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn names(directory: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect()
}

/// Runs a target on all its files. Panics at the first file on which the target panics or does not end.
fn replay(name: &str) {
    let run = target(name).unwrap().run;
    let directory = directory("corpus").join(name);
    let mut files: Vec<PathBuf> = std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{} is empty", directory.display());
    let (done, finished) = channel();
    let inputs = files.clone();
    let worker = Builder::new().stack_size(STACK).spawn(move || {
        for file in inputs {
            run(&std::fs::read(file).unwrap());
            done.send(()).unwrap();
        }
    });
    for file in &files {
        match finished.recv_timeout(PATIENCE) {
            Ok(()) => {}
            Err(RecvTimeoutError::Timeout) => panic!("{} does not end", file.display()),
            Err(RecvTimeoutError::Disconnected) => panic!("target {name} panicked on {}: see above", file.display()),
        }
    }
    worker.unwrap().join().unwrap();
}

macro_rules! corpora {
    ($($test:ident $target:literal)+) => {
        $(
            #[test]
            fn $test() {
                replay($target);
            }
        )+

        #[test]
        fn every_target_has_test_program_and_corpus() {
            let targets: BTreeSet<String> = TARGETS.iter().map(|target| target.name.to_owned()).collect();
            assert_eq!(BTreeSet::from([$($target.to_owned()),+]), targets);
            assert_eq!(names(&directory("fuzz_targets")), targets);
            assert_eq!(names(&directory("corpus")), targets);
            assert!(names(&directory("dictionaries")).is_subset(&targets));
            let manifest = std::fs::read_to_string(directory("Cargo.toml")).unwrap();
            for target in &targets {
                assert!(manifest.contains(&format!("path = \"fuzz_targets/{target}.rs\"")), "no program for {target}");
            }
        }
    };
}

corpora! {
    annotations_in_corpus_hold "annotations"
    documents_in_corpus_hold "document"
    heads_in_corpus_hold "heads"
    jsonpaths_in_corpus_hold "jsonpath"
    patterns_in_corpus_hold "regex"
    requests_in_corpus_hold "requests"
    reviews_in_corpus_hold "reviews"
    snapshots_in_corpus_hold "snapshot"
}
