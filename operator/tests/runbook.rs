//! Tests that `README.md` has exactly one row for every reason, Event and metric in the code.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

/// Collects the code of all files below `place`, without tests.
fn code(place: &Path, all: &mut Vec<String>) {
    if place.is_dir() {
        for entry in fs::read_dir(place).unwrap() {
            let path = entry.unwrap().path();
            let is_test = path.file_stem().is_some_and(|name| name == "tests");
            if !is_test {
                code(&path, all);
            }
        }
    } else if place.extension().is_some_and(|extension| extension == "rs") {
        let text = fs::read_to_string(place).unwrap();
        all.push(text.split("#[cfg(test)]").next().unwrap().to_owned());
    }
}

fn code_of(places: &[&str]) -> String {
    let mut all = Vec::new();
    places.iter().for_each(|place| code(&root().join(place), &mut all));
    assert!(!all.is_empty(), "{places:?}");
    all.join("\n")
}

/// Returns the quoted text at the start, after optional spaces.
fn quoted(text: &str) -> Option<&str> {
    text.trim_start().strip_prefix('"')?.split('"').next()
}

/// Returns the quoted texts that follow any of these words.
fn behind<'a>(code: &'a str, words: &[&str]) -> BTreeSet<&'a str> {
    let after = |word: &&str| {
        let word = (*word).to_owned();
        code.match_indices(word.as_str()).map(|(at, word)| at + word.len()).collect::<Vec<_>>()
    };
    words.iter().flat_map(after).filter_map(|at| quoted(&code[at..])).collect()
}

/// Returns the names in the first column of the tables under a heading. Several names may share a row.
fn rows<'a>(text: &'a str, heading: &str) -> BTreeSet<&'a str> {
    let section = text.split(&format!("\n## {heading}\n")).nth(1).unwrap_or_else(|| panic!("no heading {heading:?}"));
    let section = section.split("\n## ").next().unwrap();
    let cells = section.lines().filter_map(|line| line.strip_prefix("| `")?.split(" |").next());
    cells.flat_map(|cell| cell.split('`').step_by(2)).filter(|name| !name.is_empty()).collect()
}

fn assert_same(what: &str, documented: &BTreeSet<&str>, known: &BTreeSet<&str>) {
    let missing: Vec<_> = known.difference(documented).collect();
    let gone: Vec<_> = documented.difference(known).collect();
    assert!(missing.is_empty() && gone.is_empty(), "{what}: not in README.md: {missing:?}; not in the code: {gone:?}");
}

#[test]
fn runbook_explains_every_condition_reason() {
    let text = fs::read_to_string(root().join("README.md")).unwrap();
    let all = code_of(&[
        "src/controller/report",
        "src/controller/reconcile",
        "src/compiler",
        "src/source/fetch",
        "src/source/fetch.rs",
        "src/publish",
        "src/compile/guard.rs",
    ]);
    let mut known = behind(&all, &["State::yes(", "State::no(", "State::unknown(", "reason: "]);
    for body in all.split("fn reason(").skip(1) {
        let body = body.split("\n    }\n").next().unwrap();
        known.extend(behind(body, &["=>"]));
    }
    assert!(known.len() > 30, "{known:?}");
    assert_same("reasons", &rows(&text, "Conditions"), &known);
}

#[test]
fn runbook_explains_every_event() {
    let text = fs::read_to_string(root().join("README.md")).unwrap();
    let events = code_of(&["src/controller/report/events.rs", "src/injection/auditor/events.rs"]);
    let known = behind(&events, &["normal(", "EventType::Normal,", "EventType::Warning,"]);
    assert!(known.len() > 3, "{known:?}");
    assert_same("Events", &rows(&text, "Events"), &known);
}

#[test]
fn runbook_explains_every_metric() {
    let text = fs::read_to_string(root().join("README.md")).unwrap();
    let all = code_of(&["src", "../sidecar/src/endpoints/metrics.rs"]);
    let names = all.match_indices("\"remora_").filter_map(|(at, _)| quoted(&all[at..]));
    let is_name =
        |name: &&str| name.starts_with("remora_") && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
    let known: BTreeSet<&str> = names.filter(is_name).map(|name| name.trim_end_matches("_total")).collect();
    assert!(known.len() > 20, "{known:?}");
    let documented = rows(&text, "Metrics").into_iter().map(|name| name.trim_end_matches("_total")).collect();
    assert_same("metrics", &documented, &known);
}
