//! Counters that the metrics page shows, and that the controller collects.

pub(crate) mod latency;
pub(crate) mod overruns;
pub(crate) mod reloads;
pub(crate) mod requests;
pub(crate) mod uses;
