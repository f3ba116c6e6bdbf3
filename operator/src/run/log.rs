//! Starts the log of a process.

use std::io::{IsTerminal, stderr};

use tracing_subscriber::EnvFilter;

/// Starts logging to standard error.
///
/// # Errors
/// If `level` is not a valid log filter, or logging was started before.
pub(super) fn start(level: &str, json: bool) -> anyhow::Result<()> {
    let filter: EnvFilter = level.parse().map_err(|error| {
        anyhow::anyhow!("--log-level {level:?} is not a log filter: {error}; use error, warn, info, debug or trace")
    })?;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(stderr().is_terminal()).with_writer(stderr);
    let started = if json { log.json().flatten_event(true).try_init() } else { log.try_init() };
    started.map_err(|error| anyhow::anyhow!("cannot start logging: {error}"))
}
