//! Tests what `explain` prints beyond the flags themselves.

#![allow(clippy::unwrap_used)]

use clap::Parser as _;
use remora_operator::compile::document;
use remora_operator::compile::prune::{Rules, prune};
use remora_operator::compile::{Mode, Options, compile};
use remora_operator::tools::directory;
use remora_operator::tools::explain::Explain;
use serde_json::json;

/// The arguments of the command.
#[derive(clap::Parser)]
struct Arguments {
    #[command(flatten)]
    explain: Explain,
}

/// Returns what `explain` prints for a value of trait `t` that a segment with this pattern compares.
fn explained(pattern: &str, value: &str) -> String {
    let feature = json!({"feature": {"id": 1, "name": "a"}, "enabled": true, "feature_state_value": null});
    let condition = json!({"operator": "REGEX", "value": pattern, "property_": "t"});
    let rules = json!([{"type": "ALL", "conditions": [condition]}]);
    let segment = json!({"id": 3, "name": "odd", "rules": rules, "feature_states": [feature]});
    let text = json!({"api_key": "k", "project": {"segments": [segment]}, "feature_states": [feature]}).to_string();
    let pruned = prune(document::parse(text.as_bytes()).unwrap(), &Rules::new(&[], &[], false, false).unwrap());
    let options = Options { environment: "e", server_keys: &[], environment_flags: Mode::Plain, ..Options::default() };
    let compiled = compile(&pruned, &options).unwrap();
    let place = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("explain");
    directory::write(&place, "e", &compiled).unwrap();
    let trait_ = format!("t=\"{value}\"");
    let arguments = ["explain", place.to_str().unwrap(), "--identifier", "somebody", "--trait", &trait_];
    let mut out = Vec::new();
    Arguments::try_parse_from(arguments).unwrap().explain.run(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn evaluation_beyond_its_budget_is_explained_with_the_segment() {
    let beyond = explained("(?=a)(a|a)*b", &"a".repeat(1_990));
    assert!(beyond.starts_with("The evaluation took more than the"), "{beyond}");
    assert!(beyond.contains("segment \"odd\" was the first that it did not decide"), "{beyond}");
    let within = explained("(?=a)(a|a)*b", "aab");
    assert!(!within.contains("steps of one request"), "{within}");
    assert!(within.contains("odd"), "{within}");
}
