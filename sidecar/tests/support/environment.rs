//! A small environment.

use remora_snapshot::model::{
    Comparand, Comparison, Condition, Context, Derivation, Environment, Feature, IdentityFlag, IdentityOverride,
    Junction, Override, Property, Rule, Segment, Test,
};
use remora_snapshot::{Written, write};

pub(crate) const CLIENT_KEY: &str = "client-key";
pub(crate) const SERVER_KEY: &str = "ser.server-key";

/// Header with the client key.
pub(crate) const CLIENT: [(&str, &str); 1] = [("x-environment-key", CLIENT_KEY)];
/// Header with the server key.
pub(crate) const SERVER: [(&str, &str); 1] = [("x-environment-key", SERVER_KEY)];

fn feature(id: i64, name: &str, enabled: bool, value: &str) -> Feature {
    Feature {
        id,
        name: name.to_owned(),
        kind: "STANDARD".to_owned(),
        served: true,
        server_only: name.starts_with("secret"),
        default: context(enabled, value),
    }
}

fn context(enabled: bool, value: &str) -> Context {
    Context { enabled, value: value.to_owned(), split: None }
}

/// An environment with the flags `banner` ("plain", or "gold" if the trait `plan` is "pro", or "mine" for the identity
/// `somebody`), `dark mode` (disabled), `limit` (the integer `revision`), and `secret` for server keys.
pub(crate) fn environment(name: &str, client_key: &str, revision: u32) -> Environment {
    let pro = Condition {
        property: 0,
        test: Test::Compare(
            Comparison::Equal,
            Comparand { boolean: true, text: "pro".to_owned(), ..Comparand::default() },
        ),
    };
    Environment {
        name: name.to_owned(),
        client_key: client_key.to_owned(),
        server_keys: vec![format!("ser.{}", client_key.replace("client", "server"))],
        features: vec![
            feature(1, "banner", true, "\"plain\""),
            feature(2, "dark mode", false, "null"),
            feature(3, "limit", true, &revision.to_string()),
            feature(4, "secret", true, "\"s\""),
        ],
        segments: vec![Segment {
            id: "7".to_owned(),
            name: "pros".to_owned(),
            rules: vec![Rule { junction: Junction::All, conditions: vec![pro], rules: Vec::new() }],
            overrides: vec![Override { feature: 0, priority: None, context: context(true, "\"gold\"") }],
            identity_free: false,
        }],
        properties: vec![Property { name: Some("plan".to_owned()), derivation: Derivation::Plain }],
        identity_overrides: vec![IdentityOverride {
            identifier: "somebody".to_owned(),
            flags: vec![IdentityFlag { feature: 1, enabled: true, value: "\"mine\"".to_owned(), variant: None }],
        }],
        ..Environment::default()
    }
}

pub(crate) fn written(revision: u32) -> Written {
    write(&environment("shop", CLIENT_KEY, revision), 1_000_000).unwrap()
}

/// The same environment with enough identity overrides to store them in files of their own.
pub(crate) fn sharded(revision: u32, overrides: u32) -> Written {
    let mut environment = environment("shop", CLIENT_KEY, revision);
    for number in 0..overrides {
        environment.identity_overrides.push(IdentityOverride {
            identifier: format!("user_{number}"),
            flags: vec![IdentityFlag { feature: 3, enabled: true, value: format!("{}", number % 7), variant: None }],
        });
    }
    write(&environment, 10_000).unwrap()
}

/// Expected answer with the environment's flags for a client.
pub(crate) fn client_flags(revision: u32) -> String {
    let flags = [
        r#"{"feature":{"id":1,"name":"banner","type":"STANDARD"},"enabled":true,"feature_state_value":"plain"}"#,
        r#"{"feature":{"id":2,"name":"dark mode","type":"STANDARD"},"enabled":false,"feature_state_value":null}"#,
    ];
    let limit = format!(
        r#"{{"feature":{{"id":3,"name":"limit","type":"STANDARD"}},"enabled":true,"feature_state_value":{revision}}}"#
    );
    format!("[{},{limit}]", flags.join(","))
}
