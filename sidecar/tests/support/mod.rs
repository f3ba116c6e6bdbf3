//! Support for the tests: kubelet's volume writer, a small environment, a server, and a client.
#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

pub(crate) mod cgroup;
pub(crate) mod client;
pub(crate) mod document;
pub(crate) mod environment;
pub(crate) mod flood;
pub(crate) mod program;
pub(crate) mod server;
pub(crate) mod volume;
