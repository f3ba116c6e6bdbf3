//! Tests of the objects for a monitoring stack.

use serde_json::{Value, json};

use super::packed::Packed;
use super::{at, chart, get, merged, render};

#[test]
fn monitoring_objects_are_rendered_on_request() {
    let on = json!({"enabled": true});
    let objects = render(&json!({"monitoring": {"dashboard": on, "alerts": on, "podMonitors": on}}));
    let dashboard = &get(&objects, "ConfigMap", "remora-dashboard")["data"]["remora.json"];
    let file = std::fs::read_to_string(chart().join("monitoring/dashboard.json")).unwrap();
    let parse = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    assert_eq!(parse(dashboard.as_str().unwrap()), parse(&file));
    let rules = &get(&objects, "PrometheusRule", "remora")["spec"];
    let file = std::fs::read_to_string(chart().join("monitoring/alerts.yaml")).unwrap();
    assert_eq!(*rules, serde_yaml::from_str::<Value>(&file).unwrap());
    for rule in rules["groups"][0]["rules"].as_array().unwrap() {
        for text in ["summary", "description"] {
            assert!(rule["annotations"][text].as_str().is_some_and(|text| text.len() > 20), "{rule}");
        }
        assert!(["critical", "warning", "info"].contains(&rule["labels"]["severity"].as_str().unwrap()), "{rule}");
    }
    let operator = get(&objects, "PodMonitor", "remora-operator");
    // If the pod's label replaced the metric's own label, environments could not be distinguished.
    assert_eq!(operator["spec"]["podMetricsEndpoints"][0]["honorLabels"], true);
    get(&objects, "PodMonitor", "remora-sidecars");
    let plain = render(&json!({}));
    assert!(!plain.keys().any(|(kind, _)| ["ConfigMap", "PrometheusRule", "PodMonitor"].contains(&kind.as_str())));
}

#[test]
fn alerts_name_runbook() {
    let runbook = "https://wiki.example.org/remora";
    let objects = render(&json!({"monitoring": {"alerts": {"enabled": true, "runbookUrl": runbook}}}));
    let rules = get(&objects, "PrometheusRule", "remora")["spec"]["groups"][0]["rules"].as_array().unwrap();
    assert!(rules.len() > 10, "{rules:?}");
    for rule in rules {
        let name = rule["alert"].as_str().unwrap();
        assert_eq!(rule["annotations"]["runbook_url"], format!("{runbook}#{}", name.to_lowercase()));
    }
}

/// The packed chart names its repository, and so does each alert without a value.
#[test]
fn alerts_of_packed_chart_name_runbook_of_repository() {
    let packed = Packed::new();
    let objects = packed.render(&json!({"monitoring": {"alerts": {"enabled": true}}}));
    let rules = get(&objects, "PrometheusRule", "remora")["spec"]["groups"][0]["rules"].as_array().unwrap();
    for rule in rules {
        let url = rule["annotations"]["runbook_url"].as_str().unwrap();
        let place =
            concat!("https://code.example.org/remora/blob/v", env!("CARGO_PKG_VERSION"), "/operator/README.md#");
        assert!(url.starts_with(place), "{url}");
    }
}

/// Returns values that install both PodMonitors, with these in addition.
fn monitored(more: &Value) -> Value {
    merged(json!({"monitoring": {"podMonitors": {"enabled": true}}}), more)
}

#[test]
fn pod_monitors_are_separate() {
    let rules = json!([{"sourceLabels": ["__name__"], "regex": "remora_sidecar_flag_uses_total", "action": "drop"}]);
    let given = json!({"interval": "1m", "scrapeTimeout": "20s", "metricRelabelings": rules});
    let endpoint = |values: &Value, part: &str| {
        let objects = render(&monitored(values));
        get(&objects, "PodMonitor", &format!("remora-{part}"))["spec"]["podMetricsEndpoints"][0].clone()
    };
    for (part, own) in
        [("operator", json!({"port": "admin", "honorLabels": true})), ("sidecars", json!({"port": "remora-admin"}))]
    {
        let path = format!("monitoring.podMonitors.{part}");
        assert_eq!(endpoint(&json!({}), part), own);
        assert_eq!(endpoint(&at(&path, &given), part), merged(own.clone(), &given));
        let objects = render(&monitored(&at(&path, &json!({"enabled": false}))));
        let monitors: Vec<_> = objects.keys().filter(|(kind, _)| kind == "PodMonitor").collect();
        assert!(monitors.len() == 1 && !monitors[0].1.ends_with(part), "{monitors:?}");
    }
}

#[test]
fn sidecars_are_scraped_in_served_namespaces() {
    let selector = |values: &Value| {
        get(&render(&monitored(values)), "PodMonitor", "remora-sidecars")["spec"]["namespaceSelector"].clone()
    };
    assert_eq!(selector(&json!({})), json!({"any": true}));
    let listed = json!({"controller": {"namespaces": ["shop", "payments"]}});
    assert_eq!(selector(&listed), json!({"matchNames": ["shop", "payments"]}));
}
