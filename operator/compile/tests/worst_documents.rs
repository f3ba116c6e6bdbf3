//! Tests that compilation has bounds in time, stack and memory: documents of 1 MiB in the worst shapes compile or are
//! refused on a small stack, and the memory stays within a multiple of the document.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "worst_documents/shapes.rs"]
mod shapes;

use std::sync::mpsc;
use std::time::Duration;

use shapes::SHAPES;

use remora_compile::document;
use remora_compile::prune::{Rules, prune};
use remora_compile::{EnvironmentFlags, MOST_FINDINGS, Options, compile};

/// Size of a document in bytes.
const SIZE: usize = 1 << 20;

/// Largest peak memory of a compilation, as a multiple of the document's size.
const MOST_MEMORY: usize = 64;

/// Stack size in bytes of the runtime's threads.
const STACK: usize = 2 << 20;

/// Timeout that only an endless or quadratic compilation exceeds.
const PATIENCE: Duration = Duration::from_secs(300);

/// Compiles a document, and returns its bytes and its number of findings, or the refusal.
fn outcome(text: &str, mode: EnvironmentFlags) -> Result<(Vec<u8>, usize), String> {
    let document = document::parse(text.as_bytes()).map_err(|error| error.to_string())?;
    let pruned = prune(document, &Rules::default());
    let options = Options { environment: "e", environment_flags: mode, ..Options::default() };
    let compiled = compile(&pruned, &options).map_err(|error| error.to_string())?;
    let bytes = compiled.files.into_iter().flat_map(|file| file.bytes).collect();
    Ok((bytes, compiled.findings.len()))
}

/// Compiles the document of a shape on a small stack, and asserts the limits on time and memory.
fn hold(name: &'static str, make: fn(usize) -> String, mode: EnvironmentFlags) {
    let (send, receive) = mpsc::channel();
    std::thread::Builder::new()
        .stack_size(STACK)
        .spawn(move || {
            let text = make(SIZE);
            let mut found = None;
            let memory = allocation_counter::measure(|| found = Some(outcome(&text, mode)));
            let _ = send.send((text.len(), memory.bytes_max as usize, found.unwrap()));
        })
        .unwrap();
    let (length, memory, found) =
        receive.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{name} {mode:?} does not end"));
    assert!(memory <= MOST_MEMORY * length.max(SIZE), "{name} {mode:?}: {length} bytes take {memory}");
    match found {
        Ok((bytes, findings)) => assert!(!bytes.is_empty() && findings <= MOST_FINDINGS + 10, "{name} {mode:?}"),
        Err(refusal) => assert!(refusal.len() < 1_000 && !refusal.contains('\n'), "{name} {mode:?}: {refusal}"),
    }
}

#[test]
fn worst_documents_end_within_memory_and_stack() {
    for (name, make) in SHAPES.iter().filter(|(name, _)| !name.starts_with("regex")) {
        hold(name, *make, EnvironmentFlags::Plain);
    }
}

#[test]
fn worst_documents_evaluated_without_identity_end_within_bounds() {
    for (name, make) in SHAPES.iter().filter(|(name, _)| name.contains("flags") || name.contains("reads")) {
        hold(name, *make, EnvironmentFlags::AllSegments);
    }
}

#[test]
fn worst_patterns_end_within_memory_and_stack() {
    for (name, make) in SHAPES.iter().filter(|(name, _)| name.starts_with("regex")) {
        hold(name, *make, EnvironmentFlags::Plain);
    }
}

#[test]
fn worst_patterns_compile_to_the_same_bytes_each_time() {
    for (name, make) in SHAPES.iter().filter(|(name, _)| name.starts_with("regex-ignoring")) {
        let text = make(SIZE / 4);
        assert_eq!(outcome(&text, EnvironmentFlags::Plain), outcome(&text, EnvironmentFlags::Plain), "{name}");
    }
}
