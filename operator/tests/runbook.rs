//! Tests that `README.md` has exactly one row for every reason, outcome and metric.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{collections::BTreeSet, fs, path::Path};

use remora_operator::{
    api::Reason,
    controller::metrics::{Metrics, Outcome},
    injection::{auditor, self_check, webhook},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

fn readme() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap()
}

/// Returns the names in the first column of the tables under a heading. Several names may share a row.
fn rows(text: &str, heading: &str) -> BTreeSet<String> {
    let section = text.split(&format!("\n## {heading}\n")).nth(1).unwrap_or_else(|| panic!("no heading {heading:?}"));
    let section = section.split("\n## ").next().unwrap();
    let cells = section.lines().filter_map(|line| line.strip_prefix("| `")?.split(" |").next());
    let names = cells.flat_map(|cell| cell.split('`').step_by(2)).filter(|name| !name.is_empty());
    let mut unique = BTreeSet::new();
    for name in names {
        assert!(unique.insert(name.to_owned()), "{heading}: two rows for {name}");
    }
    unique
}

fn assert_same(what: &str, documented: &BTreeSet<String>, known: &BTreeSet<String>) {
    let missing: Vec<_> = known.difference(documented).collect();
    let gone: Vec<_> = documented.difference(known).collect();
    assert!(missing.is_empty() && gone.is_empty(), "{what}: not in README.md: {missing:?}; not in the code: {gone:?}");
}

#[test]
fn runbook_has_row_for_every_reason_and_outcome() {
    let text = readme();
    let documented = ["Conditions", "Events", "Outcomes of steps"].iter().flat_map(|heading| rows(&text, heading));
    let reasons = Reason::ALL.iter().map(|reason| reason.as_str());
    let outcomes = Outcome::WITHOUT_REASON.iter().map(|outcome| outcome.as_str());
    let known: BTreeSet<String> = reasons.chain(outcomes).map(str::to_owned).collect();
    assert!(known.len() > 50, "{known:?}");
    assert_same("reasons", &documented.collect(), &known);
}

/// Returns the alert rules of the chart.
fn alerts() -> Vec<serde_json::Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../charts/remora/monitoring/alerts.yaml");
    let rules: serde_json::Value = serde_yaml::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    rules["groups"][0]["rules"].as_array().unwrap().clone()
}

/// The annotation `runbook_url` of an alert names the heading.
#[test]
fn runbook_has_heading_for_every_alert() {
    let text = readme();
    let section = text.split("\n## Alerts\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let headings: Vec<&str> = section.lines().filter_map(|line| line.strip_prefix("### ")).collect();
    let alerts = alerts();
    let names: Vec<&str> = alerts.iter().map(|alert| alert["alert"].as_str().unwrap()).collect();
    assert_eq!(headings, names, "in the same order");
}

/// Returns the reasons that a source file of the operator names outside its tests.
fn named_in(file: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(file)).unwrap();
    let code = text.split("#[cfg(test)]").next().unwrap();
    let names = code.split("Reason::").skip(1);
    let is_name = |c: char| c.is_ascii_alphanumeric();
    names.map(|rest| rest.split(|c| !is_name(c)).next().unwrap().to_owned()).collect()
}

/// A reason that the alert leaves out has nobody who acts on it.
#[test]
fn alert_of_publication_names_every_reason_of_published() {
    let errors = ["publish/error.rs", "compiler/error.rs"];
    // These files decide if the volumes of pods have room.
    let fit = ["controller/reconcile/publication/fit.rs", "controller/reconcile/publication/fit/room.rs"];
    let mut reasons: BTreeSet<String> = errors.into_iter().chain(fit).flat_map(named_in).collect();
    // The first two are reasons of `Fetched`; in a namespace that is being deleted, there is nothing to do.
    for other in [Reason::ParseError, Reason::PagesChanged, Reason::NamespaceTerminating] {
        assert!(reasons.remove(other.as_str()), "{other}");
    }
    // The status that is written before the first Secret was refused.
    reasons.insert(Reason::ReportFailed.as_str().to_owned());
    assert!(reasons.len() > 10, "{reasons:?}");
    let alert = alerts().into_iter().find(|alert| alert["alert"] == "RemoraPublicationFails").unwrap();
    let text = alert["annotations"]["description"].as_str().unwrap().to_owned();
    let words: BTreeSet<&str> = text.split(|c: char| !c.is_ascii_alphanumeric()).collect();
    let missing: Vec<_> = reasons.iter().filter(|reason| !words.contains(reason.as_str())).collect();
    assert!(missing.is_empty(), "{missing:?}");
    let known = |word: &str| Reason::ALL.iter().any(|reason| reason.as_str() == word);
    let other: Vec<_> = words.iter().filter(|word| known(word) && !reasons.contains(**word)).collect();
    assert_eq!(other, [&"Published"], "the condition, which is a reason, too");
}

/// Returns the metric families of an exposition, without the suffix of counters.
fn families(exposition: &str) -> BTreeSet<String> {
    let names = exposition.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let ours = names.filter(|name| name.starts_with("remora_"));
    ours.map(|name| name.trim_end_matches("_total").to_owned()).collect()
}

/// Returns the operator's metric families. An exposition leaves out families without a series, so the registry's debug
/// output is read, which has all of them.
fn of_operator() -> BTreeSet<String> {
    let metrics = Metrics::default();
    let registered = metrics.register_part(|registry| {
        let _ = webhook::Metrics::register(registry);
        let _ = self_check::Metrics::register(registry);
        let _ = auditor::Metrics::register(registry);
        format!("{registry:?}")
    });
    let names = registered.split("Descriptor { name: \"").skip(1).filter_map(|rest| rest.split('"').next());
    names.map(str::to_owned).collect()
}

/// Returns the metrics of a sidecar without environments.
async fn of_sidecar() -> String {
    let snapshots = std::env::temp_dir().join(format!("remora-runbook-{:016x}", fastrand::u64(..)));
    // Without a snapshot, the environment has nothing to serve.
    fs::create_dir_all(snapshots.join("storefront")).unwrap();
    let mut options = remora_sidecar::Options::new(snapshots.clone());
    options.listen.set_port(0);
    options.admin.set_port(0);
    let server = remora_sidecar::Server::start(&options).await.unwrap();
    let admin = server.admin_address().unwrap();
    let (_stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let asking = async {
        let mut connection = TcpStream::connect(admin).await.unwrap();
        connection.write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).await.unwrap();
        answer
    };
    let serving = server.run_until(async {
        let _ = stopped.await;
    });
    let answer = tokio::select! {
        answer = asking => answer,
        _ = serving => panic!("the sidecar ended"),
    };
    fs::remove_dir_all(snapshots).unwrap();
    answer
}

#[tokio::test]
async fn runbook_has_row_for_every_metric() {
    let (operator, sidecar) = (of_operator(), families(&of_sidecar().await));
    assert!(operator.len() > 15 && sidecar.len() > 10, "{operator:?} {sidecar:?}");
    let documented = rows(&readme(), "Metrics").into_iter().map(|name| name.trim_end_matches("_total").to_owned());
    assert_same("metrics", &documented.collect(), &operator.union(&sidecar).cloned().collect());
}
