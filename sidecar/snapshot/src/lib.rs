//! The snapshot: a Flagsmith environment, compiled to bytes that are evaluated where they lie.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod answer;
pub mod automaton;
pub mod backtrack;
mod choose;
mod condition;
mod error;
mod evaluation;
mod explain;
pub mod files;
mod hash;
pub mod json;
mod layout;
pub mod model;
mod number;
mod ofrep;
mod overrides;
mod read;
mod resolve;
mod role;
pub mod semver;
mod snapshot;
mod subject;
mod view;
mod write;

pub use error::ReadError;
pub use explain::{Decision, Explanation};
pub use layout::{FORMAT_MAJOR, FORMAT_MINOR};
pub use number::{Integer, write_float};
pub use resolve::MAX_CHAIN;
pub use role::Role;
pub(crate) use role::Scope;
pub use snapshot::{Revision, Snapshot, digest};
pub use subject::{Subject, TraitValue};
pub use write::{File, WriteError, Written, write};
