//! Tests of the NetworkPolicies, and of a webhook in the network of its node.

use serde_json::{Value, json};

use super::{arguments, get, merged, render, render_as};

/// Returns the rule that allows DNS requests to these ports.
fn names(ports: &[u16]) -> Value {
    let both = |port: &u16| ["UDP", "TCP"].map(|protocol| json!({"port": port, "protocol": protocol}));
    json!({"ports": ports.iter().flat_map(both).collect::<Vec<_>>()})
}

/// Network policies list the allowed peers of the operator's pods in both directions.
#[test]
fn network_policies_open_needed_ports_only() {
    let spec = |values: &Value, part: &str| {
        let enabled = json!({"networkPolicy": {"enabled": true}});
        get(&render(&merged(enabled, values)), "NetworkPolicy", &format!("remora-{part}"))["spec"].clone()
    };
    let names = names(&[53]);
    let api_server = json!({"ports": [{"port": 443}, {"port": 6443}]});
    let webhook = spec(&json!({}), "webhook");
    assert_eq!(webhook["policyTypes"], json!(["Ingress", "Egress"]));
    assert_eq!(webhook["ingress"], json!([{"ports": [{"port": "admin"}]}, {"ports": [{"port": "webhook"}]}]));
    assert_eq!(webhook["egress"], json!([names, api_server]));
    let sidecars = json!({"to": [{
        "namespaceSelector": {}, "podSelector": {"matchLabels": {"remora.dev/sidecar": "injected"}},
    }]});
    let controller = spec(&json!({}), "controller");
    assert_eq!(controller["ingress"], json!([{"ports": [{"port": "admin"}]}]));
    assert_eq!(controller["egress"], json!([names, api_server, {"ports": [{"port": 443}]}, sidecars]));

    let test = spec(&json!({}), "test");
    assert_eq!((&test["ingress"], &test["egress"]), (&json!([]), &json!([names, api_server])));

    let narrow = json!({
        "allowedOrigins": ["https://flags.example.org", "http://flagsmith.shop:8000", "http://flags.example.org", "https://[2001:db8::1]:9443"],
        "networkPolicy": {
            "metrics": {"namespaceSelector": {"matchLabels": {"team": "observers"}}},
            "apiServer": {"cidrs": ["192.0.2.0/28"], "ports": [8443]},
    "dns": {"ports": [53, 5353]},
            "upstreams": {
                "cidrs": ["198.51.100.0/24", "2001:db8::/32"], "ports": [8080, 443],
                "peers": [{"podSelector": {"matchLabels": {"app": "flagsmith"}}}],
            },
        },
    });
    let agents = json!({
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
        "podSelector": {"matchLabels": {"k8s-app": "konnectivity-agent"}},
    });
    let through_agents = json!({"networkPolicy": {"apiServer": {"peers": [agents]}}});
    let admission = json!({"ports": [{"port": "webhook"}], "from": [agents]});
    assert_eq!(spec(&through_agents, "webhook")["ingress"], json!([{"ports": [{"port": "admin"}]}, admission]));
    let block = |cidr: &str| json!({"ipBlock": {"cidr": cidr}});
    // The plugin reads metrics through the API server.
    let observers = json!([{"namespaceSelector": {"matchLabels": {"team": "observers"}}}, block("192.0.2.0/28")]);
    let names = self::names(&[53, 5353]);
    let metrics = json!({"ports": [{"port": "admin"}], "from": observers});
    let api_server = json!({"ports": [{"port": 8443}], "to": [block("192.0.2.0/28")]});
    let webhook = spec(&narrow, "webhook");
    let admission = json!({"ports": [{"port": "webhook"}], "from": [block("192.0.2.0/28")]});
    assert_eq!(webhook["ingress"], json!([metrics, admission]));
    assert_eq!(webhook["egress"], json!([names, api_server]));
    let upstreams = json!({
        "ports": [{"port": 8080}, {"port": 443}, {"port": 8000}, {"port": 80}, {"port": 9443}],
        "to": [
            block("198.51.100.0/24"), block("2001:db8::/32"), {"podSelector": {"matchLabels": {"app": "flagsmith"}}},
        ],
    });
    assert_eq!(spec(&narrow, "controller")["egress"], json!([names, api_server, upstreams, sidecars]));
}

#[test]
fn policy_of_helm_test_needs_its_pod() {
    let values = json!({"networkPolicy": {"enabled": true}, "webhook": {"replicas": 0}});
    assert!(!render(&values).keys().any(|(_, name)| name == "remora-test"));
    let objects = render(&json!({"networkPolicy": {"enabled": true}}));
    let selected = &get(&objects, "NetworkPolicy", "remora-test")["spec"]["podSelector"]["matchLabels"];
    let labels = &get(&objects, "Pod", "remora-test-injection")["metadata"]["labels"];
    for (label, value) in selected.as_object().unwrap() {
        assert_eq!(labels[label], *value, "{label}");
    }
}

/// On the host's network, a second pod with the same ports waits for the first, so no rollout may need one more pod.
#[test]
fn webhook_in_network_of_node_uses_given_ports() {
    let values = json!({"webhook": {"hostNetwork": true, "port": 10443, "adminPort": 10080}});
    let objects = render(&values);
    let webhook = get(&objects, "Deployment", "remora-webhook");
    let pod = &webhook["spec"]["template"]["spec"];
    assert_eq!((&pod["hostNetwork"], &pod["dnsPolicy"]), (&json!(true), &json!("ClusterFirstWithHostNet")));
    assert_eq!(webhook["spec"]["strategy"]["rollingUpdate"], json!({"maxSurge": 0, "maxUnavailable": 1}));
    let ports = json!([{"name": "admin", "containerPort": 10080}, {"name": "webhook", "containerPort": 10443}]);
    assert_eq!(pod["containers"][0]["ports"], ports);
    let arguments = arguments(webhook);
    for expected in ["--webhook-listen=[::]:10443", "--admin-listen=[::]:10080"] {
        assert!(arguments.contains(&expected), "{expected} in {arguments:?}");
    }
    let plain = render(&json!({}));
    let controller = get(&objects, "Deployment", "remora-controller");
    assert_eq!(controller, get(&plain, "Deployment", "remora-controller"));
    let plain = &get(&plain, "Deployment", "remora-webhook")["spec"];
    assert_eq!(plain["strategy"]["rollingUpdate"], json!({"maxSurge": 1, "maxUnavailable": 0}));
    for field in ["hostNetwork", "dnsPolicy"] {
        assert_eq!(plain["template"]["spec"].get(field), None);
    }
    let same = render_as("remora", &json!({"webhook": {"port": 8080}})).unwrap_err();
    assert!(same.contains("webhook.port and webhook.adminPort are both 8080"), "{same}");
}
