//! Tests of an environment that grows: beyond a limit, the sidecar refuses the new files, reports that, and serves the
//! others.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use remora_snapshot::files::MAX_FILE_BYTES;
use remora_snapshot::model::{Context, Feature, Override, Split, Variant};
use remora_snapshot::{File, MAX_ANSWER, Written, write};
use support::client::{get, post};
use support::environment::{CLIENT, CLIENT_KEY, environment};
use support::program::{Program, sidecar};
use support::server::{await_condition, reloads, start};
use support::volume::Directory;

/// Writes the environment with a value of this many bytes, to files of any size: as a writer would that knows no limit.
fn written(revision: u32, value: usize) -> Written {
    let mut environment = environment("shop", CLIENT_KEY, revision);
    environment.features[0].default.value = format!("\"{}\"", "x".repeat(value));
    write(&environment, usize::MAX).unwrap()
}

fn core(written: &Written) -> &File {
    written.files.iter().find(|file| file.name == "core").unwrap()
}

/// Value of a reload counter.
fn reload_count(program: &Program, result: &str) -> u64 {
    let page = get(program.admin, "/metrics", &[]).body;
    page.lines().find_map(|line| line.strip_prefix(&reloads(result))?.trim_start().parse().ok()).unwrap_or(0)
}

fn revision(program: &Program) -> String {
    get(program.admin, "/revisions", &[]).body
}

#[test]
fn document_that_outgrows_a_file_leaves_previous_one_served_and_is_reported() {
    let directory = Directory::new();
    let mut volume = directory.volume("shop");
    let mut last_good = written(1, 1_000);
    volume.publish_written(&last_good);
    let program = Program::start(sidecar(directory.path()));
    let serves = |written: &Written| revision(&program) == format!("shop {}\n", written.revision);
    assert!(serves(&last_good));

    // The document doubles until the sidecar refuses its core.
    let (mut value, mut number) = (1_000, 1);
    let refused = loop {
        (value, number) = (value * 2, number + 1);
        let next = written(number, value);
        if core(&next).bytes.len() > MAX_FILE_BYTES {
            break next;
        }
        volume.publish_written(&next);
        await_condition("the larger document is served", || serves(&next));
        last_good = next;
    };
    assert!(core(&last_good).bytes.len() > MAX_FILE_BYTES / 4, "it grew in small steps");
    assert_eq!(reload_count(&program, "unreadable"), 0);
    volume.publish_written(&refused);
    await_condition("the document is refused", || reload_count(&program, "unreadable") == 1);
    let flags = || get(program.data, "/api/v1/flags/", &CLIENT);
    assert!(serves(&last_good) && flags().status == 200);
    assert_eq!(get(program.admin, "/readyz", &[]).status, 200);

    // The document shrinks, and the sidecar serves it.
    let small = written(number + 1, 10);
    volume.publish_written(&small);
    await_condition("the small document is served", || serves(&small));
    assert!(flags().body.contains("\"xxxxxxxxxx\""));

    let size = core(&refused).bytes.len();
    let stays = format!("still serving revision {}", last_good.revision);
    let log = program.stop();
    let warnings = log.iter().filter(|line| {
        line.contains(&format!("core has {size} bytes")) && line.contains("at most 1000000") && line.contains(&stays)
    });
    assert_eq!(warnings.count(), 1, "{log:#?}");
}

#[test]
fn answer_beyond_sixteen_mebibytes_is_refused_and_others_are_answered() {
    let mut environment = environment("shop", CLIENT_KEY, 1);
    let value = format!("\"{}\"", "x".repeat(100_000));
    let count = MAX_ANSWER / value.len() + 1;
    for number in 0..count {
        let first = environment.features[0].clone();
        let id = 100 + i64::try_from(number).unwrap();
        environment.features.push(Feature { id, name: format!("large {number}"), ..first });
        // A split: overrides without one are stored as one text for all features.
        let variant = Variant { weight: 100.0, weight_text: "100".to_owned(), value: value.clone(), key: None };
        let split = Split { seed: id.to_string(), variants: vec![variant] };
        let context = Context { enabled: true, value: "null".to_owned(), split: Some(split) };
        let feature = environment.features.len() - 1;
        environment.segments[0].overrides.push(Override { feature, priority: None, context });
    }
    let directory = Directory::new();
    // The file has the value once.
    directory.volume("shop").publish_written(&write(&environment, MAX_FILE_BYTES).unwrap());
    let server = start(directory.path(), |_| {});
    let flagsmith = |plan: &str| {
        let body = format!(r#"{{"identifier":"x","traits":[{{"trait_key":"plan","trait_value":"{plan}"}}]}}"#);
        post(server.data, "/api/v1/identities/", &CLIENT, &body)
    };
    let ofrep = |plan: &str| {
        let body = format!(r#"{{"context":{{"targetingKey":"x","plan":"{plan}"}}}}"#);
        post(server.data, "/ofrep/v1/evaluate/flags", &CLIENT, &body)
    };
    for _ in 0..3 {
        for answer in [flagsmith("pro"), ofrep("pro")] {
            assert_eq!(answer.status, 500, "{:.200}", answer.body);
            assert!(
                answer.body.contains("more than 16777216 bytes") && answer.body.len() < 500,
                "{:.500}",
                answer.body
            );
        }
        assert_eq!([flagsmith("free").status, ofrep("free").status], [200, 200]);
    }
}
