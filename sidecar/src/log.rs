//! Log lines on standard error, as text or as JSON.

use std::fmt;
use std::io::Write as _;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::SystemTime;

use crate::clock::Utc;
use crate::json::write_string;

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

/// True if lines are written as JSON.
static JSON: AtomicBool = AtomicBool::new(false);

/// Sets whether each line is a JSON object, in place of text.
pub fn set_json(json: bool) {
    JSON.store(json, Ordering::Relaxed);
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
    let (time, name) = (Utc(SystemTime::now()), name(level));
    let line = if JSON.load(Ordering::Relaxed) {
        json_line(time, name, &message.to_string())
    } else {
        format!("{time}Z {name:>5} {message}\n").into_bytes()
    };
    // One write for each line, so that lines of several threads do not mix. If standard error is closed, the error
    // cannot be reported anywhere.
    let _ = std::io::stderr().write_all(&line);
}

/// Returns the name of a level in a log line, the same as in the operator's log.
fn name(level: Level) -> &'static str {
    match level {
        Level::Error => "ERROR",
        Level::Warn => "WARN",
        Level::Info => "INFO",
        Level::Debug => "DEBUG",
    }
}

/// Returns a log line as a JSON object, whose members are those of the operator's log lines.
fn json_line(time: Utc, level: &str, message: &str) -> Vec<u8> {
    let mut line = format!(r#"{{"timestamp":"{time}Z","level":"{level}","message":"#).into_bytes();
    write_string(message, &mut line);
    line.extend_from_slice(b"}\n");
    line
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use serde_json::json;

    use super::*;

    #[test]
    fn json_line_is_one_object_whatever_the_message() {
        let time = Utc(UNIX_EPOCH + Duration::from_millis(1_795_220_061_250));
        let every_control: String = (0..0x20).filter_map(char::from_u32).collect();
        for message in ["", "plain", "\"},{\"level\":\"ERROR\"", "a\nb\r\n", "\\", "\u{7f}\u{2028}ä🐟", &every_control]
        {
            let line = String::from_utf8(json_line(time, "WARN", message)).unwrap();
            assert_eq!(line.lines().count(), 1, "{line:?}");
            assert!(line.ends_with("}\n"), "{line:?}");
            let expected = json!({"timestamp": "2026-11-21T00:14:21.250000Z", "level": "WARN", "message": message});
            assert_eq!(serde_json::from_str::<serde_json::Value>(&line).unwrap(), expected);
        }
    }
}
