//! Tests of the counted uses of flags, over sockets.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod support;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use remora_snapshot::write;
use serde_json::Value;
use support::client::{Connection, get, post, request};
use support::environment::{CLIENT, CLIENT_KEY, environment, written};
use support::program::{Program, sidecar};
use support::server::{reloads, serving_volume};
use support::volume::Directory;

const ANALYTICS: &str = "/api/v1/analytics/flags/";

/// Reads the counts as the controller does.
fn read(admin: SocketAddr) -> Value {
    let answer = get(admin, "/uses/shop", &[]);
    assert_eq!(answer.status, 200, "{answer:?}");
    serde_json::from_str(&answer.body).unwrap()
}

fn uses(admin: SocketAddr) -> BTreeMap<String, u64> {
    serde_json::from_value(read(admin)["uses"].clone()).unwrap()
}

fn counted<const N: usize>(expected: [(&str, u64); N]) -> BTreeMap<String, u64> {
    expected.map(|(flag, count)| (flag.to_owned(), count)).into()
}

/// Returns the environment without one of its features.
fn without(feature: &str, revision: u32) -> remora_snapshot::Written {
    let mut environment = environment("shop", CLIENT_KEY, revision);
    let number = environment.features.iter().position(|known| known.name == feature).unwrap();
    environment.features.remove(number);
    environment.segments.clear();
    environment.identity_overrides.clear();
    write(&environment, 1_000_000).unwrap()
}

