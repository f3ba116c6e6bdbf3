//! `make taste` as a new user runs it: the commands that it prints return flags. Needs no cluster.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that panics has failed, as it should"
)]

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};

use remora_e2e::harness::forget_package;
use serde_json::Value;

/// Returns the first of two adjacent free ports.
fn port() -> u16 {
    (0..100)
        .find_map(|_| {
            let one = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = one.local_addr().unwrap().port();
            let next = port.checked_add(1)?;
            TcpListener::bind(("127.0.0.1", next)).ok().map(|_| port)
        })
        .expect("two free ports in a row")
}

#[test]
fn printed_commands_get_flags() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let target = std::env::current_exe().unwrap().ancestors().nth(3).unwrap().to_owned();
    let mut taste = forget_package(&mut Command::new(root.join("e2e/taste.sh")))
        .env("REMORA_PORT", port().to_string())
        .env("CARGO_TARGET_DIR", target)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut printed = BufReader::new(taste.stdout.take().unwrap()).lines();
    let mut lines = Vec::new();
    let mut curls = Vec::new();
    let mut explain = None;
    while explain.is_none() {
        let line = printed.next().unwrap_or_else(|| panic!("it ended: {lines:#?}")).unwrap();
        curls.extend(line.trim().starts_with("curl ").then(|| line.trim().to_owned()));
        explain = line.contains("remora-tools explain ").then(|| line.trim().to_owned());
        lines.push(line);
    }
    assert_eq!(curls.len(), 2, "{lines:#?}");
    let output = Command::new("bash").args(["-c", &explain.unwrap()]).current_dir(&root).output().unwrap();
    let why = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && why.contains("banner"), "{why}{}", String::from_utf8_lossy(&output.stderr));
    let answers: Vec<Value> = curls
        .iter()
        .map(|curl| {
            let line = curl.replacen("curl ", "curl --silent --show-error --fail ", 1);
            let output = Command::new("bash").args(["-c", &line]).output().unwrap();
            assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
            serde_json::from_slice(&output.stdout).unwrap()
        })
        .collect();
    assert_eq!(answers[0][1]["feature_state_value"], "Welcome", "{}", answers[0]);
    assert_eq!(answers[1]["flags"][1]["value"], "Thank you for being with us", "{}", answers[1]);

    // After Ctrl-C, no process remains.
    let id = rustix::process::Pid::from_raw(taste.id().cast_signed()).unwrap();
    rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
    assert!(taste.wait().unwrap().success());
    // A remaining process would hold the output open and block this line.
    assert!(printed.all(|line| !line.unwrap().contains("error")));
}
