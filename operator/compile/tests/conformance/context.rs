//! Builds documents from evaluation contexts, so that cases with contexts take the same path as every document.

use serde_json::{Value, json};

/// Prefix of the features that show if a segment matches. Each segment overrides a feature of its own.
pub(crate) const MEMBERSHIP: &str = "segment at ";

/// Returns a document in which the condition of case `n` enables feature `n`.
pub(crate) fn conditions(cases: &[Value]) -> String {
    let name = |number: usize| format!("f{number}");
    let segments: Vec<Value> = cases
        .iter()
        .enumerate()
        .map(|(number, case)| {
            // Percentage splits hash the segment's id, which is 7 in all of these cases. Of several segments with one
            // id only the last counts, so each document has at most one of these cases.
            json!({
                "id": if case["op"] == "PERCENTAGE_SPLIT" { 7 } else { number },
                "name": format!("s{number}"),
                "rules": [{"type": "ALL", "conditions": [{"operator": case["op"], "value": case["value"], "property_": "t"}]}],
                "feature_states": [state(number, &name(number), true, &Value::Null)],
            })
        })
        .collect();
    let features: Vec<Value> =
        (0..cases.len()).map(|number| state(number, &name(number), false, &Value::Null)).collect();
    document_of("e", &Value::from("e"), &features, &segments)
}

/// Returns a document with one feature that is split between two variants.
pub(crate) fn split(seed: &str) -> String {
    let mut feature = state(1, "f", true, &Value::Null);
    feature["featurestate_uuid"] = Value::from(seed);
    feature["multivariate_feature_state_values"] =
        json!([{"id": 1, "percentage_allocation": 50, "multivariate_feature_option": {"value": 1}}]);
    document_of("e", &Value::from("e"), &[feature], &[])
}

/// Returns the document of an evaluation context.
pub(crate) fn document(context: &Value) -> String {
    let mut features: Vec<Value> = Vec::new();
    for (number, feature) in values(&context["features"]).enumerate() {
        features.push(feature_state(number, feature));
    }
    let mut segments = Vec::new();
    for (number, segment) in values(&context["segments"]).enumerate() {
        let membership = format!("{MEMBERSHIP}{number}");
        features.push(state(100_000 + number, &membership, false, &Value::Null));
        let mut overrides: Vec<Value> = segment["overrides"]
            .as_array()
            .into_iter()
            .flatten()
            .enumerate()
            .map(|(n, o)| feature_state(n, o))
            .collect();
        overrides.push(state(100_000 + number, &membership, true, &Value::Null));
        segments.push(json!({
            "id": segment["key"].as_str().unwrap().parse::<i64>().unwrap_or(1_000_000 + number as i64),
            "name": segment["name"],
            "rules": rules(&segment["rules"]),
            "feature_states": overrides,
        }));
    }
    document_of(context["environment"]["key"].as_str().unwrap(), &context["environment"]["name"], &features, &segments)
}

/// Returns the position of a result's segment in the context, as it follows [`MEMBERSHIP`] in a feature's name.
pub(crate) fn place_of(context: &Value, result: &Value) -> String {
    let same = |segment: &Value| {
        segment["name"] == result["name"] && (result["metadata"].is_null() || segment["metadata"] == result["metadata"])
    };
    values(&context["segments"]).position(same).unwrap().to_string()
}

fn values(object: &Value) -> impl Iterator<Item = &Value> {
    object.as_object().into_iter().flat_map(|object| object.values())
}

fn rules(rules: &Value) -> Value {
    let rule = |rule: &Value| {
        let conditions: Vec<Value> = rule["conditions"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|c| json!({"operator": c["operator"], "value": c["value"], "property_": c["property"]}))
            .collect();
        json!({"type": rule["type"], "conditions": conditions, "rules": self::rules(&rule["rules"])})
    };
    rules.as_array().into_iter().flatten().map(rule).collect()
}

fn state(id: usize, name: &str, enabled: bool, value: &Value) -> Value {
    json!({"feature": {"id": id, "name": name, "type": "STANDARD"}, "enabled": enabled, "feature_state_value": value})
}

fn feature_state(number: usize, feature: &Value) -> Value {
    let id = feature["metadata"]["id"].as_u64().map_or(number, |id| id as usize);
    let mut state =
        state(id, feature["name"].as_str().unwrap(), feature["enabled"].as_bool().unwrap(), &feature["value"]);
    state["featurestate_uuid"] = feature["key"].clone();
    if !feature["priority"].is_null() {
        state["feature_segment"] = json!({"priority": feature["priority"]});
    }
    state["multivariate_feature_state_values"] = feature["variants"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|v| {
            // The priority becomes the id. Zero is not a valid id, so 1 is added to all priorities.
            let id = v["priority"].as_i64().unwrap() + 1;
            json!({"id": id, "percentage_allocation": v["weight"], "multivariate_feature_option": {"value": v["value"], "key": v["key"]}})
        })
        .collect();
    state
}

fn document_of(key: &str, name: &Value, features: &[Value], segments: &[Value]) -> String {
    json!({"id": 1, "api_key": key, "name": name, "project": {"segments": segments}, "feature_states": features})
        .to_string()
}
