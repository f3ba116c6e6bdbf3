//! The edge proxy's answers, byte for byte, through sockets: with `REMORA_CONFORMANCE_DIR` set, its
//! `environment.json` is compiled and served, and every case of `edge-proxy/` is asked for.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::path::{Path, PathBuf};

use remora_operator::{compile, document, prune};
use serde_json::Value;
use support::client::{Answer, get, post};
use support::server::{Running, start};
use support::volume::Directory;

const VARIABLE: &str = "REMORA_CONFORMANCE_DIR";

fn read(path: &Path) -> Value {
    let text = std::fs::read(path).unwrap_or_else(|error| panic!("{VARIABLE}: {}: {error}", path.display()));
    serde_json::from_slice(&text).unwrap()
}

/// Serves the document as the edge proxy does: segments apply to environment flags too.
fn serve(cases: &Path) -> (Directory, Running, Value) {
    let keys = read(&cases.join("keys.json"));
    let document = document::parse(&std::fs::read(cases.join("environment.json")).unwrap()).unwrap();
    let pruned = prune::prune(document, &prune::Rules::new(&[], &[], false, false).unwrap());
    let server_key = keys["server"].as_str().unwrap();
    let options = compile::Options {
        environment: "shop",
        server_keys: &[server_key],
        environment_flags: compile::Mode::AllSegments,
    };
    let compiled = compile::compile(&pruned, &options).unwrap();
    let directory = Directory::new();
    directory.volume("shop").publish(compiled.files.iter().map(|file| (file.name.as_str(), file.bytes.as_slice())));
    let server = start(directory.path(), |_| {});
    (directory, server, keys)
}

/// Sends a case's request.
fn ask(server: &Running, keys: &Value, request: &Value) -> Answer {
    let key = keys[request["key"].as_str().unwrap()].as_str().unwrap();
    let headers = [("x-environment-key", key), ("content-type", "application/json")];
    if let Some(path) = request.get("GET") {
        return get(server.data, &format!("/api/v1/{}", path.as_str().unwrap()), &headers);
    }
    if let Some(query) = request.get("query") {
        let identifier = query["identifier"].as_str().unwrap();
        let encoded: String = identifier.bytes().map(|byte| format!("%{byte:02X}")).collect();
        return get(server.data, &format!("/api/v1/identities/?identifier={encoded}"), &headers);
    }
    let mut body = request.clone();
    body.as_object_mut().unwrap().remove("key");
    post(server.data, "/api/v1/identities/", &headers, &body.to_string())
}

#[test]
fn the_bytes_of_the_edge_proxy() {
    let Some(directory) = std::env::var_os(VARIABLE).map(PathBuf::from) else {
        // Not silently: the recorded answers are no part of the repository.
        eprintln!("{VARIABLE} is not set: the edge proxy's recorded answers are not compared");
        return;
    };
    let (_volume, server, keys) = serve(&directory);
    let mut count = 0;
    let mut different = Vec::new();
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(directory.join("edge-proxy")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    for file in files {
        let case = read(&file);
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
        count += 1;
    }
    assert!(different.is_empty(), "{} of {count} differ:\n{}", different.len(), different.join("\n"));
    assert!(count > 0, "{VARIABLE} has no cases in edge-proxy/");
}
