//! Every value of the chart: a different value changes the output, and the schema refuses invalid values.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{at, chart, merged, objects, render_as, render_in};

/// Returns the other values that a value requires to have an effect.
fn beside(path: &str) -> Value {
    let pem = "-----BEGIN CERTIFICATE-----\n";
    let certificates = match path {
        "webhook.certificates.source" => json!({"issuerRef": {"name": "x"}}),
        "webhook.certificates.issuerRef" => json!({"source": "CertManager", "issuerRef": {"name": "x"}}),
        "webhook.certificates.secretName" | "webhook.certificates.caBundle" => {
            json!({"source": "Secret", "secretName": "x", "caBundle": format!("{pem}x")})
        }
        "caBundle.key" => return json!({"caBundle": {"configMap": "corporate-ca"}}),
        "proxy.secretName" => return json!({"proxy": {"url": "http://proxy.example.org:3128"}}),
        "monitoring.alerts.runbookUrl" => return json!({"monitoring": {"alerts": {"enabled": true}}}),
        _ if path.starts_with("monitoring.podMonitors.") && path != "monitoring.podMonitors.enabled" => {
            return json!({"monitoring": {"podMonitors": {"enabled": true}}});
        }
        _ if path.starts_with("networkPolicy.") && path != "networkPolicy.enabled" => {
            return json!({"networkPolicy": {"enabled": true}});
        }
        _ => match path.strip_suffix(".serviceAccount.create") {
            // An account that the chart does not create needs a name.
            Some(part) => return at(&format!("{part}.serviceAccount.name"), &json!("given")),
            None => return json!({}),
        },
    };
    json!({"webhook": {"certificates": certificates}})
}

/// Returns a different value for each existing value.
fn others() -> BTreeMap<String, Value> {
    let digest = json!(format!("sha256:{}", "0".repeat(64)));
    let single = [
        ("image.registry", json!("registry.example.org:5000/mirror")),
        ("image.operator.repository", json!("x")),
        ("image.operator.tag", json!("x")),
        ("image.operator.digest", digest.clone()),
        ("image.operator.pullPolicy", json!("Never")),
        ("image.sidecar.repository", json!("x")),
        ("image.sidecar.tag", json!("x")),
        ("image.sidecar.digest", digest),
        ("image.sidecar.pullPolicy", json!("Never")),
        ("imagePullSecrets", json!([{"name": "x"}])),
        ("allowedOrigins", json!(["http://flagsmith.example.org:8000"])),
        ("caBundle.configMap", json!("corporate-ca")),
        ("caBundle.key", json!("bundle.pem")),
        ("delivery.secrets", json!(false)),
        ("proxy.url", json!("http://proxy.example.org:3128")),
        ("proxy.secretName", json!("x")),
        ("proxy.origins", json!([{"origin": "https://flags.example.org"}])),
        ("crds.enabled", json!(false)),
        ("crds.keep", json!(false)),
        ("logLevel", json!("debug")),
        ("fullnameOverride", json!("flags")),
        ("commonLabels", json!({"example.org/a": "b"})),
        ("rbac.aggregateToDefaultRoles", json!(false)),
        ("injection.by", json!("AdmissionPolicy")),
        ("sidecar.await", json!("1m30s")),
        ("sidecar.logLevel", json!("debug")),
        ("sidecar.logJson", json!(true)),
        ("sidecar.resources.requests.cpu", json!("10m")),
        ("sidecar.resources.requests.memory", json!("16Mi")),
        ("sidecar.resources.limits.cpu", json!("500m")),
        ("controller.replicas", json!(2)),
        ("controller.namespaces", json!(["x"])),
        ("controller.apiPriority.enabled", json!(false)),
        ("webhook.replicas", json!(3)),
        ("webhook.port", json!(10250)),
        ("webhook.adminPort", json!(10251)),
        ("webhook.hostNetwork", json!(true)),
        ("webhook.dnsPolicy", json!("Default")),
        ("webhook.failurePolicy", json!("Ignore")),
        ("webhook.timeoutSeconds", json!(2)),
        ("controller.maxDocumentBytes", json!(200_000_000)),
        ("controller.maxSnapshotBytes", json!(200_000_000)),
        ("webhook.certificates.source", json!("CertManager")),
        ("webhook.certificates.issuerRef", json!({"name": "y"})),
        ("webhook.certificates.secretName", json!("y")),
        ("webhook.certificates.caBundle", json!("-----BEGIN CERTIFICATE-----\ny")),
        ("webhook.excludedNamespaces", json!(["x"])),
        ("auditor.evict", json!(true)),
        ("receiver.enabled", json!(true)),
        ("networkPolicy.enabled", json!(true)),
        ("networkPolicy.metrics.namespaceSelector", json!({"matchLabels": {"a": "b"}})),
        ("networkPolicy.dns.ports", json!([5353])),
        ("networkPolicy.apiServer.cidrs", json!(["192.0.2.0/24"])),
        ("networkPolicy.apiServer.peers", json!([{"podSelector": {"matchLabels": {"a": "b"}}}])),
        ("networkPolicy.apiServer.ports", json!([8443])),
        ("networkPolicy.upstreams.cidrs", json!(["2001:db8::/32"])),
        ("networkPolicy.upstreams.peers", json!([{"podSelector": {}}])),
        ("networkPolicy.upstreams.ports", json!([8000])),
        ("monitoring.dashboard.enabled", json!(true)),
        ("monitoring.alerts.enabled", json!(true)),
        ("monitoring.alerts.runbookUrl", json!("https://wiki.example.org/remora")),
        ("monitoring.podMonitors.enabled", json!(true)),
    ];
    let monitors = ["operator", "sidecars"].into_iter();
    let of_monitors = monitors
        .flat_map(|part| of_monitor().map(|(path, value)| (format!("monitoring.podMonitors.{part}.{path}"), value)));
    let parts = ["controller", "webhook"].into_iter();
    let of_parts = parts.flat_map(|part| of_deployment().map(|(path, value)| (format!("{part}.{path}"), value)));
    single.map(|(path, value)| (path.to_owned(), value)).into_iter().chain(of_parts).chain(of_monitors).collect()
}

