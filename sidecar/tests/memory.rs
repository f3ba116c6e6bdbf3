//! Tests that the program stays within the default memory limit of a sidecar under all kinds of abuse at once, and what
//! stalled requests hold. The limit needs root: without it, the first test is reported as not run.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod support;

use std::time::{Duration, Instant};

use remora_testing::not_run;
use support::cgroup::Cgroup;
use support::client::{Connection, request};
use support::environment::{CLIENT, CLIENT_KEY, environment};
use support::flood::Flood;
use support::program::{Program, sidecar, sidecar_by};
use support::server::await_condition;
use support::volume::Directory;

/// The operator's default limit of a sidecar. The operator's test `the_default_limit_holds_a_full_update` has the same
/// number.
const DEFAULT_LIMIT: u64 = 32 << 20;
/// Number of bytes that may stay in use afterwards: the C library keeps pieces of its heap between those in use.
/// However long the abuse lasts, there are no more.
const MAX_LEFT: u64 = 20 << 20;
const IDENTITIES: &str = "/api/v1/identities/";

/// A body of the largest size, with thousands of traits.
fn large_body() -> Vec<u8> {
    let mut body = br#"{"identifier":"x","traits":["#.to_vec();
    for number in 0.. {
        let one = format!(r#"{{"trait_key":"key_{number}","trait_value":"value {number}"}},"#);
        if body.len() + one.len() + 3 > 1 << 20 {
            break;
        }
        body.extend(one.bytes());
    }
    body.pop();
    body.extend(b"]}");
    body
}

/// Duration of the abuse beyond three rounds in seconds, for tests that last hours.
fn seconds() -> u64 {
    std::env::var("REMORA_ABUSE_SECONDS").map_or(0, |seconds| seconds.parse().unwrap())
}

#[test]
fn sidecar_under_abuse_stays_within_its_default_limit_and_gives_memory_back() {
    let cgroup = match Cgroup::with_memory(DEFAULT_LIMIT) {
        Ok(cgroup) => cgroup,
        Err(missing) => return not_run(&missing),
    };
    let mut snapshot = environment("shop", CLIENT_KEY, 1);
    snapshot.features[0].default.value = format!("\"{}\"", "x".repeat(100_000));
    let directory = Directory::new();
    directory.volume("shop").publish_written(&remora_snapshot::write(&snapshot, 1_000_000).unwrap());

    let starter = cgroup.starter();
    let mut program = Program::start(sidecar_by(&starter.each_ref().map(String::as_str), directory.path()));
    let (data, admin) = (program.data, program.admin);
    let good_body = br#"{"identifier":"good","traits":[{"trait_key":"plan","trait_value":"pro"}]}"#;
    let mut kept = Connection::open(data);
    let (mut failures, mut requests) = (0, 0);
    let mut ask = |new: bool| {
        let probe = Connection::open(admin).request("GET", "/startupz", &[], None);
        let mut another = new.then(|| Connection::open(data));
        let connection = another.as_mut().unwrap_or(&mut kept);
        let answer = connection.request("POST", IDENTITIES, &CLIENT, Some(good_body));
        let is_good = answer.is_some_and(|answer| answer.status == 200 && answer.body.contains("\"gold\""))
            && probe.is_some_and(|answer| answer.status == 200);
        (failures, requests) = (failures + usize::from(!is_good), requests + 1);
    };
    (0..100).for_each(|number| ask(number % 2 == 0));
    let before = cgroup.usage();

    let large = large_body();
    let large = request("POST", IDENTITIES, &CLIENT, Some(&large));
    let small = request("POST", IDENTITIES, &CLIENT, Some(br#"{"identifier":"slow"}"#)).repeat(50);
    let head = [b"GET /api/v1/flags/ HTTP/1.1\r\nhost: localhost\r\nx: ".as_slice(), &[b'x'; 15_000]].concat();
    let stream = request("GET", "/ofrep/v1/stream", &[], None);
    let metrics = request("GET", "/metrics", &[], None).repeat(200);
    let whole_large = large.repeat(3);
    let (mut peak, mut rounds, began) = (0, 0, Instant::now());
    while rounds < 3 || began.elapsed() < Duration::from_secs(seconds()) {
        let mut floods = vec![
            Flood::of(data, 512, &large[..large.len() - 1]),
            Flood::of(data, 300, &small),
            Flood::of(data, 300, &head),
            Flood::of(admin, 64, &head),
            Flood::of(admin, 64, &metrics),
            Flood::of(data, 100, &stream),
            Flood::of(data, 100, &whole_large),
            Flood::of(data, 300, b""),
            Flood::of(data, 256, &large[..large.len() - 1]),
        ];
        for turn in 0..30 {
            floods.iter_mut().for_each(Flood::push);
            ask(turn % 2 == 0);
            peak = peak.max(cgroup.usage());
        }
        drop(floods);
        rounds += 1;
        assert!(program.is_alive(), "killed in round {rounds}: {}", cgroup.kills());
    }
    eprintln!(
        "before {before} bytes, at most {peak}, after {} in {rounds} rounds, {requests} good requests",
        cgroup.usage()
    );
    assert_eq!((failures, cgroup.kills()), (0, 0), "of {requests} good requests");
    assert!(peak < DEFAULT_LIMIT, "{peak}");
    await_condition("memory comes back", || cgroup.usage() <= MAX_LEFT);
    assert!(program.terminate().success());
}

#[test]
fn stalled_bodies_hold_no_buffers_of_answers() {
    const STALLED: usize = 100;
    const VALUE: usize = 200_000;
    let mut snapshot = environment("shop", CLIENT_KEY, 1);
    snapshot.features[0].default.value = format!("\"{}\"", "x".repeat(VALUE));
    let directory = Directory::new();
    directory.volume("shop").publish_written(&remora_snapshot::write(&snapshot, 1_000_000).unwrap());
    let program = Program::start(sidecar(directory.path()));
    let mut fetching = program.connect();
    let mut fetch = || {
        let answer = fetching.request("POST", IDENTITIES, &CLIENT, Some(br#"{"identifier":"x"}"#)).unwrap();
        assert!(answer.status == 200 && answer.bytes.len() > VALUE, "{:.200}", answer.body);
    };
    (0..10).for_each(|_| fetch());
    let before = program.memory("VmRSS");
    let part = request("POST", IDENTITIES, &CLIENT, Some(b"{}"));
    // Before each request, the buffer of the last answer is free.
    let stalled: Vec<Connection> = (0..STALLED)
        .map(|_| {
            let mut stalled = program.connect();
            stalled.send(&part[..part.len() - 1]).unwrap();
            fetch();
            stalled
        })
        .collect();
    let held = program.memory("VmRSS").saturating_sub(before);
    assert!(held < (STALLED * VALUE / 2) as u64, "{} connections hold {held} bytes", stalled.len());
}
