//! Clients that take part in an experiment: the SDK records an exposure for each flag that the sidecar answers with an
//! experiment and a variant.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::client::Client;
use crate::expected::{Expected, Role};
use crate::sidecar::{Sidecar, document, eventually};

/// The flag with the experiment, and one without.
const FLAGS: [&str; 2] = ["search_ranking", "max_items"];
const EXPERIMENT: i64 = 4;

/// Returns the sample document with an experiment on the first of [`FLAGS`].
fn with_experiment() -> Value {
    let mut document: Value = serde_json::from_slice(&std::fs::read(document()).unwrap()).unwrap();
    let states = document["feature_states"].as_array_mut().unwrap();
    let flag = states.iter_mut().find(|state| state["feature"]["name"] == FLAGS[0]).expect("the sample has the flag");
    flag["metadata"] = json!({"experiment": {"id": EXPERIMENT, "name": "ranking", "in_experiment": true}});
    document
}

/// An endpoint that records events as Flagsmith's does.
struct Events {
    address: String,
    received: Arc<Mutex<Vec<Value>>>,
}

impl Events {
    async fn start() -> Events {
        let received = Arc::new(Mutex::new(Vec::new()));
        let record = {
            let received = Arc::clone(&received);
            async move |Json(batch): Json<Value>| {
                received.lock().unwrap().extend(batch["events"].as_array().unwrap().iter().cloned());
                Json(json!({}))
            }
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}/", listener.local_addr().unwrap());
        let router = Router::new().route("/v1/events", post(record));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Events { address, received }
    }

    /// Returns identifier, flag, variant and experiment of each exposure.
    fn exposures(&self) -> BTreeSet<(String, String, String, i64)> {
        let text = |event: &Value, member: &str| event[member].as_str().unwrap().to_owned();
        let exposure = |event: &Value| {
            assert_eq!(event["event"], "$flag_exposure", "{event}");
            let experiment = event["metadata"]["experiment_id"].as_i64().unwrap();
            (text(event, "identifier"), text(event, "feature_name"), text(event, "value"), experiment)
        };
        self.received.lock().unwrap().iter().map(exposure).collect()
    }
}

async fn records_exposures(path: &str, role: Role) {
    let expected = Expected::read();
    let sidecar = Sidecar::start(&expected).await;
    sidecar.publish(&expected, &with_experiment()).await;
    let headers = [("x-environment-key", expected.key(role))];
    eventually("the experiment is served", async || {
        let answer = sidecar.ask("/api/v1/identities/?identifier=guest-2", &headers, None).await;
        answer["flags"].as_array().unwrap().iter().any(|flag| flag["metadata"]["experiment"]["id"] == EXPERIMENT)
    })
    .await;
    let events = Events::start().await;
    let mut plan = expected.plan(role);
    plan["events"] = events.address.clone().into();
    plan["flags"] = json!(FLAGS);
    // Two variants, the control, and an identity override, which takes no part in the experiment.
    plan["identifiers"] = json!(["guest-2", "guest-3", "guest-10", "qa-bot"]);
    let client = Client::run(path, Some(&sidecar), plan).await;
    let values = ["guest-2", "guest-3", "guest-10", "qa-bot"].map(|who| client.answers[who][FLAGS[0]].clone());
    assert_eq!(values, ["embeddings", "both", "bm25", "pinned"]);
    let exposure = |who: &str, variant: &str| (who.to_owned(), FLAGS[0].to_owned(), variant.to_owned(), EXPERIMENT);
    let all = BTreeSet::from([
        exposure("guest-2", "semantic"),
        exposure("guest-3", "hybrid"),
        exposure("guest-10", "control"),
    ]);
    eventually("all exposures are recorded", async || events.exposures().is_superset(&all)).await;
    client.finish().await;
    assert_eq!(events.exposures(), all, "no others");
    sidecar.stop().await;
}

#[tokio::test]
async fn python_records_exposure_of_experiment() {
    records_exposures("python/flagsmith_experiment.py", Role::Server).await;
}

#[tokio::test]
async fn browser_records_exposure_of_experiment() {
    records_exposures("node/flagsmith_js_experiment.js", Role::Client).await;
}
