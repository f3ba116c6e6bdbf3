//! Fuzz targets: one function for each kind of input that comes from outside.
//!
//! A target takes any bytes, drives the code under test with them, and panics where a property does not hold. Two programs
//! run it: libFuzzer, which looks for new inputs (`make fuzz`), and the test of this crate, which replays `corpus/<target>/`.
//! README.md says how to run, replay and add.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a target reports what it finds by a panic")]

mod annotations;
mod context;
mod dialects;
mod document;
pub mod engine;
mod environment;
mod heads;
mod jsonpath;
mod mutate;
mod patch;
mod pipeline;
mod python;
mod regex;
mod requests;
mod reviews;
mod server;
mod snapshot;
pub mod words;

pub use annotations::run as annotations;
pub use document::run as document;
pub use heads::run as heads;
pub use jsonpath::run as jsonpath;
pub use regex::run as regex;
pub use requests::run as requests;
pub use reviews::run as reviews;
pub use snapshot::run as snapshot;

/// Fuzz target: its name and its function.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Name of the target's program `fuzz_targets/<name>.rs` and of its corpus `corpus/<name>/`.
    pub name: &'static str,
    /// Drives the code under test with one input. Panics where a property does not hold.
    pub run: fn(&[u8]),
}

/// All targets.
pub const TARGETS: [Target; 8] = [
    Target { name: "annotations", run: annotations },
    Target { name: "document", run: document },
    Target { name: "heads", run: heads },
    Target { name: "jsonpath", run: jsonpath },
    Target { name: "regex", run: regex },
    Target { name: "requests", run: requests },
    Target { name: "reviews", run: reviews },
    Target { name: "snapshot", run: snapshot },
];

/// Returns the target of this name.
#[must_use]
pub fn target(name: &str) -> Option<Target> {
    TARGETS.into_iter().find(|target| target.name == name)
}

/// Panics if a message for people contains a control character, which a terminal would act on.
fn assert_printable(message: &str) {
    assert!(!message.chars().any(char::is_control), "a message has control characters: {message:?}");
}
