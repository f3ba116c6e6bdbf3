//! The snapshot format: a Flagsmith environment compiled to bytes that are evaluated in place.
//!
//! The operator writes a snapshot once per change ([`write()`]). The sidecar reads it once per change
//! ([`Snapshot::read`]) and evaluates it on every request. This crate is the contract between the two: both depend on
//! it, and neither depends on the other. The crate does no input or output, starts no threads or tasks, has no
//! `unsafe`, and depends on a hash function, on a safe SIMD library, and on a macro for error types.
//!
//! ```
//! use remora_snapshot::model::{Context, Environment, Feature};
//! use remora_snapshot::{Role, Snapshot, RequestState, write};
//!
//! let default = Context { enabled: true, value: "42".to_owned(), split: None };
//! let feature = Feature { id: 7, name: "limit".to_owned(), kind: "STANDARD".to_owned(), served: true, server_only: false, default };
//! let environment = Environment { client_key: "key".to_owned(), features: vec![feature], ..Environment::default() };
//!
//! let written = write(&environment, 1_000_000)?;
//! let snapshot = Snapshot::read(written.files[0].bytes.as_slice())?;
//! let mut request = RequestState::default();
//! snapshot.identify(&mut request, "somebody");
//! let mut answer = Vec::new();
//! snapshot.write_flags(&mut request, Role::Client, &mut answer);
//! assert_eq!(answer, br#"[{"feature":{"id":7,"name":"limit","type":"STANDARD"},"enabled":true,"feature_state_value":42}]"#);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
#![doc = include_str!("../FORMAT.md")]
//!
#![doc = concat!("```text\n", include_str!("format/example.txt"), "```")]
//!
//! ## Example with every feature
//!
//! `sidecar/snapshot/tests/sample/mod.rs` builds an environment with every feature of the format (`complete`, here with
//! three identity overrides). Generated as above: the sections of its core that the first example leaves empty, the
//! sections that refer to them, and requests with the decision for each feature and the answers.
//!
#![doc = concat!("```text\n", include_str!("format/complete.txt"), "```")]
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

#[cfg(test)]
extern crate self as remora_snapshot; // the sample of the tests uses this name

mod budget;
mod context;
mod evaluate;
mod format;
mod names;
mod regex;
mod render;
mod segments;
mod snapshot;
mod validate;
mod values;
mod write;

pub use budget::{MAX_STEPS, StepBudget};
pub use context::TraitValue;
pub use evaluate::flag_overrides::{FlagOverride, OverriddenBy};
pub use evaluate::resolution::MAX_CHAIN;
pub use evaluate::visibility::Role;
pub use format::document::Document;
pub use format::error::ReadError;
pub use format::layout::{FORMAT_MAJOR, FORMAT_MINOR};
pub use format::pointer::{Pointer, core_length};
pub use format::revision::Revision;
pub use render::flagsmith::MAX_ANSWER;
pub use render::ofrep::OfrepFlag;
pub use segments::explain::{Check, Trace};
pub use snapshot::describe::{
    Description, FeatureDescription, OverrideDescription, SegmentDescription, VariantDescription,
};
pub use snapshot::digests::FeatureDigest;
pub use snapshot::explain::{Decision, Explanation, SegmentExplanation};
pub use snapshot::request_state::RequestState;
pub use snapshot::{Overrun, Snapshot};
pub use values::number::{Integer, PYTHON_INT_DIGITS, write_float};
pub use values::percentage::{Hash, percentage};
pub use values::python_bool;
pub use write::{File, WriteError, Written, pointer, write};

pub use format::{files, model};
pub use regex::{automaton, backtrack};
pub use values::{duration, json, semver};
