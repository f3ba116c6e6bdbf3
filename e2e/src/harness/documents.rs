//! The document that most cases serve: small enough to read, with one example of everything that a case needs.

use jiff::Timestamp;
use serde_json::{Value, json};

fn state(id: i64, name: &str, enabled: bool, value: &Value) -> Value {
    json!({
        "feature": {"id": id, "name": name, "type": "STANDARD"}, "enabled": enabled, "feature_state_value": value,
        "django_id": id, "featurestate_uuid": format!("00000000-0000-4000-8000-{id:012}"),
        "feature_segment": null, "multivariate_feature_state_values": [],
    })
}

/// Returns an environment with the flags `checkout` (off, `"classic"`; on, `"express"` for `plan` = `pro`) and `banner`
/// (on, `"Welcome"`), and with `overrides` identities `user-0`, `user-1`, … For these, `banner` is off and its value
/// contains the identity's number.
#[must_use]
pub fn storefront(client_key: &str, overrides: usize) -> Value {
    let mut express = state(101, "checkout", true, &json!("express"));
    express["feature"]["id"] = json!(1);
    express["feature_segment"] = json!({"priority": 0});
    let identity = |n: usize| {
        let mut banner =
            state(1000 + i64::try_from(n).unwrap_or_default(), "banner", false, &json!(format!("for {n}")));
        banner["feature"]["id"] = json!(2);
        json!({
            "identifier": format!("user-{n}"), "environment_api_key": client_key, "created_date": "2026-11-01T08:00:00.000000+00:00",
            "identity_features": [banner], "identity_traits": [], "identity_uuid": "00000000-0000-4000-8000-000000000000",
            "django_id": n, "dashboard_alias": null, "composite_key": format!("{client_key}_user-{n}"),
        })
    };
    json!({
        "id": 1, "api_key": client_key, "name": "Storefront",
        "project": {
            "id": 1, "name": "Shop", "hide_disabled_flags": false, "enable_realtime_updates": false, "server_key_only_feature_ids": [],
            "organisation": {"id": 1, "name": "Org", "feature_analytics": false, "stop_serving_flags": false, "persist_trait_data": true},
            "segments": [{
                "id": 1, "name": "pro", "feature_states": [express],
                "rules": [{"type": "ALL", "conditions": [], "rules": [
                    {"type": "ANY", "rules": [], "conditions": [{"operator": "EQUAL", "property_": "plan", "value": "pro"}]},
                ]}],
            }],
        },
        "feature_states": [state(1, "checkout", false, &json!("classic")), state(2, "banner", true, &json!("Welcome"))],
        "identity_overrides": (0..overrides).map(identity).collect::<Vec<_>>(),
        "allow_client_traits": true, "hide_sensitive_data": false, "hide_disabled_flags": null,
        "updated_at": Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6f+00:00").to_string(),
        "use_identity_composite_key_for_hashing": true, "use_identity_overrides_in_local_eval": true,
    })
}
