//! Python's `re` in a process that lives as long as this one.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use remora_testing::not_run;

/// Python's answer to a pattern and a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The pattern matches at the start of the text.
    Match,
    /// The pattern does not match at the start of the text.
    NoMatch,
    /// The pattern is not valid.
    Refused,
    /// The search took more than a second or reached a limit of the interpreter, or Python is not installed.
    Unknown,
}

struct Python {
    _process: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Python {
    /// Starts the process. `None` if the machine has no Python, which is reported as a test that did not run.
    fn start() -> Option<Python> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("python.py");
        let started = Command::new("python3").arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut process = match started {
            Ok(process) => process,
            Err(error) => {
                not_run(&format!("python3 on PATH, whose answers patterns are compared with: {error}"));
                return None;
            }
        };
        let requests = process.stdin.take().unwrap();
        let answers = BufReader::new(process.stdout.take().unwrap());
        Some(Python { _process: process, requests, answers })
    }
}

/// Asks Python if the pattern matches at the start of the text.
pub(crate) fn matches(pattern: &str, text: &str) -> Answer {
    // The inner option is `None` if there is no Python.
    static PYTHON: Mutex<Option<Option<Python>>> = Mutex::new(None);
    let mut python = PYTHON.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(Python { requests, answers, .. }) = python.get_or_insert_with(Python::start) else {
        return Answer::Unknown;
    };
    let mut answer = String::new();
    serde_json::to_writer(&mut *requests, &(pattern, text)).unwrap();
    requests.write_all(b"\n").and_then(|()| requests.flush()).unwrap();
    answers.read_line(&mut answer).unwrap();
    match answer.trim_end() {
        "match" => Answer::Match,
        "none" => Answer::NoMatch,
        "refused" => Answer::Refused,
        "time" => Answer::Unknown,
        other => panic!("Python answered {other:?} to {pattern:?} on {text:?}"),
    }
}
