//! Changes that do not move the document's `updated_at`: the operator reads them within a minute.

use std::time::Duration;

use serde_json::{Value, json};

use super::{CORE, Cluster, Operator, fenv, is, keys::KEY_REREAD, pass, upstream::Upstream, wait};

/// Time after which every change is published, at the default interval.
const MINUTE: Duration = Duration::from_secs(60);

/// Returns a document with two variants, an identity that has the first, and a feature that is off.
fn document() -> Value {
    let option = |id: u32, value: &str, share: u32| json!({"id": id, "percentage_allocation": share, "multivariate_feature_option": {"id": id, "value": value}});
    let state = |id: u32, name: &str, enabled: bool, options: Value| {
        json!({"feature": {"id": id, "name": name, "type": "STANDARD"}, "enabled": enabled, "django_id": id,
            "feature_state_value": "off", "multivariate_feature_state_values": options})
    };
    let banner =
        |first: u32, second: u32| state(1, "banner", true, json!([option(1, "red", first), option(2, "blue", second)]));
    let identity = json!({"identifier": "ada", "identity_uuid": "a7cbb5a9-6bb5-4d0f-92c3-07b4d5b8a1ff",
        "identity_features": [banner(100, 0)]});
    json!({"id": 1, "api_key": "client", "updated_at": "2026-11-20T00:00:00+00:00", "name": "shop",
        "project": {"id": 1, "hide_disabled_flags": false, "segments": []},
        "feature_states": [banner(50, 50), state(2, "checkout", false, json!([]))], "identity_overrides": [identity]})
}

/// Returns the five kinds of changes that do not move `updated_at`, with the document after each.
fn changes() -> [(&'static str, Value); 5] {
    let changed = |path: &str, value: Value| {
        let mut document = document();
        *document.pointer_mut(path).unwrap() = value;
        document
    };
    let mut switched = document();
    let variants = &mut switched["identity_overrides"][0]["identity_features"][0]["multivariate_feature_state_values"];
    for (number, share) in [(0, 0), (1, 100)] {
        variants[number]["percentage_allocation"] = json!(share);
    }
    [
        (
            "another value of a variant",
            changed(
                "/feature_states/0/multivariate_feature_state_values/1/multivariate_feature_option/value",
                json!("green"),
            ),
        ),
        ("another variant of an identity", switched),
        ("an identity deleted with its overrides", changed("/identity_overrides", json!([]))),
        ("the project's hide_disabled_flags", changed("/project/hide_disabled_flags", json!(true))),
        ("a scheduled version of a feature", changed("/feature_states/1/enabled", json!(true))),
    ]
}

fn revision(cluster: &Cluster) -> Value {
    cluster.get(CORE).unwrap()["metadata"]["annotations"]["remora.dev/revision"].clone()
}

#[tokio::test]
async fn change_that_does_not_move_updated_at_is_published_within_a_minute() {
    for (kind, changed) in changes() {
        let cluster = Cluster::default();
        let upstream = Upstream::conditional(&document()).await;
        let mut operator = Operator::start_with(&cluster, std::slice::from_ref(&upstream.origin));
        let object = fenv(1, &upstream.spec());
        let (mut action, _) = operator.turn(object.clone()).await;
        is(&cluster.last_status(), "Ready", ("True", "Published"));
        // The second poll settles the version, so that a later one may be conditional.
        pass(wait(&action)).await;
        (action, _) = operator.turn(object.clone()).await;
        let before = revision(&cluster);

        upstream.serve(&changed);
        let mut waited = Duration::ZERO;
        while revision(&cluster) == before {
            assert!(waited < MINUTE, "{kind}: it was not published within {waited:?}");
            waited += wait(&action);
            pass(wait(&action)).await;
            (action, _) = operator.turn(object.clone()).await;
        }
        assert!(waited <= MINUTE, "{kind}: it was published after {waited:?}");
    }
}

#[tokio::test]
async fn frequent_polls_are_conditional_between_full_reads() {
    let cluster = Cluster::default();
    let upstream = Upstream::conditional(&document()).await;
    let mut operator = Operator::start_with(&cluster, std::slice::from_ref(&upstream.origin));
    let mut spec = upstream.spec();
    spec["refresh"] = json!({"interval": "5s"});
    let (mut now, mut polls) = (Duration::ZERO, 0);
    while now < MINUTE * 5 {
        let (action, _) = operator.turn(fenv(1, &spec)).await;
        polls += 1;
        now += wait(&action);
        pass(wait(&action)).await;
    }
    let full = polls - upstream.not_modified();
    assert!(polls > 50 && (5..=8).contains(&full), "{polls} polls, {full} full reads");
    // The same document with new UUIDs of its identities is compiled once.
    let metrics = operator.metrics.text().unwrap();
    assert!(metrics.contains(r#"remora_controller_steps_total{step="compile",outcome="Done"} 1"#), "{metrics}");
    assert!(metrics.contains("remora_environment_read_within_seconds"), "{metrics}");
}

/// A document that could not be compiled does not hide the return of the one before it.
#[tokio::test]
async fn document_that_returns_after_a_broken_one_is_read_again() {
    let cluster = Cluster::default();
    let upstream = Upstream::conditional(&document()).await;
    let mut operator = Operator::start_with(&cluster, std::slice::from_ref(&upstream.origin));
    let object = fenv(1, &upstream.spec());
    let (action, _) = operator.turn(object.clone()).await;
    let before = revision(&cluster);
    let mut broken = document();
    let mut twin = broken["feature_states"][0].clone();
    twin["feature"]["name"] = json!("another name");
    broken["feature_states"].as_array_mut().unwrap().push(twin);
    upstream.serve(&broken);
    pass(wait(&action)).await;
    let (action, _) = operator.turn(object.clone()).await;
    is(&cluster.last_status(), "Ready", ("True", "LastGood"));
    upstream.serve(&document());
    pass(wait(&action)).await;
    operator.turn(object).await;
    is(&cluster.last_status(), "Ready", ("True", "Published"));
    is(&cluster.last_status(), "Published", ("True", "Published"));
    assert_eq!(revision(&cluster), before);
}

/// The snapshot knows the server-side key, so it is compiled again although the document is the same.
#[tokio::test]
async fn same_document_for_another_key_is_compiled_again() {
    let cluster = Cluster::default();
    let upstream = Upstream::conditional(&document()).await;
    let mut operator = Operator::start_with(&cluster, std::slice::from_ref(&upstream.origin));
    let object = fenv(1, &upstream.spec());
    operator.turn(object.clone()).await;
    let before = cluster.get(CORE).unwrap()["binaryData"].clone();
    cluster.replace_key();
    pass(KEY_REREAD).await;
    operator.turn(object).await;
    is(&cluster.last_status(), "Ready", ("True", "Published"));
    assert_ne!(cluster.get(CORE).unwrap()["binaryData"], before);
}
