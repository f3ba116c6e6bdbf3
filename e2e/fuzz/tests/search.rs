//! Tests that run each target on a fixed number of changed inputs. The changes come from random numbers with a fixed
//! seed, so every run of a commit tries the same inputs.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::Builder;
use std::time::Duration;

use fastrand::Rng;
use remora_fuzz::engine::mutate_json;
use remora_fuzz::{target, words};

/// Number of inputs for each target. All targets together take about a minute.
const INPUTS: u64 = 1_500;
/// Largest number of changes of one input.
const MOST_CHANGES: usize = 8;
/// Largest length of an input in bytes.
const LONGEST: usize = 4096;
/// Time limit for one input. Only an input that never ends reaches it.
const PATIENCE: Duration = Duration::from_secs(120);
/// Stack size in bytes, as of the main thread of a program.
const STACK: usize = 8 << 20;

/// Returns the files of a target's corpus, sorted by name.
fn corpus(name: &str) -> Vec<Vec<u8>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
    let mut files: Vec<PathBuf> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.iter().map(|file| std::fs::read(file).unwrap()).collect()
}

/// Returns the input with this number.
fn input(name: &str, corpus: &[Vec<u8>], number: u64) -> Vec<u8> {
    let mut random = Rng::with_seed(number);
    let mut input = random.choice(corpus).unwrap().clone();
    input.truncate(LONGEST);
    let json: &[&str] = match name {
        "document" => &words::DOCUMENT,
        "reviews" => &words::REVIEWS,
        _ => &[],
    };
    if !json.is_empty() {
        let size = input.len();
        input.resize(LONGEST, 0);
        // With an odd seed, `mutate_json` changes the JSON, because it leaves only multiples of four to the engine.
        let seed = random.u32(..) | 1;
        let length = mutate_json(json, &mut input, size, LONGEST, seed, |_, size, _| size);
        input.truncate(length);
        return input;
    }
    for _ in 0..random.usize(1..=MOST_CHANGES) {
        change(&mut input, random.choice(corpus).unwrap(), &mut random);
    }
    input.truncate(LONGEST);
    input
}

/// Changes, inserts or removes bytes, or copies bytes of another input.
fn change(input: &mut Vec<u8>, other: &[u8], random: &mut Rng) {
    let at = random.usize(..=input.len());
    let some = |length: usize, random: &mut Rng| {
        let start = random.usize(..=length);
        start..random.usize(start..=length.min(start + 32))
    };
    match random.u8(..6) {
        0 | 1 if at < input.len() => input[at] = random.u8(..),
        2 if at < input.len() => input[at] ^= 1 << random.u8(..8),
        3 => input.insert(at, random.u8(..)),
        4 => drop(input.drain(some(input.len(), random))),
        _ => drop(input.splice(at..at, other[some(other.len(), random)].iter().copied())),
    }
}

/// Runs a target on its inputs. Panics at the first input on which the target panics or does not end, and saves that
/// input.
fn search(name: &'static str) {
    let run = target(name).unwrap().run;
    let (send, inputs) = channel();
    let worker = Builder::new().stack_size(STACK).spawn(move || {
        let corpus = corpus(name);
        for number in 0..INPUTS {
            let input = input(name, &corpus, number);
            send.send(input.clone()).unwrap();
            run(&input);
        }
    });
    let mut last = Vec::new();
    let kept = |input: &[u8]| {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("found-{name}"));
        std::fs::write(&path, input).unwrap();
        format!(
            "{} (keep it in e2e/fuzz/corpus/{name}, and replay it: cargo run -p remora-fuzz -- {name} FILE)",
            path.display()
        )
    };
    loop {
        match inputs.recv_timeout(PATIENCE) {
            Ok(input) => last = input,
            Err(RecvTimeoutError::Timeout) => panic!("target {name} does not end on {}", kept(&last)),
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    if worker.unwrap().join().is_err() {
        panic!("target {name} panicked: see above, on {}", kept(&last));
    }
}

#[test]
fn inputs_of_one_number_are_the_same() {
    for name in ["regex", "document"] {
        let corpus = corpus(name);
        assert!((0..100).all(|number| input(name, &corpus, number) == input(name, &corpus, number)));
        assert!((0..100).any(|number| !corpus.contains(&input(name, &corpus, number))));
    }
}

macro_rules! searches {
    ($($test:ident $target:literal)+) => {
        $(
            #[test]
            fn $test() {
                search($target);
            }
        )+
    };
}

searches! {
    changed_annotations_hold "annotations"
    changed_documents_hold "document"
    changed_heads_hold "heads"
    changed_jsonpaths_hold "jsonpath"
    changed_patterns_hold "regex"
    changed_requests_hold "requests"
    changed_reviews_hold "reviews"
    changed_snapshots_hold "snapshot"
}
