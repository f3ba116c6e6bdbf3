//! Clients with realtime updates: they receive the event of a flipped flag, and send requests only then.

use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::client::Client;
use crate::expected::{Expected, Role};
use crate::sidecar::{Sidecar, document};

/// The flag to flip; it has no value.
const FLAG: &str = "dark_mode";

/// Returns the sample document, changed now, with this state of the flag. `ahead` is the difference between Flagsmith's
/// clock and the clock of this machine.
fn changed(enabled: bool, ahead: SignedDuration) -> Value {
    let mut document: Value = serde_json::from_slice(&std::fs::read(document()).unwrap()).unwrap();
    let now = jiff::Timestamp::now().checked_add(ahead).unwrap();
    document["updated_at"] = now.strftime("%Y-%m-%dT%H:%M:%S.%6f+00:00").to_string().into();
    let states = document["feature_states"].as_array_mut().unwrap();
    let flag = states.iter_mut().find(|state| state["feature"]["name"] == FLAG).expect("the sample has the flag");
    flag["enabled"] = enabled.into();
    document
}

/// Runs a client that prints the flag at each change. `route` is the route of its flag requests.
async fn hears_of_changes(path: &str, role: Role, route: &str) {
    hears_of_changes_by(path, role, route, SignedDuration::ZERO).await;
}

/// Does the same with a clock of Flagsmith that is `ahead` of the clock of this machine.
async fn hears_of_changes_by(path: &str, role: Role, route: &str, ahead: SignedDuration) {
    let expected = Expected::read();
    let sidecar = Sidecar::start(&expected).await;
    let mut plan = expected.plan(role);
    plan["flag"] = FLAG.into();
    let mut client = Client::run(path, Some(&sidecar), plan).await;
    assert_eq!(client.answers, json!({"flag": [false, null]}));
    sidecar.await_listener().await;
    let flips = [true, false, true];
    for enabled in flips {
        sidecar.publish(&expected, &changed(enabled, ahead)).await;
        assert_eq!(client.next_answers().await, json!({"flag": [enabled, null]}));
    }
    // At most one request at the start, one when the stream opens, and one for each event: the client does not poll.
    let asked = sidecar.answers(route, "2xx").await;
    assert!((1..=2 + flips.len() as u64).contains(&asked), "{path} asked {asked} times");
    client.finish().await;
    sidecar.stop().await;
}

#[tokio::test]
async fn python_follows_stream() {
    hears_of_changes("python/flagsmith_realtime.py", Role::Server, "environment_document").await;
}

#[tokio::test]
async fn python_follows_stream_of_a_node_whose_clock_is_behind() {
    let route = "environment_document";
    hears_of_changes_by("python/flagsmith_realtime.py", Role::Server, route, SignedDuration::from_hours(1)).await;
}

#[tokio::test]
async fn browser_follows_stream() {
    hears_of_changes("node/flagsmith_js_realtime.js", Role::Client, "flags").await;
}

#[tokio::test]
async fn openfeature_web_follows_stream() {
    hears_of_changes("node/ofrep_web_realtime.js", Role::Client, "ofrep_flags").await;
}
