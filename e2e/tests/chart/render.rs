//! Runs helm on the chart, and reads what it renders.

use std::{
    collections::BTreeMap,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use serde_json::{Map, Value};
use serde_yaml::Deserializer;

pub(super) fn chart() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "..", "charts", "remora"].iter().collect()
}

/// APIs of a cluster in addition to those that helm assumes.
pub(super) const MORE: [&str; 1] = ["admissionregistration.k8s.io/v1beta1/MutatingAdmissionPolicy"];

pub(super) fn helm(arguments: &[&str], values: &Value) -> Output {
    helm_on(&chart(), "remora-system", arguments, values)
}

/// Runs helm on a chart in another directory, in a namespace.
pub(super) fn helm_on(chart: &Path, namespace: &str, arguments: &[&str], values: &Value) -> Output {
    let mut child = Command::new("helm")
        .args(arguments)
        .arg(chart)
        .args(["--values", "-", "--namespace", namespace, "--kube-version", "1.34.0"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("these tests need helm on PATH: source e2e/cluster/env.sh, which has it after make cluster-up");
    child.stdin.take().unwrap().write_all(values.to_string().as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

/// Returns the output of `helm template` with these values, or its error.
pub(super) fn render_as(release: &str, values: &Value) -> Result<String, String> {
    render_on(&MORE, release, values)
}

/// Does the same for a cluster that has these additional APIs.
pub(super) fn render_on(more: &[&str], release: &str, values: &Value) -> Result<String, String> {
    let apis = more.iter().flat_map(|api| ["--api-versions", api]);
    output_of(&helm(&["template", release].into_iter().chain(apis).collect::<Vec<_>>(), values))
}

/// Does the same in this namespace.
pub(super) fn render_in(namespace: &str, release: &str, values: &Value) -> Result<String, String> {
    let [api] = MORE;
    output_of(&helm_on(&chart(), namespace, &["template", release, "--api-versions", api], values))
}

pub(super) fn output_of(output: &Output) -> Result<String, String> {
    if output.status.success() {
        Ok(String::from_utf8(output.stdout.clone()).unwrap())
    } else {
        Err(String::from_utf8(output.stderr.clone()).unwrap())
    }
}

/// Objects by kind and name; of an object in several namespaces, only the last is kept.
pub(super) type Objects = BTreeMap<(String, String), Value>;

pub(super) fn objects(text: &str) -> Objects {
    let mut objects = Objects::new();
    for document in Deserializer::from_str(text) {
        let object: Value = serde::Deserialize::deserialize(document).unwrap();
        if object.is_null() {
            continue;
        }
        let part = |pointer| object.pointer(pointer).and_then(Value::as_str).unwrap().to_owned();
        let key = (part("/kind"), part("/metadata/name"));
        let before = objects.insert(key.clone(), object.clone());
        let elsewhere =
            before.as_ref().map(|before| before["metadata"]["namespace"] != object["metadata"]["namespace"]);
        assert!(elsewhere != Some(false), "{key:?} is there twice");
    }
    objects
}

pub(super) fn render(values: &Value) -> Objects {
    objects(&render_as("remora", values).unwrap())
}

/// Merges two sets of values; the second one takes precedence.
pub(super) fn merged(mut below: Value, above: &Value) -> Value {
    match (below.as_object_mut(), above.as_object()) {
        (Some(members), Some(others)) => {
            for (key, other) in others {
                let member = members.remove(key).unwrap_or(Value::Null);
                members.insert(key.clone(), merged(member, other));
            }
            below
        }
        _ => above.clone(),
    }
}

/// Returns values with this value at the end of the path.
pub(super) fn at(path: &str, value: &Value) -> Value {
    path.rsplit('.').fold(value.clone(), |inner, key| Value::Object(Map::from_iter([(key.to_owned(), inner)])))
}

pub(super) fn get<'a>(objects: &'a Objects, kind: &str, name: &str) -> &'a Value {
    objects.get(&(kind.to_owned(), name.to_owned())).unwrap_or_else(|| panic!("no {kind} {name}"))
}

pub(super) fn arguments(deployment: &Value) -> Vec<&str> {
    let arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"].as_array().unwrap();
    arguments.iter().map(|argument| argument.as_str().unwrap()).collect()
}
