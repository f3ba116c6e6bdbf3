//! The end-to-end part: what surrounds Remora in a real cluster, and the means to look at it there.
//!
//! - [`upstream`]: a stub of Flagsmith's API, to be run in a pod or inside a test.
//! - [`app`]: an application that asks its flags on localhost.
//! - [`harness`]: namespaces, waiting, helm, a pod's ports: what the cases in `tests/` are written with.
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        reason = "a test that panics has failed, as it should"
    )
)]

pub mod app;
pub mod harness;
pub mod upstream;
