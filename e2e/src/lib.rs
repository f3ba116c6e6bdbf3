//! End-to-end tests: the programs around Remora in a real cluster, and the means to observe it there.
//!
//! - [`upstream`]: a stub of Flagsmith's API, to be run in a pod or inside a test.
//! - [`app`]: an application that requests its flags on localhost.
//! - [`harness`]: the test harness of the cases in `tests/`: namespaces, waiting, helm, pod ports.
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
