//! Tests of the assignment key.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use support::client::{Answer, get, post};
use support::environment::{CLIENT_KEY, SERVER_KEY, written};
use support::server::{Running, start};
use support::volume::Directory;

const HEADER: &str = "x-remora-assignment";
const IDENTITIES: &str = "/api/v1/identities/";
const ASSIGNMENT: &str = "/api/v1/identities/assignment/";
const BULK: &str = "/ofrep/v1/evaluate/flags";

fn of(answer: &Answer) -> String {
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.header(HEADER).unwrap().to_owned()
}

fn identity(server: &Running, path: &str, identifier: &str, plan: &str) -> Answer {
    let body = format!(r#"{{"identifier":"{identifier}","traits":[{{"trait_key":"plan","trait_value":"{plan}"}}]}}"#);
    post(server.data, path, &[("x-environment-key", CLIENT_KEY)], &body)
}

#[test]
fn identities_with_equal_flags_share_an_assignment_key() {
    let directory = Directory::new();
    let mut volume = directory.volume("shop");
    volume.publish_written(&written(1));
    let server = start(directory.path(), |_| {});
    let key = |identifier: &str, plan: &str| of(&identity(&server, IDENTITIES, identifier, plan));
    let free = key("x", "free");
    assert_eq!(free.len(), 16);
    assert_eq!(key("somebody else with a longer name", "none at all"), free);
    let pro = key("x", "pro");
    assert_eq!(key("y", "pro"), pro);
    assert_ne!(pro, free);
    assert!(![&pro, &free].contains(&&key("somebody", "pro")), "an override of its own");
    let query = get(server.data, "/api/v1/identities/?identifier=z", &[("x-environment-key", CLIENT_KEY)]);
    assert_eq!(of(&query), free);
    let as_server = get(server.data, "/api/v1/identities/?identifier=z", &[("x-environment-key", SERVER_KEY)]);
    assert_ne!(of(&as_server), free, "other flags are seen");

    let bulk = |context: &str| of(&post(server.data, BULK, &[], &format!(r#"{{"context":{context}}}"#)));
    assert_eq!(bulk(r#"{"targetingKey":"x","plan":"pro"}"#), bulk(r#"{"plan":"pro","targetingKey":"y","age":3}"#));
    assert_ne!(bulk(r#"{"targetingKey":"x","plan":"pro"}"#), bulk(r#"{"targetingKey":"x"}"#));

    volume.publish_written(&written(2));
    let swapped = r#"remora_sidecar_reloads_total{environment="shop",result="swapped"}"#;
    server.await_metric(swapped, |count| count == 2.0);
    assert_ne!(key("x", "free"), free, "another value");
}

#[test]
fn assignment_endpoint_returns_the_key_alone() {
    let directory = Directory::new();
    directory.volume("shop").publish_written(&written(1));
    let server = start(directory.path(), |_| {});
    let name = of(&identity(&server, IDENTITIES, "x", "pro"));
    let alone = identity(&server, ASSIGNMENT, "x", "pro");
    assert_eq!((of(&alone), alone.body), (name.clone(), format!(r#"{{"assignment":"{name}"}}"#)));
    let query = format!("{ASSIGNMENT}?identifier=x");
    let alone = get(server.data, &query, &[("x-environment-key", CLIENT_KEY)]);
    assert_eq!(alone.body, format!(r#"{{"assignment":"{}"}}"#, of(&identity(&server, IDENTITIES, "x", "free"))));
    assert_eq!(get(server.data, &query, &[]).status, 401);
    assert_eq!(post(server.data, ASSIGNMENT, &[("x-environment-key", CLIENT_KEY)], "[").status, 400);
}
