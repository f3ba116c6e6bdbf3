//! The sidecar: feature flags on localhost, answered from snapshots that are mapped and never parsed.
//!
//! A request goes through these modules, in this order: `connections` accepts and bounds it, `data`
//! receives its body within a `budget`, `respond` finds out who asks (and `routes` for what), `identities` or `ofrep` read its `json` body
//! straight into the snapshot's subject, the snapshot evaluates, and the answer leaves as a `body` that
//! is a part of the mapped file, a buffer that is used again, or a constant. What can be done before the
//! request has been done by the operator's compiler, or by `follow` when it took the snapshot up.
//!
//! SDKs that evaluate by themselves get the `document` that the operator compiled, compressed as it lies.
//! Clients that listen are told by `stream` that there is something new.
//!
//! One thread answers, one follows the volumes; what they share is `environment`.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing))]

mod admin;
mod analytics;
mod anonymous;
mod answer;
mod assignment;
mod body;
mod budget;
mod clock;
mod connections;
mod cors;
mod data;
mod document;
mod environment;
mod follow;
mod host;
mod identities;
mod json;
mod listen;
mod log;
mod map;
mod metrics;
mod numbers;
mod ofrep;
mod options;
mod overrun;
mod probe;
mod progress;
mod received;
mod respond;
mod routes;
mod serve;
mod stream;
mod watched;

pub use log::{Level, report, set_level};
pub use map::{MapError, Region};
pub use options::{Command, HELP, Options, UsageError, parse};
pub use probe::{NotYet, probe};
pub use serve::{Failure, Server};
