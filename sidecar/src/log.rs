//! Lines for people, on standard error.

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

/// How much a line matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Something does not work.
    Error,
    /// Something was refused, and what there was before goes on.
    Warn,
    /// Something changed.
    Info,
    /// Something was looked at.
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

/// Lines above this level are not written.
static THRESHOLD: AtomicU8 = AtomicU8::new(Level::Info as u8);

/// Chooses what is written from now on.
pub fn set_level(level: Level) {
    THRESHOLD.store(level as u8, Ordering::Relaxed);
}

/// Tells why the process ends.
pub fn report(error: &dyn std::error::Error) {
    error!("{error}");
}

/// Writes a line. Nothing is logged per request, so this may take its time.
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
    // There is nobody to tell when standard error is closed.
    let _ = std::io::stderr().write_all(line.as_bytes());
}
