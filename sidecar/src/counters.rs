//! Counters that the metrics page shows.

pub(crate) mod overruns;
pub(crate) mod reloads;
pub(crate) mod requests;
pub(crate) mod uses;
