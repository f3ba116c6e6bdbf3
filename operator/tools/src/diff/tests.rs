use std::fs;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use super::*;
use crate::directory;
use remora_compile::{
    EnvironmentFlags, Options, compile, document,
    prune::{Rules, prune},
};

/// Temporary directory that is deleted on drop.
struct TempDir(PathBuf);

impl TempDir {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("remora-diff-{name}-{}", std::process::id()));
        let _gone_already = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn compile(&self, name: &str, document: &Value) -> PathBuf {
        let document = document::parse(document.to_string().as_bytes()).unwrap();
        let pruned = prune(document, &Rules::default());
        let options = Options {
            environment: "e",
            server_keys: &[],
            environment_flags: EnvironmentFlags::Plain,
            ..Options::default()
        };
        directory::write(&self.0.join(name), "e", &compile(&pruned, &options).unwrap()).unwrap()
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn state(id: i64, name: &str, enabled: bool, value: &str) -> Value {
    json!({
        "feature": {"id": id, "name": name}, "enabled": enabled, "feature_state_value": value, "django_id": id,
        "multivariate_feature_state_values": [],
    })
}

fn segment(id: i64, name: &str, plan: &str, state: &Value) -> Value {
    let condition = json!({"operator": "EQUAL", "property_": "plan", "value": plan});
    json!({"id": id, "name": name, "rules": [{"type": "ALL", "conditions": [condition]}], "feature_states": [state]})
}

fn identity(name: &str, value: &str) -> Value {
    json!({"identifier": name, "identity_features": [state(1, "banner", false, value)]})
}

fn first() -> Value {
    json!({
        "api_key": "k", "project": {"segments": [segment(1, "pro", "pro", &state(1, "banner", true, "for pros"))]},
        "feature_states": [state(1, "banner", true, "Welcome"), state(2, "old", false, "x")],
        "identity_overrides": [identity("a", "1"), identity("b", "1")],
    })
}

fn difference(before: PathBuf, after: PathBuf) -> String {
    let mut out = Vec::new();
    Diff { before, after, environment: None }.run(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn diff_lists_changed_flags_segments_and_identities() {
    let directory = TempDir::new("changes");
    let second = json!({
        "api_key": "k",
        "project": {"segments": [
            segment(1, "pro", "pro", &state(1, "banner", false, "for pros")), segment(2, "beta", "beta", &state(3, "new", true, "n")),
        ]},
        "feature_states": [state(1, "banner", true, "Sale"), state(3, "new", true, "y")],
        "identity_overrides": [identity("b", "2"), identity("c", "1"), identity("d", "1")],
    });
    let text = difference(directory.compile("a", &first()), directory.compile("b", &second));
    let lines: Vec<&str> = text.lines().skip(1).collect();
    assert_eq!(
        lines,
        [
            "~ flag banner: on \"Welcome\" -> on \"Sale\"",
            "~ flag banner, segment \"pro\": on \"for pros\" -> off \"for pros\"",
            "+ flag new: on \"y\"",
            "- flag old: off \"x\"",
            "+ segment \"beta\" (2): 1 feature",
            "~ identities with overrides: 2 -> 3 (2 added, 1 removed, 1 changed)",
        ]
    );
}

#[test]
fn differences_as_json_name_overrides_segments_and_counts() {
    let directory = TempDir::new("json");
    let second = json!({
        "api_key": "k", "project": {"segments": [segment(1, "pros", "pro", &state(1, "banner", false, "for pros"))]},
        "feature_states": [state(1, "banner", true, "Welcome"), state(2, "old", false, "x")],
        "identity_overrides": [identity("b", "2")],
    });
    let snapshot = |name: &str, document: &Value| {
        directory.compile(name, document);
        directory::read(&directory.0.join(name), None).unwrap()
    };
    let differences = Differences::between(&snapshot("a", &first()), &snapshot("b", &second));
    let default = json!({"enabled": true, "value": "\"Welcome\"", "serverOnly": false, "isServed": true});
    let own = |enabled: bool| json!({"enabled": enabled, "value": "\"for pros\""});
    let expected = json!({
        "twoEnvironments": false, "onlyConditions": false,
        "flags": [{
            "name": "banner", "change": "changed", "before": default, "after": default,
            "segments": [{"segment": "pro", "before": own(true)}, {"segment": "pros", "after": own(false)}],
        }],
        "segments": [{
            "id": 1, "change": "changed",
            "before": {"name": "pro", "overrides": 1}, "after": {"name": "pros", "overrides": 1},
        }],
        "identityOverrides": {"before": 2, "after": 1, "added": 0, "removed": 1, "changed": 1},
    });
    assert_eq!(serde_json::to_value(&differences).unwrap(), expected);
}

#[test]
fn diff_of_conditions_only_says_so() {
    let directory = TempDir::new("conditions");
    let mut second = first();
    second["project"]["segments"][0]["rules"][0]["conditions"][0]["value"] = json!("enterprise");
    let (a, b) = (directory.compile("a", &first()), directory.compile("b", &second));
    assert!(difference(a.clone(), b).contains("conditions of segments"));
    assert!(difference(a.clone(), a).contains("the revisions are the same"));
}

#[test]
fn diff_of_two_environments_says_so() {
    let directory = TempDir::new("environments");
    let mut second = first();
    second["api_key"] = json!("other");
    let text = difference(directory.compile("a", &first()), directory.compile("b", &second));
    assert!(text.contains("two environments") && !text.contains("added"), "{text}");
}

#[test]
fn diff_reads_exported_objects() {
    let directory = TempDir::new("objects");
    let a = directory.compile("a", &first());
    let core = BASE64_STANDARD.encode(fs::read(a.join("core")).unwrap());
    let object = json!({"kind": "ConfigMap", "binaryData": {"core": core}});
    let list = json!({"kind": "List", "items": [{"kind": "Secret", "data": {"core": core}}]});
    for (name, object) in [("one", &object), ("list", &list)] {
        let file = directory.0.join(format!("{name}.json"));
        fs::write(&file, object.to_string()).unwrap();
        assert!(difference(a.clone(), file).contains("the revisions are the same"));
    }
    let two = json!({"items": [object, object]});
    for (wrong, says) in [(&two, "several revisions"), (&json!({"kind": "Pod"}), "no file `core`")] {
        let file = directory.0.join("wrong.json");
        fs::write(&file, wrong.to_string()).unwrap();
        let mut out = Vec::new();
        let error = Diff { before: a.clone(), after: file, environment: None }.run(&mut out).unwrap_err();
        assert!(format!("{error:#}").contains(says), "{error:#}");
    }
}

#[test]
fn diff_reads_exported_objects_of_core_in_parts() {
    let directory = TempDir::new("parts");
    let mut large = first();
    large["feature_states"][0]["feature_state_value"] = json!("x".repeat(1_500_000));
    let (small, large) = (directory.compile("a", &first()), directory.compile("b", &large));
    let object = |name: &str| {
        let content = BASE64_STANDARD.encode(fs::read(large.join(name)).unwrap());
        json!({"kind": "ConfigMap", "binaryData": {name: content}})
    };
    let mut names: Vec<String> = fs::read_dir(large.join("..data"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("core") || name.starts_with("overrides"))
        .collect();
    names.sort();
    assert_eq!(names[..4], ["core", "core-a-00", "core-a-01", "core-a-02"]);
    let file = directory.0.join("objects.json");
    let write = |names: &[String]| {
        let items: Vec<Value> = names.iter().map(|name| object(name)).collect();
        fs::write(&file, json!({"kind": "List", "items": items}).to_string()).unwrap();
    };
    write(&names);
    assert!(difference(large.clone(), file.clone()).contains("the revisions are the same"));
    assert!(difference(small, file.clone()).contains("~ flag banner: on \"Welcome\" -> on"));
    names.remove(2);
    write(&names);
    let error =
        Diff { before: large.clone(), after: file.clone(), environment: None }.run(&mut Vec::new()).unwrap_err();
    assert!(format!("{error:#}").contains("no file `core-a-01`"), "{error:#}");
}

/// The publisher keeps an earlier revision with a core in parts without a file `core`.
#[test]
fn diff_reads_kept_revision_of_core_in_parts() {
    let directory = TempDir::new("kept");
    let mut large = first();
    large["feature_states"][0]["feature_state_value"] = json!("x".repeat(1_500_000));
    let (small, large) = (directory.compile("a", &first()), directory.compile("b", &large));
    let part = |number: usize| {
        let name = format!("core-a-{number:02}");
        let content = BASE64_STANDARD.encode(fs::read(large.join(&name)).unwrap());
        json!({"kind": "Secret", "metadata": {"name": format!("remora-e-v3-history-abc-{name}")}, "data": {name: content}})
    };
    let count = (0..).take_while(|number| large.join(format!("core-a-{number:02}")).exists()).count();
    assert!(count > 2, "{count}");
    let file = directory.0.join("kept.json");
    let write = |parts: &[usize]| {
        let items: Vec<Value> = parts.iter().map(|number| part(*number)).collect();
        fs::write(&file, json!({"kind": "List", "items": items}).to_string()).unwrap();
    };
    // The API server lists objects in any order.
    let mut all: Vec<usize> = (0..count).rev().collect();
    write(&all);
    assert!(difference(large.clone(), file.clone()).contains("the revisions are the same"));
    assert!(difference(file.clone(), small.clone()).contains("~ flag banner: on"));
    all.push(0);
    for (parts, says) in
        [(&all[1..count], "are no whole core"), (&all[..count - 1], "are no whole core"), (&all[..], "several")]
    {
        write(parts);
        let error = Diff { before: small.clone(), after: file.clone(), environment: None }.run(&mut Vec::new());
        let error = error.unwrap_err();
        assert!(format!("{error:#}").contains(says), "{parts:?}: {error:#}");
    }
}
