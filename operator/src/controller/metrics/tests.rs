//! Compares the queries of the chart's dashboard and alerts with the exported series: the metrics of an operator in
//! which each event happened once, and those of a real sidecar.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    path::PathBuf,
    time::Duration,
};

use remora_compile::{document, prune};
use remora_tools::directory;
use serde_json::{Value, json};

use super::{Metrics, Outcome, Step};
use crate::{
    api::{NamespacedName, Pods, Reason},
    injection::{auditor, self_check, webhook},
};

/// Exported series: labels and values by metric name.
#[derive(Default)]
struct Exported(BTreeMap<String, BTreeMap<String, BTreeSet<String>>>);

impl Exported {
    fn read(&mut self, exposition: &str) {
        for line in exposition.lines() {
            if let Some(family) = line.strip_prefix("# TYPE ") {
                // A family may have no series before its first event. The sidecar's names include their suffix already.
                let name = family.split(' ').next().unwrap();
                if name.starts_with("remora_sidecar_") {
                    self.0.entry(name.to_owned()).or_default();
                }
                continue;
            }
            if line.starts_with('#') {
                continue;
            }
            let (series, _value) = line.rsplit_once(' ').unwrap();
            let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
            let known = self.0.entry(name.to_owned()).or_default();
            for (label, value) in matchers(labels.strip_suffix('}').unwrap()) {
                known.entry(label.to_owned()).or_default().insert(value.to_owned());
            }
        }
    }
}

/// Parses matchers such as `a="b",c=~"d"` to labels and patterns.
fn matchers(text: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((label, after)) = rest.split_once('"') {
        let (value, after) = after.split_once('"').unwrap();
        found.push((label.trim_matches([',', ' ', '=', '~', '!']), value));
        rest = after;
    }
    found
}

fn operator() -> String {
    let metrics = Metrics::default();
    for step in [Step::Fetch, Step::Compile, Step::Archive, Step::Publish, Step::Nudge, Step::Report] {
        metrics.begin(step).end(Outcome::Done);
    }
    metrics.set_leading(true);
    let environments = &metrics.environments;
    let storefront = NamespacedName::new("shop", "storefront");
    environments.set_fetched(&storefront, 1.0);
    environments.set_document_bytes(&storefront, 1);
    environments.set_read_within(&storefront, Duration::from_secs(33));
    environments.set_findings(&storefront, 1);
    environments.set_published_bytes(&storefront, 1);
    environments.set_held(&storefront, true);
    environments.set_pods(&storefront, &Pods::default());
    for condition in ["Accepted", "Fetched", "Published", "Ready", "Stale"] {
        environments.set_condition(&storefront, condition, true);
    }
    let _connected = metrics.realtime.begin_connection();
    metrics.realtime.count_change();
    metrics.realtime.count_failure(Reason::UpstreamUnavailable);
    let webhook = metrics.register_part(webhook::Metrics::register);
    webhook.count_answer(&webhook::Outcome::Injected.labels(), Duration::ZERO);
    let _ = metrics.register_part(self_check::Metrics::register);
    metrics.register_part(auditor::Metrics::register).set_missing(["shop"].into_iter());
    metrics.text().unwrap()
}

