//! OFREP answers for each option of an environment.

#![allow(clippy::unwrap_used, clippy::panic)]

use remora_snapshot::model::{BooleanFlags, Context, DisabledFlags, Environment, Feature, ObjectFlags, Ofrep};
use remora_snapshot::{RequestState, Revision, Role, Snapshot, write};

/// Flags by their name: `on true` is enabled and has the value `true`.
const FLAGS: [&str; 11] = [
    "on null",
    "off null",
    "on true",
    "off true",
    "on false",
    "off false",
    "on \"x\"",
    "off \"x\"",
    r#"on "{\"a\":[{}]}""#,
    r#"off "{\"a\":[{}]}""#,
    r#"on "[{}]""#,
];

/// Values that hold objects, as strings.
const TEXTS: &str = r#""{\"a\":[{}]}" none "[{}]""#;

/// Returns the OFREP answer for each flag, and the revision.
fn answers(ofrep: Ofrep) -> (Vec<String>, Revision) {
    let feature = |(id, name): (i64, &&str)| {
        let (state, value) = name.split_once(' ').unwrap();
        let default = Context { enabled: state == "on", value: value.to_owned(), split: None };
        let name = (*name).to_owned();
        Feature { id, name, kind: "STANDARD".to_owned(), served: true, server_only: false, default }
    };
    let features = (1..).zip(&FLAGS).map(feature).collect();
    let environment = Environment { client_key: "k".to_owned(), features, ofrep, ..Environment::default() };
    let written = write(&environment, usize::MAX).unwrap();
    let snapshot = Snapshot::read(written.files[0].bytes.as_slice()).unwrap();
    let answer = |name: &&str| {
        let mut out = Vec::new();
        snapshot.write_ofrep_flag(&mut RequestState::default(), Role::Client, name, &mut out);
        let out = String::from_utf8(out).unwrap();
        let reason = if name.starts_with("on") { "STATIC" } else { "DISABLED" };
        assert!(out.contains(&format!("\"reason\":\"{reason}\"")), "{out}");
        let value = out.split_once("\"value\":").map(|(_, rest)| rest.split(',').next().unwrap());
        value.unwrap_or("none").to_owned()
    };
    (FLAGS.iter().map(answer).collect(), written.revision)
}

#[test]
fn ofrep_option_changes_only_its_own_flags() {
    let with = |boolean_flags, disabled_flags| answers(Ofrep { boolean_flags, disabled_flags, ..Ofrep::default() });
    let expected =
        |text: &str, objects: &str| [text, objects].join(" ").split(' ').map(str::to_owned).collect::<Vec<_>>();
    let (plain, plain_revision) = answers(Ofrep::default());
    assert_eq!(plain, expected("true false true none false none \"x\" none", TEXTS));
    let (enabled, revision) = with(BooleanFlags::Enabled, DisabledFlags::CodeDefault);
    assert_eq!(enabled, expected("true false true false true false \"x\" none", TEXTS));
    assert_ne!(revision, plain_revision, "whoever has the old answers by their tag gets the new ones");
    let (values, revision) = with(BooleanFlags::Value, DisabledFlags::Value);
    let disabled = r#""{\"a\":[{}]}" "{\"a\":[{}]}" "[{}]""#;
    assert_eq!(values, expected("true false true true false false \"x\" \"x\"", disabled));
    assert_ne!(revision, plain_revision);
    let (both, _) = with(BooleanFlags::Enabled, DisabledFlags::Value);
    assert_eq!(both, expected("true false true false true false \"x\" \"x\"", disabled));
    let object_flags = ObjectFlags::Object;
    let (objects, revision) = answers(Ofrep { object_flags, ..Ofrep::default() });
    assert_eq!(objects, expected("true false true none false none \"x\" none", r#"{"a":[{}]} none "[{}]""#));
    assert_ne!(revision, plain_revision);
    let (values, _) = answers(Ofrep { disabled_flags: DisabledFlags::Value, object_flags, ..Ofrep::default() });
    let disabled = r#"{"a":[{}]} {"a":[{}]} "[{}]""#;
    assert_eq!(values, expected("true false true true false false \"x\" \"x\"", disabled));
}
