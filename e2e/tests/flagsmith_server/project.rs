//! The project whose flags are requested from both servers.

use serde_json::{Value, json};

use crate::admin::Admin;

/// A project with one environment.
pub(crate) struct Project {
    id: i64,
    pub(crate) client_key: String,
    pub(crate) server_key: String,
}

fn id(object: &Value) -> i64 {
    object["id"].as_i64().unwrap_or_else(|| panic!("no id in {object}"))
}

fn text(value: &str) -> Value {
    json!({"type": "unicode", "string_value": value})
}

/// Returns a segment whose rule is that any of these conditions holds.
fn segment(project: i64, name: &str, conditions: &[(&str, &str, &str)]) -> Value {
    let conditions: Vec<Value> = conditions
        .iter()
        .map(|(property, operator, value)| json!({"property": property, "operator": operator, "value": value}))
        .collect();
    json!({"name": name, "project": project, "rules": [{"type": "ALL", "conditions": [], "rules": [
        {"type": "ANY", "rules": [], "conditions": conditions},
    ]}]})
}

impl Project {
    /// Makes a project with features, segments, segment overrides, splits, and identities with overrides: one of
    /// a value, and one that selects a variant.
    pub(crate) async fn create(admin: &Admin) -> Project {
        let organisation = match std::env::var("REMORA_FLAGSMITH_ORGANISATION") {
            Ok(organisation) => {
                organisation.parse().expect("REMORA_FLAGSMITH_ORGANISATION is the id of an organisation")
            }
            Err(_) => id(&admin.get("organisations/").await["results"][0]),
        };
        let name = format!("remora-{}-{}", std::process::id(), jiff::Timestamp::now().as_second());
        let project = id(&admin.post("projects/", &json!({"name": name, "organisation": organisation})).await);
        let environment = admin.post("environments/", &json!({"name": "remora", "project": project})).await;
        let client_key = environment["api_key"].as_str().expect("a key").to_owned();
        let at = format!("environments/{client_key}");
        let server_key = admin.post(&format!("{at}/api-keys/"), &json!({"name": "remora"})).await;
        let server_key = server_key["key"].as_str().expect("a key").to_owned();

        let feature = async |name: &str, enabled: bool, value: &str, kind: &str| {
            let body = json!({"name": name, "type": kind, "default_enabled": enabled, "initial_value": value});
            id(&admin.post(&format!("projects/{project}/features/"), &body).await)
        };
        let checkout = feature("checkout", false, "classic", "STANDARD").await;
        let limit = feature("limit", true, "10", "STANDARD").await;
        let ranking = feature("ranking", true, "bm25", "MULTIVARIATE").await;
        let mut options = Vec::new();
        for (value, share) in [("embeddings", 30), ("both", 20)] {
            let mut option = text(value);
            option["feature"] = json!(ranking);
            option["default_percentage_allocation"] = json!(share);
            options.push(id(&admin.post(&format!("projects/{project}/features/{ranking}/mv-options/"), &option).await));
        }

        let split = |shares: [f64; 2]| -> Vec<Value> {
            let variant =
                |(option, share)| json!({"multivariate_feature_option": option, "percentage_allocation": share});
            options.iter().zip(shares).map(variant).collect()
        };

        for (name, conditions, feature, enabled, value) in [
            ("pro", &[("plan", "EQUAL", "pro"), ("plan", "EQUAL", "team")][..], checkout, true, "express"),
            ("regular", &[("orders", "GREATER_THAN_INCLUSIVE", "10")][..], limit, true, "50"),
            // As the dashboard sends it: servers refuse a condition without a property.
            ("third", &[("$.identity.key", "PERCENTAGE_SPLIT", "33")][..], checkout, true, "third"),
            ("north", &[("city", "REGEX", "^(Oslo|Bergen)"), ("city", "IN", "Kiruna,Alta")][..], limit, false, "0"),
            ("listed", &[("$.identity.identifier", "IN", r#"["guest-1", "Zoë"]"#)][..], limit, true, "listed"),
            ("even", &[("orders", "MODULO", "4|2")][..], checkout, false, "even"),
            ("current", &[("version", "GREATER_THAN_INCLUSIVE", "2.0.0:semver")][..], ranking, true, "current"),
        ] {
            let made = admin.post(&format!("projects/{project}/segments/"), &segment(project, name, conditions)).await;
            let mut body = json!({"feature_segment": {"segment": id(&made)}, "enabled": enabled,
                "feature_state_value": text(value)});
            if feature == ranking {
                body["multivariate_feature_state_values"] = json!(split([12.5, 60.25]));
            }
            admin.post(&format!("{at}/features/{feature}/create-segment-override/"), &body).await;
        }

        let states = async |identifier: &str| {
            let identity = id(&admin.post(&format!("{at}/identities/"), &json!({"identifier": identifier})).await);
            format!("{at}/identities/{identity}/featurestates/")
        };
        let own = json!({"feature": limit, "enabled": true, "feature_state_value": "7"});
        admin.post(&states("ada").await, &own).await;
        let selected = json!({"feature": ranking, "enabled": true, "feature_state_value": "bm25",
            "multivariate_feature_state_values": split([100.0, 0.0])});
        admin.post(&states("grace").await, &selected).await;
        // Some servers apply identity overrides in documents only after this setting is saved.
        let setting = json!({"name": "remora", "project": project, "use_identity_overrides_in_local_eval": true});
        admin.put(&format!("{at}/"), &setting).await;
        Project { id: project, client_key, server_key }
    }

    pub(crate) async fn delete(&self, admin: &Admin) {
        admin.delete(&format!("projects/{}/", self.id)).await;
    }
}