/// Returns a different value for each value that both PodMonitors have.
fn of_monitor() -> [(&'static str, Value); 4] {
    [
        ("enabled", json!(false)),
        ("interval", json!("1m30s")),
        ("scrapeTimeout", json!("5s")),
        ("metricRelabelings", json!([{"action": "drop", "regex": "x", "sourceLabels": ["__name__"]}])),
    ]
}

/// Returns a different value for each value that both Deployments have.
fn of_deployment() -> [(&'static str, Value); 14] {
    let labels = || json!({"example.org/a": "b"});
    let spread = json!([{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]);
    [
        ("resources", json!({"requests": {"memory": "1Gi"}})),
        ("priorityClassName", json!("x")),
        ("nodeSelector", labels()),
        ("tolerations", json!([{"operator": "Exists"}])),
        ("affinity", json!({"nodeAffinity": {}})),
        ("topologySpreadConstraints", spread),
        ("podAnnotations", labels()),
        ("podLabels", labels()),
        ("podSecurityContext", json!({"fsGroup": 1})),
        ("securityContext", json!({"runAsUser": 1})),
        ("extraEnv", json!([{"name": "A", "value": "b"}])),
        ("serviceAccount.create", json!(false)),
        ("serviceAccount.name", json!("y")),
        ("serviceAccount.annotations", labels()),
    ]
}

/// Collects the paths of all values that are not objects with members.
fn leaves(prefix: &str, value: &Value, found: &mut Vec<String>) {
    match value.as_object() {
        // A value that users fill is a leaf, whatever its default contains.
        Some(members) if !members.is_empty() && !["controller.resources", "webhook.resources"].contains(&prefix) => {
            for (key, value) in members {
                let path = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
                leaves(&path, value, found);
            }
        }
        _ => found.push(prefix.to_owned()),
    }
}

#[test]
fn every_value_has_effect_and_schema() {
    let values = std::fs::read_to_string(chart().join("values.yaml")).unwrap();
    let mut found = Vec::new();
    leaves("", &serde_yaml::from_str(&values).unwrap(), &mut found);
    found.sort();
    let others = others();
    assert_eq!(
        found,
        others.keys().cloned().collect::<Vec<_>>(),
        "the values that are tried, and those that there are"
    );

    for (path, other) in others {
        let plain = render_as("remora", &beside(&path)).unwrap();
        let changed = render_as("remora", &merged(beside(&path), &at(&path, &other))).unwrap();
        assert!(changed != plain, "{path} does nothing");
        let wrong = render_as("remora", &at(&path, &json!({"no": ["such", "thing"]})));
        // Kubernetes defines the members of these values, and the schema takes any.
        let is_open = [".affinity", ".resources", "ecurityContext"].iter().any(|end| path.ends_with(end));
        if !is_open {
            assert!(wrong.unwrap_err().contains("don't meet the specifications of the schema"), "{path}");
        }
    }
}

/// Returns the paths of all values, and of the sections that they are in, with the defaults.
fn paths(path: &str, value: &Value, found: &mut BTreeMap<String, Value>) {
    if !path.is_empty() {
        found.insert(path.to_owned(), value.clone());
    }
    for (key, value) in value
        .as_object()
        .into_iter()
        .flatten()
        .filter(|_| !path.ends_with("er.resources") && !path.ends_with("webhook.resources"))
    {
        paths(&format!("{path}{}{key}", if path.is_empty() { "" } else { "." }), value, found);
    }
}

#[test]
fn schema_refuses_what_the_api_server_would() {
    let long = "a".repeat(64);
    for (path, wrong) in [
        ("webhook.excludedNamespaces", json!(["it's"])),
        ("webhook.excludedNamespaces", json!([""])),
        ("controller.namespaces", json!(["Upper"])),
        ("commonLabels", json!({"a": "two words"})),
        ("commonLabels", json!({"a b": "c"})),
        ("commonLabels", json!({"a": long})),
        ("controller.podLabels", json!({"example.org/": "b"})),
        ("controller.podAnnotations", json!({"a b": "c"})),
        ("image.operator.repository", json!("registry.example.org/Upper")),
        ("image.sidecar.repository", json!("a b")),
    ] {
        let error = render_as("remora", &at(path, &wrong)).unwrap_err();
        assert!(error.contains("don't meet the specifications of the schema"), "{path}: {error}");
    }
    for (path, right) in [
        ("webhook.excludedNamespaces", json!(["kube-public", "0"])),
        ("commonLabels", json!({"example.org/a_B.c": "", "a": "b_C.9"})),
        ("controller.podAnnotations", json!({"example.org/a": "any text: {}"})),
        ("image.operator.repository", json!("Registry.example.org:5000/mirror/remora-operator")),
        ("image.sidecar.repository", json!("a__b/c")),
    ] {
        render_as("remora", &at(path, &right)).unwrap();
    }
}

/// `podLabels:` with nothing but comments below it is null, and Helm then removes the default.
#[test]
fn value_that_is_null_is_empty_or_the_error_names_it() {
    let values = std::fs::read_to_string(chart().join("values.yaml")).unwrap();
    let mut found = BTreeMap::new();
    paths("", &serde_yaml::from_str(&values).unwrap(), &mut found);
    assert!(found.len() > 100, "{}", found.len());
    let empty = [json!(""), json!([]), json!({}), json!(false)];
    for (path, default) in found {
        let with = |value: &Value| render_as("remora", &merged(beside(&path), &at(&path, value)));
        match with(&Value::Null) {
            Ok(_) if path.ends_with(".resources") => {}
            Ok(text) => {
                assert!(empty.contains(&default), "{path} is {default} by default, and null is accepted");
                assert_eq!(text, with(&default).unwrap(), "{path}");
            }
            Err(error) => assert!(
                error.contains(&format!("{path} is ")) || error.contains(&format!("{path}.")),
                "{path}: {error}"
            ),
        }
    }
}

/// YAML reads these words as booleans, as nothing or as numbers where they are not quoted.
#[test]
fn names_that_yaml_reads_as_other_values_stay_names() {
    for name in ["on", "yes", "null", "true", "1e3", "0x1f", "123"] {
        let account = json!({"create": false, "name": name});
        let values = json!({
            "fullnameOverride": if name.starts_with(|first: char| first.is_ascii_digit()) { "" } else { name },
            "controller": {"priorityClassName": name, "serviceAccount": account, "namespaces": [name]},
            "webhook": {"excludedNamespaces": [format!("{name}2")], "certificates": {"source": "Secret", "secretName": name, "caBundle": "-----BEGIN CERTIFICATE-----\n"}},
            "networkPolicy": {"enabled": true},
            "monitoring": {"alerts": {"enabled": true}, "dashboard": {"enabled": true}, "podMonitors": {"enabled": true}},
            "caBundle": {"configMap": name},
            "receiver": {"enabled": true},
            "crds": {"enabled": false},
        });
        let mut texts = 0;
        for object in objects(&render_in(name, name, &values).unwrap()).values() {
            assert_names_are_texts(object, "", &mut texts);
        }
        assert!(texts > 100, "{texts}");
    }
}

/// Fails unless every name, namespace and label is a text.
fn assert_names_are_texts(value: &Value, path: &str, texts: &mut usize) {
    const NAMES: [&str; 6] = [
        "/name",
        "/namespace",
        "/secretName",
        "/priorityClassName",
        "/serviceAccountName",
        "/app.kubernetes.io/instance",
    ];
    if NAMES.iter().any(|end| path.ends_with(end)) {
        assert!(value.is_string(), "{path} is {value}");
        *texts += 1;
    }
    for (key, value) in value.as_object().into_iter().flatten() {
        assert_names_are_texts(value, &format!("{path}/{key}"), texts);
    }
    for value in value.as_array().into_iter().flatten() {
        assert_names_are_texts(value, path, texts);
    }
}