/// Metrics of a sidecar with one environment, after its flags were requested and used.
fn sidecar() -> String {
    let snapshots = std::env::temp_dir().join(format!("remora-monitoring-{:016x}", fastrand::u64(..)));
    let feature = json!({"feature": {"id": 1, "name": "checkout"}, "enabled": true, "feature_state_value": null});
    let text = json!({"api_key": "client", "project": {}, "feature_states": [feature]}).to_string();
    let pruned = prune::prune(document::parse(text.as_bytes()).unwrap(), &prune::Rules::default());
    let options = remora_compile::Options { environment: "storefront", ..remora_compile::Options::default() };
    directory::write(&snapshots, "storefront", &remora_compile::compile(&pruned, &options).unwrap()).unwrap();

    let mut options = remora_sidecar::Options::new(snapshots.clone());
    options.listen.set_port(0);
    options.admin.set_port(0);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let server = runtime.block_on(remora_sidecar::Server::start(&options)).unwrap();
    let (data, admin) = (server.data_address().unwrap(), server.admin_address().unwrap());
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let serving = std::thread::spawn(move || {
        runtime.block_on(server.run_until(async {
            let _ = tokio::task::spawn_blocking(move || stopped.recv()).await;
        }));
    });
    ask(data, "GET /api/v1/flags/", "");
    ask(data, "POST /api/v1/analytics/flags/", "{\"checkout\": 1}");
    let text = ask(admin, "GET /metrics", "");
    stop.send(()).unwrap();
    serving.join().unwrap();
    std::fs::remove_dir_all(snapshots).unwrap();
    text.split_once("\r\n\r\n").unwrap().1.to_owned()
}

fn ask(address: SocketAddr, what: &str, body: &str) -> String {
    let mut connection = TcpStream::connect(address).unwrap();
    let head = format!(
        "{what} HTTP/1.1\r\nhost: localhost\r\nx-environment-key: client\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    connection.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    answer
}

fn exported() -> Exported {
    let mut exported = Exported::default();
    exported.read(&operator());
    exported.read(&sidecar());
    exported
}

fn chart(file: &str) -> String {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "..", "charts", "remora", "monitoring", file].iter().collect();
    std::fs::read_to_string(path).unwrap()
}

