//! The defaults of sidecars reach the webhook's arguments and the admission policies, and whatever the chart accepts,
//! the program accepts, too.

use std::path::PathBuf;

use clap::Parser;
use remora_operator::injection::Defaults;
use serde_json::{Value, json};

use super::{Objects, arguments, at, get, merged, render, render_as};

/// Command line with the defaults of sidecars.
#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    defaults: Defaults,
}

/// Returns the webhook's arguments about sidecars, except those about their image.
fn of_sidecars(objects: &Objects) -> Vec<String> {
    let webhook = arguments(get(objects, "Deployment", "remora-webhook")).into_iter();
    let others = ["--sidecar-image=", "--sidecar-pull-policy="];
    let ours =
        webhook.filter(|one| one.starts_with("--sidecar-") && !others.iter().any(|other| one.starts_with(other)));
    ours.map(str::to_owned).collect()
}

fn parse(arguments: &[String]) -> Result<Defaults, String> {
    let line = Line::try_parse_from(["run".to_owned()].iter().chain(arguments));
    line.map(|line| line.defaults).map_err(|error| error.to_string())
}

fn read(file: &str) -> String {
    let directory: PathBuf = [env!("CARGO_MANIFEST_DIR"), "..", "operator", "tests", "inject"].iter().collect();
    std::fs::read_to_string(directory.join(file)).unwrap()
}

/// Returns the values of the pods in `operator/tests/inject/` whose names begin with `values-`.
fn values() -> Value {
    serde_yaml::from_str(&read("sidecar.values.yaml")).unwrap()
}

#[test]
fn defaults_of_chart_are_those_of_program() {
    let defaults = parse(&of_sidecars(&render(&json!({})))).unwrap();
    assert_eq!(format!("{defaults:?}"), format!("{:?}", Defaults::default()));
}

#[test]
fn values_become_arguments_of_webhook() {
    assert_eq!(of_sidecars(&render(&values())), read("sidecar.arguments.txt").lines().collect::<Vec<_>>());
}

#[test]
fn values_become_variables_of_policies() {
    let objects = render(&merged(values(), &json!({"injection": {"by": "AdmissionPolicy"}})));
    for (kind, name) in [
        ("MutatingAdmissionPolicy", "remora"),
        ("ValidatingAdmissionPolicy", "remora-refusals"),
        ("ValidatingAdmissionPolicy", "remora-warnings"),
    ] {
        let variables = get(&objects, kind, name)["spec"]["variables"].as_array().unwrap();
        let text = |variable: &Value, member: &str| variable[member].as_str().unwrap().to_owned();
        let all = variables.iter().map(|variable| (text(variable, "name"), text(variable, "expression")));
        let found: Vec<_> = all.filter(|(name, _)| name.starts_with("chart")).collect();
        let expected = [
            ("chartAwait", "'1m30s'"),
            ("chartLogLevel", "'warn'"),
            ("chartLogJson", "'true'"),
            ("chartCpuRequest", "'20m'"),
            ("chartCpuLimit", "'0.5'"),
            ("chartMemoryRequest", "'24Mi'"),
        ];
        let expected = expected.map(|(name, expression)| (name.to_owned(), expression.to_owned()));
        assert_eq!(found, expected, "{name}");
    }
}

/// With admission policies no program checks the values, so the schema must accept nothing that the program refuses.
#[test]
fn schema_and_program_refuse_the_same_values() {
    let cpu = (
        ["1m", "999999m", "1024000m", "1", "0.5", "0.001", "1000", "1023.999", "1024"],
        ["0", "0m", "0.000", "0.5m", "1024.001", "1024001m", "1025", "1k"],
    );
    for (value, option, good, bad) in [
        (
            "await",
            "await",
            vec!["0s", "500ms", "999999ms", "10s", "90s", "3600s", "1m30s", "60m", "1h"],
            vec!["", "10", "soon", "3601s", "61m", "2h", "1s1m", "-1s", "1.5s", "00000010s", "10s "],
        ),
        ("logLevel", "log-level", vec!["error", "warn", "info", "debug"], vec!["", "trace", "Info", "off"]),
        ("resources.requests.cpu", "cpu-request", cpu.0.to_vec(), [&cpu.1[..], &[""]].concat()),
        ("resources.limits.cpu", "cpu-limit", cpu.0.to_vec(), cpu.1.to_vec()),
        (
            "resources.requests.memory",
            "memory-request",
            vec!["4Mi", "64Mi", "999999Mi", "1Gi", "999Gi"],
            vec!["", "64", "3Mi", "0Mi", "2Ti", "64MB", "64mi", "64 Mi", "1e9"],
        ),
    ] {
        let line = |text: &str| [format!("--sidecar-{option}={text}")];
        // A request needs a limit that is at least as large.
        let render = |text: &str| {
            let request = at("sidecar.resources.requests.cpu", &json!("1m"));
            render_as("remora", &merged(request, &at(&format!("sidecar.{value}"), &json!(text))))
        };
        for text in good {
            let text_of = render(text).unwrap_or_else(|error| panic!("{value} {text:?}: {error}"));
            assert!(text_of.contains(&format!("--sidecar-{option}={text}\"")), "{value} {text:?}");
            parse(&line(text)).unwrap_or_else(|error| panic!("{value} {text:?}: {error}"));
        }
        for text in bad {
            let error = render(text).expect_err(&format!("{value} {text:?}"));
            let path = format!("sidecar/{}", value.replace('.', "/"));
            assert!(error.contains("schema") && error.contains(&path), "{value} {text:?}: {error}");
            let error = parse(&line(text)).expect_err(&format!("{value} {text:?}"));
            assert!(error.contains(&format!("--sidecar-{option} ")) && error.contains("write "), "{text:?}: {error}");
        }
    }
}

/// The memory limit follows from the sizes of snapshots.
#[test]
fn memory_limit_is_no_value() {
    let error = render_as("remora", &at("sidecar.resources.limits.memory", &json!("32Mi"))).unwrap_err();
    assert!(error.contains("/sidecar/resources/limits") && error.contains("'memory' not allowed"), "{error}");
}
