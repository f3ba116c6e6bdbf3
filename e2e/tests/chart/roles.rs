//! Tests of the rights of people, and of objects that not every administrator may create.

use std::collections::BTreeSet;

use remora_operator::ask::CONTROLLER_RIGHTS;
use serde_json::{Value, json};

use super::{get, objects, render, render_as};

#[test]
fn rights_on_environments_join_roles_of_kubernetes() {
    let rendered = render(&json!({}));
    for (name, roles) in [("remora-view", &["view", "edit", "admin"][..]), ("remora-edit", &["edit", "admin"])] {
        let labels = get(&rendered, "ClusterRole", name)["metadata"]["labels"].as_object().unwrap();
        let aggregated = labels.iter().filter(|(_, value)| *value == "true");
        let mut aggregated: Vec<_> =
            aggregated.filter_map(|(key, _)| key.strip_prefix("rbac.authorization.k8s.io/aggregate-to-")).collect();
        aggregated.sort_by_key(|role| roles.iter().position(|expected| expected == role));
        assert_eq!(aggregated, roles, "{name}");
    }
    let without = render(&json!({"rbac": {"aggregateToDefaultRoles": false}}));
    assert!(!without.keys().any(|(_, name)| name == "remora-view" || name == "remora-edit"));
}

#[test]
fn priority_of_requests_can_be_left_out() {
    let objects = render(&json!({"controller": {"apiPriority": {"enabled": false}}}));
    assert!(!objects.keys().any(|(kind, _)| kind == "FlowSchema" || kind == "PriorityLevelConfiguration"));
}

/// Owners of roles of their own rely on the check to find a missing right.
#[test]
fn check_asks_for_the_rights_that_the_chart_gives() {
    let rendered = render(&json!({"delivery": {"secrets": false}}));
    let rules = get(&rendered, "ClusterRole", "remora-controller")["rules"].as_array().unwrap();
    let texts = |rule: &Value, part: &str| {
        let texts = rule[part].as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned());
        texts.collect::<Vec<_>>()
    };
    let mut given = BTreeSet::new();
    for rule in rules {
        for (group, resource) in texts(rule, "apiGroups").into_iter().zip(texts(rule, "resources")) {
            given.extend(texts(rule, "verbs").into_iter().map(|verb| (group.clone(), resource.clone(), verb)));
        }
    }
    let not_asked = [
        // Only API servers with the admission plugin OwnerReferencesPermissionEnforcement need it.
        ("remora.dev", "featureenvironments/finalizers", "update"),
        // With controller.namespaces, the right is on namespaces by name.
        ("", "namespaces", "get"),
    ];
    let asked = CONTROLLER_RIGHTS.iter().chain(&not_asked);
    let asked = asked.map(|(group, resource, verb)| ((*group).into(), (*resource).into(), (*verb).into()));
    assert_eq!(given, asked.collect());
}

/// Two releases in one namespace would wait for each other's Lease if it had the same name.
#[test]
fn lease_has_name_of_release() {
    let other = objects(&render_as("other", &json!({})).unwrap());
    let controller = get(&other, "Deployment", "remora-other-controller");
    assert!(super::arguments(controller).contains(&"--lease=remora-other-controller"));
}

#[test]
fn right_to_write_secrets_can_be_left_out() {
    let objects = render(&json!({"delivery": {"secrets": false}}));
    let rules = get(&objects, "ClusterRole", "remora-controller")["rules"].as_array().unwrap();
    let verbs: Vec<_> =
        rules.iter().filter(|rule| rule["resources"] == json!(["secrets"])).map(|rule| &rule["verbs"]).collect();
    assert_eq!(verbs, [&json!(["get"])]);
    let controller = get(&objects, "Deployment", "remora-controller");
    assert!(super::arguments(controller).contains(&"--no-secret-delivery"));
}

#[test]
fn full_name_replaces_beginning_of_all_names() {
    let all = json!({"networkPolicy": {"enabled": true}, "receiver": {"enabled": true}, "controller": {"replicas": 2}});
    let named = super::merged(all.clone(), &json!({"fullnameOverride": "remora-prod"}));
    let names = |release: &str, values: &Value| {
        let objects = objects(&render_as(release, values).unwrap());
        objects.into_keys().collect::<Vec<_>>()
    };
    assert_eq!(names("remora-prod", &named), names("prod", &all));
    // An upgrade must not give the objects of an existing release other names.
    assert!(names("remora-prod", &all).iter().any(|(_, name)| name == "remora-remora-prod-controller"));
    let text = render_as("remora-prod", &named).unwrap();
    assert!(!text.contains("remora-remora-prod"), "a reference has the former name");
}
