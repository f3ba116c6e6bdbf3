//! A million identities with overrides: compiled like the operator compiles them, divided into files that fit into
//! Kubernetes objects, and served by the program.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Instant;

use remora_compile::document;
use remora_compile::prune::{Rules, prune};
use remora_compile::{Options, compile};
use remora_snapshot::files;

use support::program::{Program, sidecar};
use support::volume::Directory;

const IDENTITIES: usize = 1_000_000;

/// Returns a unique value for one identity in ten, and one of a thousand values for the others.
fn value(number: usize) -> String {
    if number.is_multiple_of(10) { format!("\"only {number}\"") } else { (number % 1_000).to_string() }
}

fn state(value: &str) -> String {
    format!(
        r#"{{"feature":{{"id":1,"name":"limit","type":"STANDARD"}},"enabled":true,"django_id":1,"feature_state_value":{value},"multivariate_feature_state_values":[]}}"#
    )
}

fn document() -> String {
    let mut text = format!(
        r#"{{"id":1,"api_key":"client","updated_at":"2026-11-20T00:00:00+00:00","project":{{}},"feature_states":[{}],"identity_overrides":["#,
        state("null")
    );
    for number in 0..IDENTITIES {
        let comma = if number > 0 { "," } else { "" };
        let own = state(&value(number));
        write!(text, r#"{comma}{{"identifier":"user-{number}","identity_features":[{own}]}}"#).unwrap();
    }
    text + "]}"
}

#[test]
fn million_identity_overrides_are_served() {
    let text = document();
    let began = Instant::now();
    let parsed = document::parse(text.as_bytes()).unwrap();
    let pruned = prune(parsed, &Rules::default());
    let options = Options { environment: "shop", ..Options::default() };
    let compiled = compile(&pruned, &options).unwrap();
    let took = began.elapsed();
    assert_eq!(compiled.summary.identity_overrides, IDENTITIES);
    assert!(compiled.files.iter().all(|file| file.bytes.len() <= files::MAX_FILE_BYTES));
    let count = compiled.files.iter().filter(|file| files::is_overrides(&file.name)).count();
    assert!(count.is_power_of_two() && count <= files::OVERRIDES_SLOTS && count + 1 == compiled.files.len(), "{count}");
    let largest = compiled.files.iter().map(|file| file.bytes.len()).max().unwrap();
    writeln!(
        std::io::stderr(),
        "{} bytes of document, compiled in {took:.1?} to {count} files of overrides of at most {largest} bytes, {} in all",
        text.len(),
        compiled.summary.bytes
    )
    .unwrap();
    drop((text, pruned));

    let directory = Directory::new();
    directory.volume("shop").publish(compiled.files.iter().map(|file| (file.name.as_str(), file.bytes.as_slice())));
    let program = Program::start(sidecar(directory.path()));
    let mut connection = program.connect();
    let mut answer = |identifier: &str| {
        let path = format!("/api/v1/identities/?identifier={identifier}");
        let answer = connection.request("GET", &path, &[("x-environment-key", "client")], None).unwrap();
        assert_eq!(answer.status, 200, "{}", answer.body);
        let (_, rest) = answer.body.split_once(r#""feature_state_value":"#).unwrap();
        rest.split('}').next().unwrap().to_owned()
    };
    for number in (0..IDENTITIES).step_by(997).chain([IDENTITIES - 1]) {
        assert_eq!(answer(&format!("user-{number}")), value(number), "user-{number}");
    }
    for number in IDENTITIES..IDENTITIES + 1_000 {
        assert_eq!(answer(&format!("user-{number}")), "null", "user-{number} has none");
    }
}
