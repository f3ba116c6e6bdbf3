//! Compares Remora's answers with recorded answers of Flagsmith: the tests compile documents, read the bytes and
//! evaluate over them. Some recorded answers are part of the project (`e2e/recorded`). `REMORA_CONFORMANCE_DIR` names
//! the folder of all of them: without it, the tests that need it are reported as not run; with it, a missing case fails.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

#[path = "conformance/context.rs"]
mod context;
#[path = "conformance/recorded.rs"]
mod recorded;

use std::path::Path;

use recorded::{Expected, Request, Set};
use remora_snapshot::{RequestState, Role, Snapshot, TraitValue};
use remora_testing::{all_answers, committed_answers};
use serde_json::Value;

use remora_compile::document;
use remora_compile::prune::{Rules, prune};
use remora_compile::{Compiled, EnvironmentFlags, Options, compile};

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns names and contents of the JSON files in a folder, sorted by name.
fn files(folder: &Path) -> Vec<(String, String)> {
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), read(&path)))
        .collect();
    files.sort();
    files
}

fn compiled(document: &str, server_keys: &[&str], environment_flags: EnvironmentFlags) -> Compiled {
    let document = document::parse(document.as_bytes()).unwrap_or_else(|error| panic!("{error}: {document}"));
    let pruned = prune(document, &Rules::default());
    compile(&pruned, &Options { environment: "conformance", server_keys, environment_flags, ..Options::default() })
        .unwrap()
}

fn snapshot(compiled: &Compiled) -> Snapshot<&[u8]> {
    let mut files = compiled.files.iter().map(|file| file.bytes.as_slice());
    let mut snapshot = Snapshot::read(files.next().unwrap()).unwrap();
    files.for_each(|file| snapshot.attach(file).unwrap());
    snapshot
}

/// Sets a trait of the subject from its JSON value. Numbers are passed as their tokens.
fn set_trait(snapshot: &Snapshot<&[u8]>, subject: &mut RequestState, key: &str, value: &Value) {
    let token = value.to_string();
    let value = match value {
        Value::Null => TraitValue::Null,
        Value::Bool(bool) => TraitValue::Bool(*bool),
        Value::Number(number) if number.is_f64() => TraitValue::Float(number.as_f64().unwrap()),
        Value::Number(_) => TraitValue::Integer(&token),
        Value::String(text) => TraitValue::String(text),
        other => panic!("a trait is {other}"),
    };
    snapshot.set_trait(subject, key, value);
}

#[test]
fn conditions_match_flagsmith_engine() {
    let Some(folder) = all_answers() else { return };
    let lines = read(&folder.join("conditions.jsonl"));
    let cases: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut wrong = Vec::new();
    // Each case is a segment that overrides its own feature, so that one document tests many conditions on one trait.
    let together =
        |a: &Value, b: &Value| a["op"] == b["op"] && a["trait"] == b["trait"] && a["op"] != "PERCENTAGE_SPLIT";
    for cases in cases.chunk_by(together) {
        let compiled = compiled(&context::conditions(cases), &[], EnvironmentFlags::Plain);
        let snapshot = snapshot(&compiled);
        let mut subject = RequestState::default();
        snapshot.identify(&mut subject, "user_1");
        set_trait(&snapshot, &mut subject, "t", &cases[0]["trait"]);
        for (case, explanation) in cases.iter().zip(snapshot.explain(&mut subject)) {
            if (case["match"] == true) != explanation.enabled {
                wrong.push(case.to_string());
            }
        }
    }
    assert_eq!(cases.len(), 25_658, "conditions.jsonl is not complete");
    assert!(
        wrong.is_empty(),
        "{} of {} differ, among them\n{}",
        wrong.len(),
        cases.len(),
        wrong.iter().take(20).cloned().collect::<Vec<_>>().join("\n")
    );
}

