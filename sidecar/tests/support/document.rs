//! A document with identity overrides that do not compress well.

use serde_json::{Value, json};

/// Returns a document in which `limit` has this value, with overrides of this number of identities, all different.
pub(crate) fn source(limit: u32, identities: u32) -> Value {
    let state = |value: Value| {
        json!({"feature": {"id": 1, "name": "limit", "type": "STANDARD"}, "enabled": true, "feature_state_value": value,
               "django_id": 1, "multivariate_feature_state_values": []})
    };
    // Values that do not compress well, without a random generator.
    let noise = |number: u32| format!("{:08x}{:08x}", number.wrapping_mul(2_654_435_761), number.wrapping_mul(40_503));
    let identities: Vec<Value> = (0..identities)
        .map(|number| json!({"identifier": noise(number), "identity_features": [state(json!(noise(number + limit)))]}))
        .collect();
    json!({"api_key": "client", "id": 1, "name": "shop", "updated_at": "2026-11-21T00:00:00+00:00",
           "project": {"id": 1, "segments": []}, "feature_states": [state(json!(limit))], "identity_overrides": identities})
}
