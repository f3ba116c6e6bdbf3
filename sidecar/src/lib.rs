//! The sidecar: answers feature flags on localhost from snapshots that are mapped and never parsed.
//!
//! A request passes these modules in this order: `connections` accepts it within limits, `data` receives its body
//! within a `budget`, and `respond` checks its key, after `routes` has found its endpoint. Then `identities` or `ofrep`
//! read its `json` body directly into the snapshot's subject, and the snapshot evaluates it. The answer leaves as a
//! `body`: a part of the mapped file, a reused buffer, or a constant. All work that does not depend on the request was
//! done before it, by the operator's compiler, or by `follow` when it loaded the snapshot.
//!
//! SDKs that evaluate locally get the `document` that the operator compiled, in its compressed form. Clients that
//! listen to a `stream` are notified of changes.
//!
//! One thread answers requests, and one follows the volumes; both share the `environment`.
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
