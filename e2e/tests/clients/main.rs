//! Flagsmith's SDKs and OpenFeature's providers, unmodified and in versions that `clients/` pins, as clients of a
//! sidecar that serves `clients/document.json`. Needs no cluster.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that panics has failed, as it should"
)]

mod client;
mod expected;
mod experiments;
mod flagsmith;
mod openfeature;
mod pools;
mod realtime;
mod sidecar;
