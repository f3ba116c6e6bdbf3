//! Tests of the program over volumes with a core in parts.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::collections::BTreeMap;

use remora_snapshot::files::{CORE, CoreSet, MAX_FILE_BYTES, PART_BYTES};
use remora_snapshot::{Written, write};
use support::client::{get, post};
use support::environment::{CLIENT, CLIENT_KEY, environment, written};
use support::program::{Program, read_only, sidecar};
use support::server::{await_condition, start};
use support::volume::{Directory, Volume, in_parts};

/// Writes the environment with one value of `bytes` bytes, which the core has three times.
fn large(revision: u32, bytes: usize) -> Written {
    let mut environment = environment("shop", CLIENT_KEY, revision);
    let letter = char::from(b'a' + (revision % 26) as u8);
    environment.features[0].default.value = format!("\"{}\"", letter.to_string().repeat(bytes));
    // Identity overrides would be in a separate file.
    environment.identity_overrides.clear();
    write(&environment, MAX_FILE_BYTES).unwrap()
}

/// Writes the environment with a core of three parts.
fn of_three(revision: u32) -> Written {
    let written = large(revision, PART_BYTES / 5 * 4);
    assert_eq!(in_parts(&written, CoreSet::A).len(), 4);
    written
}

/// The content of a volume.
type Files = BTreeMap<String, Vec<u8>>;

fn publish(volume: &mut Volume, files: &Files) {
    volume.publish(files.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice())));
}

fn revision_of(program: &Program) -> String {
    get(program.admin, "/revisions", &[]).body
}

fn named(written: &Written) -> String {
    format!("shop {}\n", written.revision)
}

#[test]
fn core_in_parts_is_served_in_place_and_copied_without_private_memory() {
    let anonymous = |program: &Program| program.memory("RssAnon");
    let small = Directory::new();
    small.volume("shop").publish_written(&written(1));
    let all = Directory::new();
    let written = large(1, 5_500_000);
    let files: Files = in_parts(&written, CoreSet::B).into_iter().collect();
    assert_eq!(files.len(), 18, "the most parts there can be");
    publish(&mut all.volume("shop"), &files);
    for (variable, how) in [(Some("10.96.0.1"), "mapped in"), (None, "copied in")] {
        let program = |directory: &Directory| {
            let mut command = read_only(directory.path());
            match variable {
                Some(address) => command.env("KUBERNETES_SERVICE_HOST", address),
                None => command.env_remove("KUBERNETES_SERVICE_HOST"),
            };
            Program::start(command)
        };
        let (beside, program) = (program(&small), program(&all));
        assert_eq!(revision_of(&program), named(&written));
        assert_eq!(get(program.admin, "/startupz", &[]).status, 200);
        for _ in 0..20 {
            for program in [&beside, &program] {
                assert!(get(program.data, "/api/v1/flags/?feature=limit", &CLIENT).body.contains(":1}"));
            }
        }
        let (private, other) = (anonymous(&program), anonymous(&beside));
        assert!(private < other + (256 << 10), "{private} bytes of private memory, and {other} with a small core");
        let log = program.stop();
        assert!(log.iter().any(|line| line.contains(how)), "{log:#?}");
    }
}

