//! Compares pods before and after injection with the files in `tests/inject/`: `<case>.in.yaml` is the pod of the
//! request, `<case>.out.yaml` the outcome. The optional `<case>.namespace.yaml` holds the annotations of its namespace.
//! Cases whose names begin with `values-` are those of a webhook with the arguments in `sidecar.arguments.txt`, which the
//! chart renders from `sidecar.values.yaml`; a test of the chart compares the two.
//! After an intended change, `make generate` rewrites the `<case>.out.yaml` files, and a reviewer reads the difference.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use clap::Parser;
use remora_operator::injection::{Config, Decision, Defaults, PodContext, decide};
use remora_sidecar::Command;
use remora_testing::assert_generated;
use serde_json::{Value, json};

/// Command line with the defaults of sidecars.
#[derive(Parser)]
struct Line {
    #[command(flatten)]
    defaults: Defaults,
}

/// Returns the configuration of the webhook in a case.
fn config(case: &str) -> Config {
    let arguments = fs::read_to_string(directory().join("sidecar.arguments.txt")).unwrap();
    let arguments = arguments.lines().filter(|_| case.starts_with("values-"));
    let Line { defaults } = Line::parse_from(["run"].into_iter().chain(arguments));
    defaults.check().unwrap();
    Config {
        sidecar_image: "example.org/remora-sidecar:1.0.0".to_owned(),
        sidecar_pull_policy: "IfNotPresent".to_owned(),
        own_namespace: "remora-system".to_owned(),
        defaults,
    }
}

/// Returns the namespace of a case: `shop`, except in the two cases about other namespaces.
fn namespace(case: &str) -> &'static str {
    match case {
        "system-namespace" => "kube-system",
        "own-namespace" => "remora-system",
        _ => "shop",
    }
}

/// Returns the annotations that the namespace of a case sets for all of its pods.
fn defaults(case: &str) -> BTreeMap<String, String> {
    let path = directory().join(format!("{case}.namespace.yaml"));
    fs::read_to_string(path).map(|text| serde_yaml::from_str(&text).unwrap()).unwrap_or_default()
}

fn outcome(pod: &Value, case: &str) -> Value {
    let defaults = defaults(case);
    let context = PodContext { defaults: Some(&defaults), ..PodContext::new(namespace(case)) };
    match decide(pod, &context, &config(case)) {
        Decision::Skip(reason) => json!({"skipped": reason.label(), "warning": reason.warning()}),
        Decision::Deny(refusal) => json!({"denied": refusal.label(), "message": refusal.to_string()}),
        Decision::Inject(injection) => {
            let mut patched = pod.clone();
            json_patch::patch(&mut patched, &injection.patch).unwrap();
            json!({"warnings": injection.warnings, "pod": patched})
        }
    }
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/inject")
}

fn cases() -> Vec<(String, PathBuf)> {
    let mut cases: Vec<_> = fs::read_dir(directory())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter_map(|path| {
            let name = path.file_name()?.to_str()?.strip_suffix(".in.yaml")?.to_owned();
            Some((name, path))
        })
        .collect();
    cases.sort();
    cases
}

fn read(path: &Path) -> Value {
    serde_yaml::from_str(&fs::read_to_string(path).unwrap_or_default()).unwrap()
}

#[test]
fn pods_are_injected_as_recorded() {
    for (case, path) in cases() {
        let becomes = outcome(&read(&path), &case);
        assert_generated(&path.with_file_name(format!("{case}.out.yaml")), &serde_yaml::to_string(&becomes).unwrap());
    }
}

#[test]
fn second_injection_changes_nothing() {
    let mut injected = 0;
    for (case, path) in cases() {
        let once = outcome(&read(&path), &case);
        if let Some(pod) = once.get("pod") {
            let twice = outcome(pod, &case);
            assert_eq!(twice, json!({"skipped": "already_injected", "warning": null}), "{case}");
            injected += 1;
        }
    }
    assert!(injected > 10, "only {injected} cases inject");
}

/// Returns the arguments of the sidecar and of its probe.
fn arguments(pod: &Value) -> (Vec<String>, Vec<String>) {
    let sidecar = pod["spec"]["initContainers"].as_array().unwrap().iter().find(|one| one["name"] == "remora").unwrap();
    let strings =
        |list: &Value| list.as_array().into_iter().flatten().map(|one| one.as_str().unwrap().to_owned()).collect();
    let probe: Vec<String> = strings(&sidecar["startupProbe"]["exec"]["command"]);
    (strings(&sidecar["args"]), probe.into_iter().skip(1).collect())
}

#[test]
fn sidecar_parses_injected_arguments() {
    let mut pods: Vec<_> = cases()
        .into_iter()
        // The existing sidecar in this case was not created by this version.
        .filter(|(case, _)| case != "reinvoked")
        .filter_map(|(case, path)| outcome(&read(&path), &case).get("pod").cloned())
        .collect();
    for (key, values) in [
        ("log-level", ["error", "warn", "info", "debug"].as_slice()),
        ("log-json", ["true", "false"].as_slice()),
        ("await", ["0s", "500ms", "2m", "3600s"].as_slice()),
        ("port", ["1024", "65534"].as_slice()),
    ] {
        for value in values {
            let mut pod = json!({"metadata": {"annotations": {"remora.dev/inject": "a"}}, "spec": {"containers": []}});
            pod["metadata"]["annotations"][format!("remora.dev/{key}")] = json!(value);
            pods.push(outcome(&pod, "shop").get("pod").unwrap_or_else(|| panic!("{key} {value}")).clone());
        }
    }
    for pod in pods {
        let (arguments, probe) = arguments(&pod);
        let command = remora_sidecar::parse(arguments.clone());
        let Ok(Command::Serve(options)) = command else { panic!("{command:?} from {arguments:?}") };
        assert!(!options.environments.is_empty());
        let Ok(Command::Probe(address)) = remora_sidecar::parse(probe.clone()) else { panic!("{probe:?}") };
        assert_eq!(address.port(), options.admin.port());
    }
}

#[test]
fn injection_keeps_every_member_of_pod() {
    for (case, path) in cases() {
        let before = read(&path);
        if let Some(after) = outcome(&before, &case).get("pod") {
            assert_kept(&before, after, &case);
        }
    }
}

/// Asserts that `after` has every member of `before`, and that every list of `before` is a subsequence of the one in
/// `after`.
fn assert_kept(before: &Value, after: &Value, path: &str) {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            for (key, value) in before {
                // The operator owns these two keys and may replace their values.
                if key != "remora.dev/sidecar" && key != "remora.dev/injected" {
                    assert_kept(value, after.get(key).unwrap_or(&Value::Null), &format!("{path}.{key}"));
                }
            }
        }
        (Value::Array(before), Value::Array(after)) => {
            let mut rest = after.iter();
            for (index, item) in before.iter().enumerate() {
                let name = item.get("name");
                let same = rest.find(|candidate| *candidate == item || name.is_some() && candidate.get("name") == name);
                assert_kept(item, same.unwrap_or(&Value::Null), &format!("{path}[{index}]"));
            }
        }
        (Value::Null, _) => {}
        _ => assert_eq!(before, after, "{path}"),
    }
}