#[test]
fn only_reports_and_single_evaluations_count_as_uses() {
    let (_directory, _volume, server) = serving_volume();
    assert_eq!(uses(server.admin), counted([]));
    let identity = r#"{"identifier":"x","traits":[]}"#;
    for (path, body) in [("/api/v1/identities/", identity), ("/ofrep/v1/evaluate/flags", "{}")] {
        assert_eq!(post(server.data, path, &CLIENT, body).status, 200, "{path}");
    }
    for path in ["/api/v1/flags/", "/api/v1/flags/?feature=banner", "/api/v1/identities/?identifier=x&feature=banner"] {
        assert_eq!(get(server.data, path, &CLIENT).status, 200, "{path}");
    }
    // A flag that is not answered is not used.
    assert_eq!(post(server.data, "/ofrep/v1/evaluate/flags/nope", &CLIENT, "{}").status, 404);
    assert_eq!(post(server.data, "/ofrep/v1/evaluate/flags/secret", &CLIENT, "{}").status, 404);
    assert_eq!(post(server.data, "/ofrep/v1/evaluate/flags/banner", &CLIENT, "[]").status, 400);
    assert_eq!(uses(server.admin), counted([]));

    for (flag, times) in [("banner", 3), ("dark%20mode", 1)] {
        for _ in 0..times {
            assert_eq!(post(server.data, &format!("/ofrep/v1/evaluate/flags/{flag}"), &[], "{}").status, 200);
        }
    }
    assert_eq!(post(server.data, ANALYTICS, &CLIENT, r#"{"banner":40,"limit":5,"nope":7}"#).status, 200);
    let all = counted([("banner", 43), ("dark mode", 1), ("limit", 5)]);
    assert_eq!(uses(server.admin), all);
    assert_eq!(uses(server.admin), all, "a read takes nothing away");
    let metric = |flag: &str| format!(r#"remora_sidecar_flag_uses_total{{environment="shop",flag="{flag}"}}"#);
    assert_eq!(server.metric(&metric("banner")), Some(43.0));
    assert_eq!(server.metric(r#"remora_sidecar_other_flag_uses_total{environment="shop"}"#), Some(7.0));
}

#[test]
fn uses_of_unknown_environment_are_not_found() {
    let (_directory, _volume, server) = serving_volume();
    for path in ["/uses/", "/uses/shopping", "/uses/shop/"] {
        assert_eq!(get(server.admin, path, &[]).status, 404, "{path}");
    }
    assert_eq!(post(server.admin, "/uses/shop", &[], "").status, 405);
}

#[test]
fn counts_follow_their_features_to_another_snapshot() {
    let (_directory, mut volume, server) = serving_volume();
    post(server.data, ANALYTICS, &CLIENT, r#"{"banner":1,"dark mode":20,"limit":300}"#);
    // The numbers of the features after the removed one change.
    volume.publish_written(&without("banner", 2));
    server.await_metric(&reloads("swapped"), |count| count == 2.0);
    assert_eq!(uses(server.admin), counted([("dark mode", 20), ("limit", 300)]));
    post(server.data, ANALYTICS, &CLIENT, r#"{"banner":9,"limit":1}"#);
    assert_eq!(uses(server.admin), counted([("dark mode", 20), ("limit", 301)]));
    // The count of a feature that comes back continues, so that it never decreases.
    volume.publish_written(&written(3));
    server.await_metric(&reloads("swapped"), |count| count == 3.0);
    post(server.data, ANALYTICS, &CLIENT, r#"{"banner":1}"#);
    assert_eq!(uses(server.admin), counted([("banner", 2), ("dark mode", 20), ("limit", 301)]));
}

#[test]
fn no_use_is_lost_while_snapshots_are_swapped() {
    const SWAPS: u32 = 60;
    let (_directory, mut volume, server) = serving_volume();
    let (data, admin) = (server.data, server.admin);
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let asking = std::thread::spawn(move || {
        let mut connection = Connection::open(data);
        let mut requests = 0;
        loop {
            let answer = connection.request("POST", "/ofrep/v1/evaluate/flags/limit", &[], Some(b"{}")).unwrap();
            assert_eq!(answer.status, 200);
            requests += 1;
            // The thread ends when the sender is dropped.
            if stopped.try_recv() != Err(std::sync::mpsc::TryRecvError::Empty) {
                return requests;
            }
        }
    });
    for revision in 2..SWAPS {
        match revision % 2 {
            0 => volume.publish_written(&without("banner", revision)),
            _ => volume.publish_written(&written(revision)),
        }
        server.await_metric(&reloads("swapped"), |count| count == f64::from(revision));
    }
    drop(stop);
    let requests = asking.join().unwrap();
    assert_eq!(uses(admin), counted([("limit", requests)]));
}

#[test]
fn process_has_its_own_number_and_age() {
    let directory = Directory::new();
    directory.volume("shop").publish_written(&written(1));
    let read_of = || {
        let program = Program::start(sidecar(directory.path()));
        let (first, second) = (read(program.admin), read(program.admin));
        assert_eq!(first["process"], second["process"]);
        assert_eq!(first["process"].as_str().unwrap().len(), 16);
        assert!(first["ageMs"].as_u64().unwrap() <= second["ageMs"].as_u64().unwrap());
        first["process"].clone()
    };
    assert_ne!(read_of(), read_of(), "counts of another process begin at zero");
}

/// Other pods reach the admin port. Pages that they request again and again must not delay an application's answers.
#[test]
fn pages_requested_in_a_row_are_rendered_at_most_every_100_ms() {
    const REQUESTS: u32 = 5;
    let (_directory, _volume, server) = serving_volume();
    for path in ["/metrics", "/uses/shop"] {
        let mut connection = Connection::open(server.admin);
        let began = Instant::now();
        connection.send(&request("GET", path, &[], None).repeat(REQUESTS as usize)).unwrap();
        assert!((0..REQUESTS).all(|_| connection.receive(false).is_some_and(|answer| answer.status == 200)));
        let took = began.elapsed();
        assert!(took >= Duration::from_millis(100) * (REQUESTS - 1), "{path}: {took:?}");
    }
}

#[test]
fn answers_are_counted_by_their_duration() {
    let (_directory, _volume, server) = serving_volume();
    for _ in 0..5 {
        get(server.data, "/api/v1/flags/", &CLIENT);
    }
    const ANSWERS: &str = "remora_sidecar_answer_duration_seconds";
    assert_eq!(server.metric(&format!("{ANSWERS}_count")), Some(5.0));
    assert_eq!(server.metric(&format!("{ANSWERS}_bucket{{le=\"+Inf\"}}")), Some(5.0));
    assert!(server.metric(&format!("{ANSWERS}_sum")).unwrap() > 0.0);
    assert!(server.metric(&format!("{ANSWERS}_bucket{{le=\"1.048576\"}}")).is_some());
}