#[test]
fn percentages_match_flagsmith_engine() {
    let Some(folder) = all_answers() else { return };
    let lines = read(&folder.join("hash.jsonl"));
    let mut count = 0;
    for line in lines.lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let ids: Vec<&str> = case["ids"].as_array().unwrap().iter().map(|id| id.as_str().unwrap()).collect();
        let [seed, rest @ ..] = ids.as_slice() else { panic!("{line}") };
        // The other ids form the identity's key, joined as in the hash.
        let compiled = compiled(&context::split(seed), &[], EnvironmentFlags::Plain);
        let snapshot = snapshot(&compiled);
        let mut subject = RequestState::default();
        snapshot.identify(&mut subject, "x");
        snapshot.set_key(&mut subject, &rest.join(","));
        let percentage = snapshot.explain(&mut subject)[0].percentage.unwrap();
        assert_eq!(percentage.to_bits(), case["percentage"].as_f64().unwrap().to_bits(), "{line}");
        count += 1;
    }
    assert_eq!(count, 1_770, "hash.jsonl is not complete");
}

#[test]
fn cases_of_flagsmith_engine_pass() {
    let Some(folder) = all_answers() else { return };
    let cases = files(&folder.join("engine-test-data"));
    assert!(cases.len() >= 140, "engine-test-data is not complete");
    for (name, text) in cases {
        let text: String = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
        let case: Value = serde_json::from_str(&text).unwrap();
        let compiled = compiled(&context::document(&case["context"]), &[], EnvironmentFlags::Plain);
        let snapshot = snapshot(&compiled);
        let mut subject = RequestState::default();
        let identity = &case["context"]["identity"];
        if let Some(identifier) = identity["identifier"].as_str() {
            snapshot.identify(&mut subject, identifier);
            if let Some(key) = identity["key"].as_str().filter(|key| !key.is_empty()) {
                snapshot.set_key(&mut subject, key);
            }
            for (key, value) in identity["traits"].as_object().into_iter().flatten() {
                set_trait(&snapshot, &mut subject, key, value);
            }
        }
        let explanations = snapshot.explain(&mut subject);
        let (segments, flags): (Vec<_>, Vec<_>) =
            explanations.iter().partition(|e| e.feature.starts_with(context::MEMBERSHIP));
        let matched: Vec<&str> =
            segments.iter().filter(|e| e.enabled).map(|e| &e.feature[context::MEMBERSHIP.len()..]).collect();
        let expected: Vec<String> = case["result"]["segments"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|s| context::place_of(&case["context"], s))
            .collect();
        assert_eq!(matched, expected, "{name}: segments");
        let wanted = case["result"]["flags"].as_object().unwrap();
        assert_eq!(flags.len(), wanted.len(), "{name}: flags");
        for flag in flags {
            let wanted = &wanted[&flag.feature];
            let variant: Value =
                flag.variant.as_deref().map_or(Value::Null, |json| serde_json::from_str(json).unwrap());
            // Engines before version 11 do not have STATIC.
            let reason = if flag.reason == "STATIC" { "DEFAULT" } else { &flag.reason };
            assert_eq!(serde_json::from_str::<Value>(&flag.value).unwrap(), wanted["value"], "{name}: {flag:?}");
            assert_eq!(
                (Value::from(flag.enabled), Value::from(reason), variant),
                (wanted["enabled"].clone(), wanted["reason"].clone(), wanted["variant"].clone()),
                "{name}: {flag:?}"
            );
        }
    }
}

/// Sets the subject to the identity of a body.
fn identify(snapshot: &Snapshot<&[u8]>, subject: &mut RequestState, body: &Value) {
    snapshot.identify(subject, body["identifier"].as_str().unwrap());
    for row in body["traits"].as_array().into_iter().flatten() {
        set_trait(snapshot, subject, row["trait_key"].as_str().unwrap(), &row["trait_value"]);
    }
}

/// Evaluates a body for an identity, or the environment without one, and returns the array of flags.
fn answer(snapshot: &Snapshot<&[u8]>, body: Option<&Value>, role: Role) -> String {
    let Some(body) = body else { return String::from_utf8(snapshot.flags(role).to_vec()).unwrap() };
    let mut subject = RequestState::default();
    identify(snapshot, &mut subject, body);
    let mut out = Vec::new();
    snapshot.write_flags(&mut subject, role, &mut out);
    String::from_utf8(out).unwrap()
}