/// All strings under these keys, at any depth.
fn texts(value: &Value, keys: &[&str], found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (key, value) in members {
                match value.as_str() {
                    Some(text) if keys.contains(&key.as_str()) => found.push(text.to_owned()),
                    _ => texts(value, keys, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| texts(item, keys, found)),
        _ => {}
    }
}

/// Labels that Prometheus adds to every target, the label that tells clusters apart, and `le` of histograms.
const OF_TARGETS: [&str; 6] = ["cluster", "job", "namespace", "pod", "container", "le"];
/// Labels whose values are all known.
const CLOSED: [&str; 5] = ["condition", "state", "step", "result", "route"];

/// Errors of a query.
fn check(query: &str, exported: &Exported) -> Vec<String> {
    let mut problems = Vec::new();
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let mut rest = query;
    while let Some(start) = ["remora_", "process_"].iter().filter_map(|prefix| rest.find(prefix)).min() {
        let (_, from) = rest.split_at(start);
        let (name, after) = from.split_at(from.find(|c| !is_part(c)).unwrap_or(from.len()));
        rest = after;
        let Some(labels) = exported.0.get(name) else {
            problems.push(format!("{name} is not exported"));
            continue;
        };
        let Some((selector, _)) = after.strip_prefix('{').and_then(|inside| inside.split_once('}')) else { continue };
        for (label, value) in matchers(selector) {
            match labels.get(label) {
                Some(values) if CLOSED.contains(&label) => {
                    let unknown = value.split('|').find(|value| !values.contains(*value));
                    problems.extend(unknown.map(|value| format!("{name} has no {label} {value}")));
                }
                None if !OF_TARGETS.contains(&label) && !labels.is_empty() => {
                    problems.push(format!("{name} has no label {label}"));
                }
                _ => {}
            }
        }
    }
    let all: BTreeSet<&str> =
        exported.0.values().flat_map(BTreeMap::keys).map(String::as_str).chain(OF_TARGETS).collect();
    for (_, after) in query.match_indices(" by (").map(|(at, by)| query.split_at(at + by.len())) {
        let (list, _) = after.split_once(')').unwrap();
        let unknown = list.split(',').map(str::trim).find(|label| !all.contains(label));
        problems.extend(unknown.map(|label| format!("nothing has a label {label}")));
    }
    problems
}

#[test]
fn chart_queries_only_exported_metrics() {
    let exported = exported();
    let dashboard: Value = serde_json::from_str(&chart("dashboard.json")).unwrap();
    let rules: Value = serde_yaml::from_str(&chart("alerts.yaml")).unwrap();
    let mut queries = Vec::new();
    texts(&dashboard, &["expr", "query"], &mut queries);
    texts(&rules, &["expr"], &mut queries);
    queries.retain(|query| query != "prometheus");
    assert!(queries.len() > 30, "{queries:?}");
    let problems: Vec<String> = queries
        .iter()
        .flat_map(|query| check(query, &exported).into_iter().map(move |problem| format!("{problem}: {query}")))
        .collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    // Every query names a metric of Remora or of its processes.
    assert!(queries.iter().all(|query| query.contains("remora_") || query.contains("process_")), "{queries:?}");
}

/// The operator waits up to 300 s between two attempts to publish, so a count of failures says too little: the alert needs
/// the condition of each environment.
#[test]
fn alerts_cover_injection_and_publication_of_each_environment() {
    let rules: Value = serde_yaml::from_str(&chart("alerts.yaml")).unwrap();
    let rules = rules["groups"][0]["rules"].as_array().unwrap();
    for (name, metric, severity) in [
        ("RemoraInjectionFails", "remora_injection_works", "critical"),
        ("RemoraPodsWithoutSidecar", "remora_injection_missing_pods", "warning"),
        ("RemoraPublicationFails", "remora_environment_condition{condition=\"Published\"} == 0", "warning"),
    ] {
        let rule = rules.iter().find(|rule| rule["alert"] == name).unwrap_or_else(|| panic!("no alert {name}"));
        assert!(rule["expr"].as_str().unwrap().contains(metric), "{rule}");
        assert_eq!(rule["labels"]["severity"], severity);
    }
    // A name of an environment or namespace that the expression sums up would be empty in the text.
    for rule in rules {
        let texts = rule["annotations"].to_string();
        let expression = rule["expr"].as_str().unwrap();
        let sums_up = ["sum", "min", "max", "count", "absent"].iter().any(|function| expression.starts_with(function));
        let kept = expression.split_once(" by (").and_then(|(_, rest)| rest.split(')').next()).unwrap_or_default();
        let kept: Vec<&str> = kept.split(',').map(str::trim).collect();
        for label in texts.split("$labels.").skip(1).map(|rest| rest.split(' ').next().unwrap()) {
            assert!(!sums_up || kept.contains(&label), "{label}: {rule}");
        }
    }
}

/// Segments that were not decided change answers without an error.
#[test]
fn undecided_evaluations_have_alert_and_panel() {
    let metric = "remora_sidecar_undecided_evaluations_total";
    for file in ["alerts.yaml", "dashboard.json"] {
        let value: Value = serde_yaml::from_str(&chart(file)).unwrap();
        let mut queries = Vec::new();
        texts(&value, &["expr"], &mut queries);
        assert!(queries.iter().any(|query| query.contains(metric) && query.contains("environment")), "{file}");
    }
}

#[test]
fn query_of_unknown_metric_is_found() {
    let exported = exported();
    for (query, problem) in [
        ("rate(remora_controller_steps[5m])", "remora_controller_steps is not exported"),
        ("sum(remora_sidecar_gone)", "remora_sidecar_gone is not exported"),
        ("remora_environment_condition{condition=\"Happy\"}", "has no condition Happy"),
        ("remora_environment_pods{states=\"behind\"}", "has no label states"),
        ("sum by (flavour) (remora_environment_held)", "nothing has a label flavour"),
    ] {
        let found = check(query, &exported);
        assert!(found.iter().any(|found| found.contains(problem)), "{query}: {found:?}");
    }
    assert!(check("sum by (step) (rate(remora_controller_steps_total{step=\"fetch\"}[5m]))", &exported).is_empty());
}
