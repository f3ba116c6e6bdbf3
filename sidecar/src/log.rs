//! Log lines on standard error.

use std::fmt;
use std::io::Write as _;
use std::str::FromStr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::SystemTime;

use crate::clock::Utc;

macro_rules! error {
    ($($message:tt)*) => { $crate::log::log($crate::log::Level::Error, format_args!($($message)*)) };
}
macro_rules! warning {
    ($($message:tt)*) => { $crate::log::log($crate::log::Level::Warn, format_args!($($message)*)) };
}
macro_rules! info {
    ($($message:tt)*) => { $crate::log::log($crate::log::Level::Info, format_args!($($message)*)) };
}
macro_rules! debug {
    ($($message:tt)*) => { $crate::log::log($crate::log::Level::Debug, format_args!($($message)*)) };
}

pub(crate) use {debug, info, warning};

/// Severity of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Something does not work.
    Error,
    /// Something was refused, and the previous state stays.
    Warn,
    /// Something changed.
    Info,
    /// Detail for debugging.
    Debug,
}

impl FromStr for Level {
    type Err = ();

    fn from_str(text: &str) -> Result<Level, ()> {
        match text {
            "error" => Ok(Level::Error),
            "warn" => Ok(Level::Warn),
            "info" => Ok(Level::Info),
            "debug" => Ok(Level::Debug),
            _ => Err(()),
        }
    }
}

/// Level up to which lines are written.
static THRESHOLD: AtomicU8 = AtomicU8::new(Level::Info as u8);

/// Sets the level up to which lines are written.
pub fn set_level(level: Level) {
    THRESHOLD.store(level as u8, Ordering::Relaxed);
}

/// Logs the error that ends the process.
pub fn report(error: &dyn std::error::Error) {
    error!("{error}");
}

/// Writes a log line, and blocks until it is written. At the default level, a request logs nothing, or a line that is
/// limited in its rate.
pub(crate) fn log(level: Level, message: fmt::Arguments<'_>) {
    if level as u8 > THRESHOLD.load(Ordering::Relaxed) {
        return;
    }
    let name = match level {
        Level::Error => "ERROR",
        Level::Warn => "WARN",
        Level::Info => "INFO",
        Level::Debug => "DEBUG",
    };
    let line = format!("{}Z {name:>5} {message}\n", Utc(SystemTime::now()));
    // If standard error is closed, the error cannot be reported anywhere.
    let _ = std::io::stderr().write_all(line.as_bytes());
}
