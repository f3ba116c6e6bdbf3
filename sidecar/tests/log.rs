//! Tests of the log of the program, as text and as JSON.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod support;

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Map, Value};
use support::environment::written;
use support::program::sidecar;
use support::volume::Directory;

/// Part of a path that would break a line of text or of JSON, or steer a terminal.
const HOSTILE: &str = "a \"quoted\" {\\} \\n\nnew\r\tline \u{1b}[31m \u{1}\u{7f}\u{2028} ä🐟";

/// Creates a directory of snapshots below one with a hostile name. One environment has flags, the other one has none.
fn snapshots(directory: &Directory) -> PathBuf {
    let hostile = directory.path().join(HOSTILE);
    std::fs::create_dir(&hostile).unwrap();
    directory.volume("shop").publish_written(&written(1));
    std::fs::rename(directory.path().join("shop"), hostile.join("shop")).unwrap();
    std::fs::create_dir(hostile.join("empty")).unwrap();
    hostile
}

/// Runs the program until it has started, sends SIGTERM, and returns everything that it wrote to standard error.
fn log_of(snapshots: &Path, arguments: &[&str]) -> String {
    let mut program = sidecar(snapshots).args(arguments).stderr(Stdio::piped()).spawn().unwrap();
    let mut log = BufReader::new(program.stderr.take().unwrap());
    let mut text = String::new();
    while !text.contains("flags on ") {
        assert!(log.read_line(&mut text).unwrap() > 0, "it ended: {text}");
    }
    assert!(Command::new("kill").arg(program.id().to_string()).status().unwrap().success());
    std::io::Read::read_to_string(&mut log, &mut text).unwrap();
    assert!(program.wait().unwrap().success(), "{text}");
    text
}

/// Parses a log of JSON lines: each has the members that README.md names, and no others.
fn lines(log: &str) -> Vec<Map<String, Value>> {
    let parse = |line: &str| -> Map<String, Value> {
        let members: Map<String, Value> =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
        assert_eq!(members.keys().collect::<Vec<_>>(), ["level", "message", "timestamp"], "{line}");
        let time = members["timestamp"].as_str().unwrap();
        assert!(time.len() == "2026-11-26T17:59:16.037895Z".len() && time.ends_with('Z'), "{time}");
        assert!(["ERROR", "WARN", "INFO", "DEBUG"].contains(&members["level"].as_str().unwrap()), "{line}");
        members
    };
    assert!(log.ends_with('\n'), "{log:?}");
    log.split_terminator('\n').map(parse).collect()
}

#[test]
fn json_log_has_one_object_per_line_whatever_names_contain() {
    let directory = Directory::new();
    let snapshots = snapshots(&directory);
    let overrides = r#"{"a\"\n\u0000\u001b": {"enabled": true}}"#;
    let lines = lines(&log_of(&snapshots, &["--log-json", "--log-level", "debug", "--overrides", overrides]));
    let with = |part: &str| {
        let found = lines.iter().find(|line| line["message"].as_str().unwrap().contains(part));
        found.unwrap_or_else(|| panic!("no line has {part:?}: {lines:#?}"))
    };
    // The path reaches the message unchanged, with its line break.
    let waiting = with("waiting for a snapshot in ");
    assert!(waiting["message"].as_str().unwrap().contains(snapshots.to_str().unwrap()), "{waiting:?}");
    assert_eq!(waiting["level"], "INFO");
    assert_eq!(with("this process overrides flags")["level"], "WARN");
    assert_eq!(with("received SIGTERM")["level"], "INFO");
}

#[test]
fn failure_of_start_is_the_last_line_of_json_log() {
    let directory = Directory::new();
    let missing = directory.path().join(HOSTILE);
    let output = sidecar(&missing).arg("--log-json").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let lines = lines(&String::from_utf8(output.stderr).unwrap());
    let [.., last] = lines.as_slice() else { panic!("an empty log") };
    assert_eq!(last["level"], "ERROR");
}

#[test]
fn log_is_text_by_default() {
    let directory = Directory::new();
    directory.volume("shop").publish_written(&written(1));
    let log = log_of(directory.path(), &[]);
    for line in log.lines() {
        assert!(line.get(26..).unwrap().starts_with("Z  INFO "), "{line}");
    }
}
