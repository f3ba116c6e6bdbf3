//! Cases that run in parallel: each has its own namespace, key and document.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that panics has failed, as it should"
)]

mod admission;
mod analytics;
mod ask;
mod bounds;
mod canary;
mod commands;
mod demo_path;
mod document;
mod environments;
mod fanout;
mod freshness;
mod guard;
mod history;
mod https;
mod large;
mod object;
mod outage;
mod overrides;
mod pages;
mod permission;
mod propagation;
mod real_document;
mod refusal;
mod restored;
mod secrets;
mod socket;
mod start;
mod streams;
mod terminating;
mod termination;
