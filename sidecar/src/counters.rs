//! Counters that the metrics page shows, and that the controller collects.

#[macro_use]
mod label;
// These modules use the macro, so they must follow it.
pub(crate) mod latency;
pub(crate) mod overruns;
pub(crate) mod reloads;
pub(crate) mod requests;
pub(crate) mod uses;
