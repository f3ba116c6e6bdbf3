//! The sidecar: answers feature flags on localhost from snapshots that are mapped and never parsed.
//!
//! A request passes these modules in this order: `http` accepts its connection within limits and receives its body.
//! `endpoints` finds the endpoint by `routes` and checks the key. `dialects` reads the `json` body directly into the
//! snapshot's request, and the snapshot evaluates it. The answer leaves as a body of `http`: a part of the mapped file,
//! a reused buffer, or a constant. All work that does not depend on the request was done before it, by the operator's
//! compiler, or by `environments` when it loaded the snapshot.
//!
//! Imports run one way. Each line lists all areas of the diagram that an area imports:
//!
//! ```text
//! server       ──> endpoints, environments, http, volume
//! endpoints    ──> dialects, environments, counters, http, json, routes
//! environments ──> counters, http, routes, volume
//! counters     ──> routes
//! dialects     ──> json
//! http         ──> json, volume
//! ```
//!
//! The other modules are small, such as `clock`, `lock` and `log`, or are further users of the areas, such as `probe`
//! and `reader`.
//!
//! - `dialects` knows bodies and snapshots, and no connection: it can be tested with bytes alone.
//! - `http` knows connections, and no flags. What an environment sends piece by piece, its document and its events,
//!   `http` knows only as portions.
//! - `environments` holds what the process serves at the moment. SDKs that evaluate locally get the document that the
//!   operator compiled, in its compressed form. Clients that listen to a stream are notified of changes.
//!
//! One thread answers requests, and one follows the volumes; both share the state of `environments`.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing))]

mod bodies;
mod cgroup;
mod clock;
mod counters;
mod dialects;
mod endpoints;
mod environments;
mod http;
mod json;
mod lock;
mod log;
mod options;
mod overrides;
mod probe;
mod reader;
mod routes;
mod server;
mod volume;

pub use bodies::Bodies;
pub use log::{Level, report, set_json, set_level};
pub use options::{Command, HELP, Options, UsageError, parse};
pub use probe::{NotYet, probe};
pub use reader::{Reader, Served};
pub use server::{Failure, Server, Signals};
