//! A document of a real server goes through the whole path, and the answers are compared with that server's own
//! answers.
//!
//! The answers are those of `e2e/recorded`, or of the larger directory that `REMORA_CONFORMANCE_DIR` names.

use std::path::Path;

use anyhow::Context as _;
use http::Method;
use remora_e2e::harness::{App, Case, PodPort, say, with_namespace};
use remora_testing::most_answers;
use serde_json::Value;

fn read(path: &Path) -> anyhow::Result<Value> {
    let text = std::fs::read(path).with_context(|| format!("recorded answers: {}", path.display()))?;
    serde_json::from_slice(&text).with_context(|| path.display().to_string())
}

/// Publishes a document and runs an application with it.
async fn publish(case: &Case, document: &Value, flag: &str) -> anyhow::Result<PodPort> {
    case.upstream.serve(&case.server_key(), document).await?;
    case.secret("flagsmith", &case.server_key()).await?;
    case.environment("storefront", case.flagsmith()).await?;
    case.condition("storefront", "Ready", "True", None).await?;
    case.pod(&App::new("shop").inject("storefront").flag(flag)).await
}

/// Returns name, enabled state and value of each flag in an answer.
fn told(flags: &Value) -> Vec<(Value, Value, Value)> {
    let flags = flags.as_array().map(Vec::as_slice).unwrap_or_default();
    flags
        .iter()
        .map(|flag| (flag["feature"]["name"].clone(), flag["enabled"].clone(), flag["feature_state_value"].clone()))
        .collect()
}

/// Returns the same from an expected answer.
fn expected(flags: &Value) -> Vec<(Value, Value, Value)> {
    let flags = flags.as_array().map(Vec::as_slice).unwrap_or_default();
    flags.iter().map(|flag| (flag["name"].clone(), flag["enabled"].clone(), flag["value"].clone())).collect()
}

#[tokio::test]
async fn flags_equal_recorded_answers_of_server() -> anyhow::Result<()> {
    let directory = most_answers();
    let document = read(&directory.join("environment.json"))?;
    let mut cases = Vec::new();
    for entry in std::fs::read_dir(directory.join("flagsmith-api"))
        .with_context(|| format!("no flagsmith-api/ in {}", directory.display()))?
    {
        let path = entry?.path();
        let name = path.file_stem().context("a file without a name")?.to_string_lossy().into_owned();
        cases.push((name, read(&path)?));
    }
    anyhow::ensure!(!cases.is_empty(), "flagsmith-api/ is empty");
    with_namespace(async move |case| compare(&case, document, &cases).await).await
}

/// The document's own server key would be visible to other cases, so the case uses its own. The client key stays
/// because the percentage hash includes it.
async fn compare(case: &Case, document: Value, cases: &[(String, Value)]) -> anyhow::Result<()> {
    let client_key = document["api_key"].as_str().context("the document has no api_key")?.to_owned();
    let flag =
        document["feature_states"][0]["feature"]["name"].as_str().context("the document has no feature")?.to_owned();
    let app = publish(&case.clone().with_client_key(&client_key), &document, &flag).await?;
    let mut checked = 0;
    let mut wrong = Vec::new();
    for (name, expectation) in cases {
        let key = match name.rsplit('_').next() {
            Some("client") => client_key.clone(),
            Some("server") => case.server_key(),
            _ => anyhow::bail!("{name}: neither a client's nor a server's case"),
        };
        let request = &expectation["request"];
        let reply = if request.is_null() {
            app.ask(Method::GET, "/api/v1/flags/", Some(&key), None).await
        } else if let Some(query) = request.get("query") {
            let identifier = query["identifier"].as_str().context("a query without identifier")?;
            app.ask(Method::GET, &format!("/api/v1/identities/?identifier={identifier}"), Some(&key), None).await
        } else {
            app.ask(Method::POST, "/api/v1/identities/", Some(&key), Some(request)).await
        };
        let reply = reply.with_context(|| name.clone())?;
        let body = reply.json().with_context(|| name.clone())?;
        let flags = if request.is_null() { &body } else { &body["flags"] };
        checked += 1;
        if reply.status != 200 || told(flags) != expected(&expectation["flags"]) {
            wrong.push(format!(
                "{name} (status {}): {:?} instead of {:?}",
                reply.status,
                told(flags),
                expected(&expectation["flags"])
            ));
        }
    }
    anyhow::ensure!(wrong.is_empty(), "{} of {checked} cases differ:\n{}", wrong.len(), wrong.join("\n"));
    say(&format!("the real document: {checked} cases are answered as its server answers them"));
    Ok(())
}