/// Asserts that the flags equal the recorded answers of Flagsmith's API, but for those that differ on purpose.
fn assert_api_answers(sets: &[Set]) {
    let mut wrong = Vec::new();
    for set in sets {
        let (name, cases) = (&set.name, &set.cases);
        let compiled = compiled(&read(&set.folder.join("environment.json")), &[], EnvironmentFlags::Plain);
        let snapshot = snapshot(&compiled);
        let (mut right, mut known) = (0, 0);
        for case in cases {
            let role = if case.is_server { Role::Server } else { Role::Client };
            let flags = |body: Option<&Value>| {
                let flags: Vec<Value> = serde_json::from_str(&answer(&snapshot, body, role)).unwrap();
                Expected::Flags(flags.iter().map(recorded::told).collect())
            };
            let body = match &case.request {
                Request::Body(body) => Some(body.clone()),
                Request::Identity(identifier) => Some(serde_json::json!({"identifier": identifier})),
                Request::Flags | Request::Flag(_) => None,
            };
            let ours = match &case.request {
                Request::Flag(name) => match snapshot.flag(role, name) {
                    Some(flag) => Expected::Flag(recorded::told(&serde_json::from_slice(flag).unwrap())),
                    None => Expected::Status(404),
                },
                _ => flags(body.as_ref()),
            };
            if !set.agrees(&ours, case) {
                wrong.push(format!("{name} {}:\n  {}", case.name, unlike(&ours, &case.expected)));
            } else if case.is_known {
                known += 1;
            } else {
                right += 1;
            }
            if let Some(body) = body.filter(|_| !case.is_known) {
                let mut subject = RequestState::default();
                identify(&snapshot, &mut subject, &body);
                for flag in snapshot.explain(&mut subject) {
                    let ours: Option<Value> = flag.variant.as_deref().map(|json| serde_json::from_str(json).unwrap());
                    // The API calls the flag of a feature with variants "control" even if an override has none.
                    match case.variants.get(&flag.feature) {
                        Some(theirs) if *theirs != ours.clone().unwrap_or("control".into()) && !theirs.is_null() => {
                            wrong.push(format!(
                                "{name} {}: variant of {}: {ours:?}, not {theirs}",
                                case.name, flag.feature
                            ));
                        }
                        _ => {}
                    }
                }
            }
        }
        eprintln!("{name}: {} cases, {right} equal, {known} differ on purpose", cases.len());
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// Describes how two answers differ.
fn unlike(ours: &Expected, theirs: &Expected) -> String {
    match (ours, theirs) {
        (Expected::Flags(ours), Expected::Flags(theirs)) => {
            let only = |these: &[Value], those: &[Value]| -> Vec<String> {
                these.iter().filter(|flag| !those.contains(flag)).map(ToString::to_string).collect()
            };
            format!("ours {:?}\n  theirs {:?}", only(ours, theirs), only(theirs, ours))
        }
        _ => format!("ours {ours:?}\n  theirs {theirs:?}"),
    }
}

/// Asserts that the bytes equal the recorded answers of the edge proxy.
fn assert_edge_proxy_answers(folder: &Path, count: usize) {
    let compiled = compiled(&read(&folder.join("environment.json")), &[], EnvironmentFlags::AllSegments);
    let snapshot = snapshot(&compiled);
    let cases = files(&folder.join("edge-proxy"));
    assert_eq!(cases.len(), count, "edge-proxy is not complete");
    for (name, text) in cases {
        let case: Value = serde_json::from_str(&text).unwrap();
        let body = case["body_text"].as_str().unwrap();
        let flags = body.split_once("\"flags\":").map_or(body, |(_, flags)| flags.strip_suffix('}').unwrap());
        let request = &case["request"];
        let query = serde_json::json!({"identifier": request["query"]["identifier"]});
        let body = if request.get("query").is_some() { &query } else { request };
        let role = if name.ends_with("server.json") { Role::Server } else { Role::Client };
        let body = Some(body).filter(|body| body["identifier"].is_string());
        assert_eq!(answer(&snapshot, body, role), flags, "{name}");
    }
}

#[test]
fn flags_equal_committed_answers_of_api() {
    assert_api_answers(&recorded::committed_sets(&committed_answers()));
}

#[test]
fn flags_equal_all_answers_of_api() {
    let Some(folder) = all_answers() else { return };
    assert_api_answers(&recorded::all_sets(&folder));
}

#[test]
fn bytes_equal_committed_answers_of_edge_proxy() {
    assert_edge_proxy_answers(&committed_answers(), 28);
}

#[test]
fn bytes_equal_all_answers_of_edge_proxy() {
    let Some(folder) = all_answers() else { return };
    assert_edge_proxy_answers(&folder, 77);
}
