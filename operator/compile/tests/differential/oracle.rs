//! Flagsmith's engine in a Python process that lives as long as the test.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use remora_testing::not_run;
use serde::Deserialize;

use super::json::Json;

/// Python process. Requests may be sent before earlier answers arrive, so that both sides work in parallel.
pub(crate) struct Oracle {
    process: Child,
    requests: Option<ChildStdin>,
    replies: Receiver<String>,
}

/// Name, enabled state, value, reason and variant of a flag; values as JSON.
pub(crate) type Flag = (String, bool, String, String, String);

/// Answer of the engine for a document.
#[derive(Debug, Deserialize)]
pub(crate) struct Answer {
    pub(crate) identities: Vec<OfIdentity>,
    pub(crate) plain: [String; 2],
    pub(crate) identity_free: [String; 2],
    pub(crate) all: [String; 2],
}

#[derive(Debug, Deserialize)]
pub(crate) struct OfIdentity {
    pub(crate) flags: Vec<Flag>,
    /// Response bodies for a client key and for a server key.
    pub(crate) bodies: [String; 2],
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Reply {
    Answer(Box<Answer>),
    Raised(String),
    GaveUp(String),
}

/// Reason why the engine has no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoAnswer {
    /// The engine raised this error.
    #[error("the engine raised {0}")]
    Raised(String),
    /// This condition took the engine too long.
    #[error("the engine gave up condition {0}")]
    GaveUp(String),
}

impl Oracle {
    /// Starts the process. Reports the calling test as not run if Flagsmith's engine is not installed.
    #[track_caller]
    pub(crate) fn start() -> Option<Self> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/differential");
        let found = Command::new(folder.join("python.sh")).arg("--find").output().unwrap();
        if !found.status.success() {
            not_run("Flagsmith's engine: operator/compile/tests/differential/python.sh installs it");
            return None;
        }
        let python = String::from_utf8(found.stdout).unwrap();
        let mut process = Command::new(python.trim())
            .arg(folder.join("oracle.py"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{python}: {error}"));
        let output = BufReader::new(process.stdout.take().unwrap());
        let (sender, replies) = channel();
        // A thread reads the output. Otherwise each process could wait for the other to read.
        std::thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Some(Self { requests: process.stdin.take(), process, replies })
    }

    pub(crate) fn send(&mut self, case: &Json) {
        let requests = self.requests.as_mut().unwrap();
        writeln!(requests, "{case}").and_then(|()| requests.flush()).expect("the Python process has ended");
    }

    /// Returns the answer to the oldest unanswered request.
    pub(crate) fn receive(&mut self) -> Result<Answer, NoAnswer> {
        let line = self.replies.recv().expect("the Python process has ended");
        match serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}")) {
            Reply::Answer(answer) => Ok(*answer),
            Reply::Raised(error) => Err(NoAnswer::Raised(error)),
            Reply::GaveUp(condition) => Err(NoAnswer::GaveUp(condition)),
        }
    }

    pub(crate) fn ask(&mut self, case: &Json) -> Result<Answer, NoAnswer> {
        self.send(case);
        self.receive()
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        drop(self.requests.take());
        let _ = self.process.wait();
    }
}
