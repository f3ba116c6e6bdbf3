//! Tests what `explain` prints beyond the flags themselves.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::atomic::{AtomicU32, Ordering};

use clap::Parser as _;
use remora_compile::document;
use remora_compile::prune::{Rules, prune};
use remora_compile::{EnvironmentFlags, Options, compile};
use remora_tools::directory;
use remora_tools::{diff::Diff, explain::Explain, inspect::Inspect};
use serde_json::{Value, json};

/// The arguments of the command.
#[derive(clap::Parser)]
struct Arguments {
    #[command(flatten)]
    explain: Explain,
}

/// Returns what `explain` prints with these arguments, for a document whose segments override the feature `a`. Each segment
/// has a name and rules.
fn explained(segments: &[(&str, Value)], arguments: &[&str]) -> String {
    let place = directory_with("a", segments);
    let arguments = ["explain", &place].into_iter().chain(arguments.iter().copied());
    let mut out = Vec::new();
    Arguments::try_parse_from(arguments).unwrap().explain.run(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// Compiles a document whose segments override this feature, and returns the directory.
fn directory_with(feature: &str, segments: &[(&str, Value)]) -> String {
    static DIRECTORIES: AtomicU32 = AtomicU32::new(0);
    let feature = json!({"feature": {"id": 1, "name": feature}, "enabled": true, "feature_state_value": null});
    let segments: Vec<Value> = (3..)
        .zip(segments)
        .map(|(id, (name, rules))| json!({"id": id, "name": name, "rules": rules, "feature_states": [feature]}))
        .collect();
    let text = json!({"api_key": "k", "project": {"segments": segments}, "feature_states": [feature]}).to_string();
    let pruned = prune(document::parse(text.as_bytes()).unwrap(), &Rules::default());
    let options = Options {
        environment: "e",
        server_keys: &[],
        environment_flags: EnvironmentFlags::Plain,
        ..Options::default()
    };
    let compiled = compile(&pruned, &options).unwrap();
    let number = DIRECTORIES.fetch_add(1, Ordering::Relaxed);
    let place = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("explain-{number}"));
    directory::write(&place, "e", &compiled).unwrap();
    place.to_str().unwrap().to_owned()
}

/// Returns rules that require all of these conditions: attribute, operator and value.
fn all(conditions: &[(&str, &str, &str)]) -> Value {
    json!([{"type": "ALL", "conditions": conditions.iter().map(condition).collect::<Vec<_>>()}])
}

fn condition((attribute, operator, value): &(&str, &str, &str)) -> Value {
    json!({"operator": operator, "value": value, "property_": attribute})
}

/// Returns the line about the first requirement of a segment with one condition, for a value of the trait `t`.
fn requirement(operator: &str, compared: &str, value: &str) -> String {
    let value = format!("t={value}");
    let segments = [("s", all(&[("t", operator, compared)]))];
    let text = explained(&segments, &["--identifier", "somebody", "--trait", &value, "--flag", "a"]);
    let line = text.lines().find(|line| line.contains(" t is "));
    line.unwrap_or_else(|| panic!("{text}")).trim().to_owned()
}

#[test]
fn evaluation_beyond_its_budget_is_explained_with_the_segment() {
    let explained = |value: &str| {
        let value = format!("t={value}");
        explained(&[("odd", all(&[("t", "REGEX", "(?=a)(a|a)*b")]))], &["--identifier", "somebody", "--trait", &value])
    };
    let beyond = explained(&"a".repeat(1_990));
    assert!(beyond.starts_with("The evaluation took more than the"), "{beyond}");
    assert!(beyond.contains("segment \"odd\" was the first that it did not decide"), "{beyond}");
    let within = explained("aab");
    assert!(!within.contains("steps of one request"), "{within}");
    assert!(within.contains("odd"), "{within}");
}

#[test]
fn requirement_names_value_and_accepted_values() {
    let table = [
        ("EQUAL", "pro", "pro", r#"yes t is "pro": must be "pro""#),
        ("EQUAL", "pro", "free", r#"no  t is "free": must be "pro""#),
        ("EQUAL", "pro", "5", r#"no  t is 5: must be "pro""#),
        ("NOT_EQUAL", "pro", "pro", r#"no  t is "pro": must not be "pro""#),
        ("IN", "pro,team", "team", r#"yes t is "team": must be "pro" or "team""#),
        ("IN", "1,2,3,7", "4", "no  t is 4: must be 1, 2, 3 or 7"),
        ("EQUAL", "5", "5", "yes t is 5: must be 5"),
        ("NOT_EQUAL", "5", "5", "no  t is 5: must not be 5"),
        ("GREATER_THAN_INCLUSIVE", "18", "17", "no  t is 17: must be at least 18"),
        ("LESS_THAN", "18", "17.5", "yes t is 17.5: must be less than 18"),
        ("EQUAL", "true", "false", "no  t is false: must be true"),
        ("GREATER_THAN", "1.2.3:semver", "1.2.3", r#"no  t is "1.2.3": must be more than version 1.2.3"#),
        ("MODULO", "4|3", "7", "yes t is 7: must have the remainder 3 for the divisor 4"),
        ("CONTAINS", "@x.org", "a@x.org", r#"yes t is "a@x.org": must contain or match a pattern (stored compiled)"#),
        ("IS_NOT_SET", "", "1", "no  t is 1: must not have a value"),
    ];
    for (operator, compared, value, line) in table {
        assert_eq!(requirement(operator, compared, value), line, "{operator} {compared:?} {value:?}");
    }
    // A long text is stored as a hash: it is known only if the value equals it.
    assert_eq!(
        requirement("EQUAL", "a long company name", "a long company name"),
        r#"yes t is "a long company name": must be "a long company name""#
    );
    assert!(
        requirement("EQUAL", "a long company name", "other")
            .ends_with("must be a text of more than 11 bytes, stored as a hash")
    );
}

#[test]
fn segments_are_explained_in_order_of_priority() {
    let either = json!([
        {"type": "ALL", "conditions": [condition(&("age", "GREATER_THAN_INCLUSIVE", "18"))]},
        {"type": "ANY", "conditions": [condition(&("plan", "EQUAL", "pro")), condition(&("country", "EQUAL", "DE"))]},
    ]);
    let segments = [("adults", either), ("everybody", all(&[("age", "IS_SET", "")])), ("nobody", json!([]))];
    let asked =
        ["--identifier", "ada", "--trait", "age=30", "--trait", "plan=free", "--trait", "country=DE", "--flag", "a"];
    let text = explained(&segments, &asked);
    let lines: Vec<&str> = text.lines().skip(2).collect();
    assert_eq!(
        lines,
        [
            r#"  1. segment "adults" matches, and its override is the result"#,
            "     yes age is 30: must be at least 18",
            "     yes its other rules accept the identity",
            r#"         no  plan is "free": equals "pro""#,
            r#"         yes country is "DE": equals "DE""#,
            r#"  2. segment "everybody" matches, but another override is stronger"#,
            "     yes age is 30: must have a value",
            r#"  3. segment "nobody" has no rules, so that no identity matches it"#,
            "  reason TARGETING_MATCH; segment=adults",
        ],
        "{text}"
    );
    let unset = explained(&segments, &["--identifier", "ada", "--flag", "a"]);
    assert!(unset.contains("no  age is not set: must have a value, and must be at least 18"), "{unset}");
    let anonymous = explained(&segments, &["--flag", "a"]);
    assert!(anonymous.contains(r#"1. segment "adults" needs an identity"#), "{anonymous}");
    assert!(!explained(&segments, &["--identifier", "ada"]).contains("everybody"), "only named flags have segments");
}

#[test]
fn percentage_of_segment_is_explained_with_its_hash() {
    let segments = [("half", all(&[("", "PERCENTAGE_SPLIT", "50")]))];
    let line = |identifier: &str| {
        let text = explained(&segments, &["--identifier", identifier, "--flag", "a"]);
        text.lines().find(|line| line.contains("percentage")).unwrap().trim().to_owned()
    };
    let found: Vec<String> = (0..40).map(|number| line(&format!("user-{number}"))).collect();
    for line in &found {
        let (start, hash) = line.split_once("; the percentage is ").unwrap();
        assert!(start.contains(": must have a percentage of at most 50"), "{line}");
        let (percentage, hash) = hash.split_once(", from the MD5 ").unwrap();
        let percentage: f64 = percentage.parse().unwrap();
        assert_eq!(line.starts_with("yes"), percentage <= 50.0, "{line}");
        let (digest, text) = hash.split_once(" of ").unwrap();
        let number = u128::from_str_radix(digest, 16).unwrap() % 9999;
        assert!((f64::from(u32::try_from(number).unwrap()) / 99.98 - percentage).abs() < 0.0001, "{line}");
        assert!(text.starts_with("\"3,k_user-"), "{line}");
    }
    assert!(found.iter().any(|line| line.starts_with("yes")) && found.iter().any(|line| line.starts_with("no")));
}

/// The arguments of the commands that print text of documents.
#[derive(clap::Parser)]
enum Command {
    Explain(Explain),
    Inspect(Inspect),
    Diff(Diff),
}

#[test]
fn names_of_documents_cannot_steer_a_terminal() {
    let hostile = "n\u{1b}[2J\u{9b}2J\u{202e}\u{2028}\u{200b}";
    let rules = all(&[(hostile, "EQUAL", hostile)]);
    let place = directory_with(hostile, &[(hostile, rules)]);
    let other = directory_with("a", &[]);
    let explain = ["", "explain", &place, "--identifier", "somebody", "--flag", hostile];
    for arguments in [&explain[..], &["", "inspect", &place], &["", "diff", &place, &other]] {
        let mut out = Vec::new();
        match Command::try_parse_from(arguments).unwrap() {
            Command::Explain(command) => command.run(&mut out),
            Command::Inspect(command) => command.run(&mut out),
            Command::Diff(command) => command.run(&mut out),
        }
        .unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("n\u{fffd}[2J"), "{text:?}");
        let raw = |c: char| (c.is_control() && c != '\n') || ('\u{200b}'..='\u{202e}').contains(&c);
        assert!(!text.contains(raw), "{text:?}");
    }
}
