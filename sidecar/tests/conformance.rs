//! Compares the sidecar with recorded answers of Flagsmith, over sockets. The tests compile and serve the recorded
//! document, and send the request of every case of `edge-proxy/` (the bytes must be equal) and of `flagsmith-api/`
//! (names, their order, states and values must be equal). Some answers are part of the project (`e2e/recorded`).
//! `REMORA_CONFORMANCE_DIR` names the directory of all of them. Each folder in its `second/` is a separate set, whose
//! `known.json` names the deliberate differences.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

#[path = "../../operator/compile/tests/conformance/recorded.rs"]
mod recorded;
mod support;

use std::path::{Path, PathBuf};

use recorded::{Expected, Request, Set};
use remora_compile::{document, prune};
use remora_testing::{all_answers, committed_answers};
use serde_json::{Value, json};
use support::client::{Answer, get, post};
use support::server::{Running, start};
use support::volume::Directory;

fn read(path: &Path) -> Value {
    let text = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_slice(&text).unwrap()
}

/// Serves the document. `environment_flags` selects whether segments also apply to the environment's flags, as they do
/// in the edge proxy.
fn serve(cases: &Path, environment_flags: remora_compile::EnvironmentFlags) -> (Directory, Running, Value) {
    let keys = read(&cases.join("keys.json"));
    let document = document::parse(&std::fs::read(cases.join("environment.json")).unwrap()).unwrap();
    let pruned = prune::prune(document, &prune::Rules::default());
    let server_key = keys["server"].as_str().unwrap();
    let options = remora_compile::Options {
        environment: "shop",
        server_keys: &[server_key],
        environment_flags,
        ..remora_compile::Options::default()
    };
    let compiled = remora_compile::compile(&pruned, &options).unwrap();
    let directory = Directory::new();
    directory.volume("shop").publish(compiled.files.iter().map(|file| (file.name.as_str(), file.bytes.as_slice())));
    let server = start(directory.path(), |_| {});
    (directory, server, keys)
}

/// Returns the cases in `part` of a directory of recorded answers.
fn cases(directory: &Path, part: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(directory.join(part))
        .unwrap_or_else(|error| panic!("{} lacks {part}: {error}", directory.display()))
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{} has no cases in {part}", directory.display());
    files
}

fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// Sends the request of a case.
fn ask(server: &Running, keys: &Value, request: &Value) -> Answer {
    let key = keys[request["key"].as_str().unwrap()].as_str().unwrap();
    let headers = [("x-environment-key", key), ("content-type", "application/json")];
    if let Some(path) = request.get("GET") {
        return get(server.data, &format!("/api/v1/{}", path.as_str().unwrap()), &headers);
    }
    if let Some(query) = request.get("query") {
        let identifier = query["identifier"].as_str().unwrap();
        return get(server.data, &format!("/api/v1/identities/?identifier={}", encoded(identifier)), &headers);
    }
    let mut body = request.clone();
    body.as_object_mut().unwrap().remove("key");
    post(server.data, "/api/v1/identities/", &headers, &body.to_string())
}

/// Asserts that the sidecar's bodies equal those of the edge proxy.
fn assert_edge_proxy_answers(directory: &Path) {
    let files = cases(directory, "edge-proxy");
    let (_volume, server, keys) = serve(directory, remora_compile::EnvironmentFlags::AllSegments);
    let mut different = Vec::new();
    for file in &files {
        let case = read(file);
        let answer = ask(&server, &keys, &case["request"]);
        assert_eq!(u64::from(answer.status), case["status"].as_u64().unwrap(), "{}", file.display());
        assert_eq!(answer.header("content-type"), case["content_type"].as_str());
        let expected = case["body_text"].as_str().unwrap();
        if answer.body != expected {
            let at = answer.body.bytes().zip(expected.bytes()).take_while(|(one, other)| one == other).count();
            let around = |text: &str| {
                String::from_utf8_lossy(text.as_bytes().get(at.saturating_sub(90)..).unwrap_or_default())
                    .chars()
                    .take(180)
                    .collect::<String>()
            };
            different.push(format!("{}:\n  {}\n  {}", file.display(), around(&answer.body), around(expected)));
        }
    }
    assert!(different.is_empty(), "{} of {} differ:\n{}", different.len(), files.len(), different.join("\n"));
}

/// Asserts that the sidecar's flags equal the recorded answers of Flagsmith's API, but for those that differ on purpose.
fn assert_api_answers(sets: &[Set]) {
    let mut wrong = Vec::new();
    for set in sets {
        let (name, cases) = (&set.name, &set.cases);
        let (_volume, server, keys) = serve(&set.folder, remora_compile::EnvironmentFlags::Plain);
        let (mut right, mut known) = (0, 0);
        for case in cases {
            let mut request = match &case.request {
                Request::Flags => json!({"GET": "flags/"}),
                Request::Flag(feature) => json!({"GET": format!("flags/?feature={}", encoded(feature))}),
                Request::Identity(identifier) => json!({"query": {"identifier": identifier}}),
                Request::Body(body) => body.clone(),
            };
            request["key"] = if case.is_server { "server" } else { "client" }.into();
            let answer = ask(&server, &keys, &request);
            let body: Value = serde_json::from_str(&answer.body).unwrap();
            let ours = match body.get("flags").unwrap_or(&body) {
                _ if answer.status != 200 => Expected::Status(u64::from(answer.status)),
                Value::Array(flags) => Expected::Flags(flags.iter().map(recorded::told).collect()),
                flag => Expected::Flag(recorded::told(flag)),
            };
            match (set.agrees(&ours, case), case.is_known) {
                (false, _) => wrong.push(format!("{name} {}:\n  {ours:?}\n  {:?}", case.name, case.expected)),
                (true, true) => known += 1,
                (true, false) => right += 1,
            }
        }
        eprintln!("{name}: {} cases, {right} equal, {known} differ on purpose", cases.len());
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn bodies_equal_committed_answers_of_edge_proxy() {
    assert_edge_proxy_answers(&committed_answers());
}

#[test]
fn bodies_equal_all_answers_of_edge_proxy() {
    let Some(directory) = all_answers() else { return };
    assert_edge_proxy_answers(&directory);
}

#[test]
fn flags_equal_committed_answers_of_api() {
    assert_api_answers(&recorded::committed_sets(&committed_answers()));
}

#[test]
fn flags_equal_all_answers_of_api() {
    let Some(directory) = all_answers() else { return };
    assert_api_answers(&recorded::all_sets(&directory));
}