/// Kubelet brings the files of each revision in several steps, in any order.
#[test]
fn answers_are_of_one_revision_while_parts_arrive_in_any_order() {
    let directory = Directory::new();
    let mut volume = directory.volume("shop");
    let mut files: Files = in_parts(&of_three(0), CoreSet::A).into_iter().collect();
    publish(&mut volume, &files);
    let server = start(directory.path(), |_| {});
    let mut seen = 0;
    let mut ask = |newest: u32| {
        let body = get(server.data, "/api/v1/flags/", &CLIENT).body;
        let (_, limit) =
            body.split_once(r#""limit","type":"STANDARD"},"enabled":true,"feature_state_value":"#).unwrap();
        let limit: u32 = limit.split('}').next().unwrap().parse().unwrap();
        let letter = char::from(b'a' + (limit % 26) as u8);
        let value = body.split('"').find(|text| text.len() > 1_000).unwrap();
        assert!(value.chars().all(|found| found == letter), "not all of it is revision {limit}");
        assert!(seen <= limit && limit <= newest, "{limit} after {seen}");
        seen = limit;
        limit
    };
    for revision in 1..13 {
        let set = CoreSet::ALL[revision as usize % 2];
        let mut next = in_parts(&of_three(revision), set);
        // Each of the four files comes first, second, third and last.
        next.rotate_left(revision as usize % 4);
        if revision % 3 == 0 {
            next.reverse();
        }
        for (name, bytes) in next {
            files.insert(name, bytes);
            publish(&mut volume, &files);
            ask(revision);
        }
        await_condition("the revision", || ask(revision) == revision);
    }
}

#[test]
fn memory_of_large_answers_is_returned_to_system() {
    let mut environment = environment("shop", CLIENT_KEY, 1);
    environment.identity_overrides.clear();
    for number in 0..12_000 {
        let mut feature = environment.features[0].clone();
        (feature.id, feature.name) = (100 + number, format!("feature_{number:04}"));
        environment.features.push(feature);
    }
    let directory = Directory::new();
    let written = write(&environment, usize::MAX).unwrap();
    publish(&mut directory.volume("shop"), &in_parts(&written, CoreSet::A).into_iter().collect());
    let program = Program::start(sidecar(directory.path()));
    let body = r#"{"identifier":"a","traits":[{"trait_key":"plan","trait_value":"pro"}]}"#;
    let ask = || post(program.data, "/api/v1/identities/", &CLIENT, body);
    // A request with a small answer has everything that is allocated once.
    assert_eq!(get(program.data, "/api/v1/flags/?feature=limit", &CLIENT).status, 200);
    let before = program.memory("RssAnon");
    for _ in 0..20 {
        let answer = ask();
        assert!(answer.status == 200 && answer.body.contains("\"gold\"") && answer.body.len() > 1_200_000);
    }
    // The client may have the last answer before the program has given its memory back.
    let is_given_back = || program.memory("RssAnon") < before + (1 << 20);
    await_condition("less than 1 MiB of private memory more than before the large answers", is_given_back);
}

/// A system that is short of something refuses files for a while. The files are read again when it no longer does.
#[test]
fn parts_are_read_again_after_file_descriptors_ran_out() {
    let directory = Directory::new();
    let mut volume = directory.volume("shop");
    let (one, two) = (of_three(1), of_three(2));
    publish(&mut volume, &in_parts(&one, CoreSet::A).into_iter().collect());
    let program = Program::start(sidecar(directory.path()));
    assert_eq!(revision_of(&program), named(&one));

    // The limit admits the directory and one or two parts, but not all three parts and the memory for them.
    program.limit_files(2);
    publish(&mut volume, &in_parts(&two, CoreSet::B).into_iter().collect());
    await_condition("the volume cannot be read", || {
        let page = get(program.admin, "/metrics", &[]).body;
        let prefix = r#"remora_sidecar_reloads_total{environment="shop",result="unreadable"} "#;
        page.lines().filter_map(|line| line.strip_prefix(prefix)).any(|count| count != "0")
    });
    assert_eq!(revision_of(&program), named(&one));
    program.limit_files(100);
    await_condition("the next revision", || revision_of(&program) == named(&two));
    let log = program.stop();
    let is_refusal = |line: &&String| line.contains("still serving") && line.contains("Too many open files");
    assert!(log.iter().any(|line| is_refusal(&line)), "{log:#?}");
}

#[test]
fn program_started_in_the_middle_of_a_change_serves_the_revision_before() {
    let directory = Directory::new();
    let mut volume = directory.volume("shop");
    let (one, two) = (of_three(1), of_three(2));
    let (before, after) = (in_parts(&one, CoreSet::A), in_parts(&two, CoreSet::B));
    let mut files: Files = before.into_iter().collect();
    publish(&mut volume, &files);
    let first = Program::start(sidecar(directory.path()));
    assert_eq!(revision_of(&first), named(&one));

    // The pointer arrives before two of the parts.
    files.extend(after.iter().filter(|(name, _)| name == CORE || name == "core-b-01").cloned());
    publish(&mut volume, &files);
    let incomplete = |program: &Program| {
        let line = r#"remora_sidecar_reloads_total{environment="shop",result="incomplete"} 1"#;
        get(program.admin, "/metrics", &[]).body.lines().any(|found| found == line)
    };
    await_condition("the parts are found to be incomplete", || incomplete(&first));
    assert_eq!(revision_of(&first), named(&one));

    let mut command = sidecar(directory.path());
    command.args(["--await", "10m"]);
    let second = Program::start(command);
    assert_eq!(revision_of(&second), named(&one));
    assert!(incomplete(&second));
    assert_eq!(get(second.admin, "/readyz", &[]).status, 200);
    assert_eq!(get(second.admin, "/startupz", &[]).status, 503, "the rest may arrive until the startup timeout");
    files.extend(after);
    publish(&mut volume, &files);
    for program in [first, second] {
        await_condition("the next revision", || revision_of(&program) == named(&two));
        assert_eq!(get(program.admin, "/startupz", &[]).status, 200);
        let log = program.stop();
        let text = format!("core names revision {} in the parts of set b: core-b-00 is missing", two.revision);
        let warnings = log.iter().filter(|line| line.contains(&text)).count();
        assert_eq!(warnings, 1, "{log:#?}");
    }
}
