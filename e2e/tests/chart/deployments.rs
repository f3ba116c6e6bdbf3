//! Tests of the values that platform teams set on every chart: images from a mirror, labels, annotations, accounts,
//! spread, security contexts and proxies; and of the pod that `helm test` runs.

use serde_json::{Value, json};

use super::{Objects, arguments, chart, get, merged, objects, render, render_as, render_on};

const PARTS: [&str; 2] = ["controller", "webhook"];

fn deployment<'a>(objects: &'a Objects, part: &str) -> &'a Value {
    get(objects, "Deployment", &format!("remora-{part}"))
}

/// Returns these values for both Deployments.
fn both(value: &Value) -> Value {
    json!({"controller": value, "webhook": value})
}

#[test]
fn registry_stands_in_front_of_both_images() {
    let digest = format!("sha256:{}", "0".repeat(64));
    let image = json!({"registry": "mirror.example.org:5000/m", "sidecar": {"repository": "a/b", "digest": digest}});
    let objects = render(&json!({"image": image}));
    let version = env!("CARGO_PKG_VERSION");
    for part in PARTS {
        let container = &deployment(&objects, part)["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(container["image"], format!("mirror.example.org:5000/m/remora-operator:{version}"));
    }
    let sidecar = format!("--sidecar-image=mirror.example.org:5000/m/a/b@{digest}");
    assert!(arguments(deployment(&objects, "webhook")).contains(&sidecar.as_str()));
}

/// The labels that a Deployment selects its pods by cannot be replaced.
#[test]
fn labels_and_annotations_reach_pods() {
    let labels = json!({"team": "flags", "app.kubernetes.io/component": "other", "app.kubernetes.io/name": "other"});
    let values = json!({"podLabels": labels, "podAnnotations": {"a": "b"}});
    let objects = render(&merged(
        both(&values),
        &json!({"commonLabels": {"team": "platform", "cost": "1", "helm.sh/chart": "x"}}),
    ));
    for part in PARTS {
        let deployment = deployment(&objects, part);
        let pod = &deployment["spec"]["template"]["metadata"];
        let expected = json!({
            "app.kubernetes.io/name": "remora", "app.kubernetes.io/instance": "remora",
            "app.kubernetes.io/component": part, "team": "flags", "cost": "1", "helm.sh/chart": "x",
        });
        assert_eq!(pod["labels"], expected);
        assert_eq!(pod["annotations"], json!({"a": "b"}));
        assert_eq!(deployment["metadata"]["labels"]["team"], "platform");
        assert_ne!(deployment["metadata"]["labels"]["helm.sh/chart"], "x");
    }
}

#[test]
fn every_object_has_common_labels() {
    for (key, object) in render(&json!({"commonLabels": {"team": "platform"}})) {
        assert_eq!(object["metadata"]["labels"]["team"], "platform", "{key:?}");
    }
}

#[test]
fn given_fields_join_security_contexts() {
    let context = json!({"runAsUser": 10001, "readOnlyRootFilesystem": false, "seccompProfile": {"type": "Localhost", "localhostProfile": "x"}});
    let objects = render(&both(&json!({"securityContext": context, "podSecurityContext": {"fsGroup": 10001}})));
    let expected = json!({
        "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": false,
        "runAsNonRoot": true, "runAsUser": 10001, "seccompProfile": {"type": "Localhost", "localhostProfile": "x"},
    });
    for part in PARTS {
        let pod = &deployment(&objects, part)["spec"]["template"]["spec"];
        assert_eq!(pod["containers"][0]["securityContext"], expected);
        assert_eq!(pod["securityContext"], json!({"fsGroup": 10001}));
    }
}

#[test]
fn spread_without_selector_counts_pods_of_its_deployment() {
    let constraint = json!({"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"});
    let own = json!({"labelSelector": {"matchLabels": {"a": "b"}}});
    let given = merged(constraint.clone(), &own);
    let objects = render(&both(&json!({"topologySpreadConstraints": [constraint, given]})));
    let plain = render(&json!({}));
    for part in PARTS {
        let spread =
            |objects| deployment(objects, part)["spec"]["template"]["spec"]["topologySpreadConstraints"].clone();
        let selector = deployment(&plain, part)["spec"]["selector"].clone();
        let nodes = json!([{
            "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": selector,
        }]);
        assert_eq!(spread(&plain), nodes, "by default");
        assert_eq!(spread(&objects), json!([merged(constraint.clone(), &json!({"labelSelector": selector})), given]));
    }
}

/// Roles, policies and conditions name the account that the pods use.
#[test]
fn accounts_of_other_names_have_the_same_permissions() {
    let account = |name: &str| json!({"serviceAccount": {"name": name, "annotations": {"example.org/role": name}}});
    let values = json!({"controller": account("given-c"), "webhook": account("given-w")});
    let text = render_as("remora", &values).unwrap();
    let replaced = text
        .replace("  annotations:\n    example.org/role: given-c\n", "")
        .replace("  annotations:\n    example.org/role: given-w\n", "");
    let changed = objects(&replaced);
    let plain = render(&json!({}));
    for (name, account) in [("remora-controller", "given-c"), ("remora-webhook", "given-w")] {
        assert_eq!(get(&changed, "Deployment", name)["spec"]["template"]["spec"]["serviceAccountName"], account);
        let given = objects(&text);
        let annotations = &get(&given, "ServiceAccount", account)["metadata"]["annotations"];
        assert_eq!(*annotations, json!({"example.org/role": account}));
        for kind in ["ClusterRoleBinding", "RoleBinding"] {
            assert_eq!(get(&changed, kind, name)["subjects"][0]["name"], account);
        }
    }
    // Nothing else names the accounts of the default, and everything names those that are given.
    for ((kind, name), object) in &plain {
        if kind.starts_with("ValidatingAdmission") || kind == "MutatingWebhookConfiguration" {
            let expected = object
                .to_string()
                .replace("remora-system:remora-controller'", "remora-system:given-c'")
                .replace("remora-system:remora-webhook'", "remora-system:given-w'");
            assert_eq!(get(&changed, kind, name).to_string(), expected, "{kind} {name}");
        }
    }
    assert!(text.matches(":given-c'").count() >= 3 && text.matches(":given-w'").count() >= 2);
}

#[test]
fn account_of_others_needs_name_and_differs() {
    let given = |name: &str| json!({"serviceAccount": {"create": false, "name": name}});
    let objects = render(&json!({"controller": given("c"), "webhook": given("w")}));
    assert!(!objects.keys().any(|(kind, _)| kind == "ServiceAccount"));
    for (values, asked) in [
        (both(&json!({"serviceAccount": {"create": false}})), "controller.serviceAccount.name is empty"),
        (both(&json!({"serviceAccount": {"name": "same"}})), "name another account"),
    ] {
        let error = render_as("remora", &values).unwrap_err();
        assert!(error.contains(asked), "{error}");
    }
}

#[test]
fn proxies_become_arguments_with_mounted_credentials() {
    let origins = json!([
        {"origin": "https://a.example.org", "url": "http://other.example.org:8080", "secretName": "other"},
        {"origin": "https://b.example.org"},
    ]);
    let values = json!({
        "networkPolicy": {"enabled": true},
        "proxy": {"url": "http://proxy.example.org:3128", "secretName": "general", "origins": origins},
    });
    let objects = render(&values);
    let controller = deployment(&objects, "controller");
    let given: Vec<&str> =
        arguments(controller).into_iter().filter(|argument| argument.starts_with("--proxy")).collect();
    let expected = [
        "--proxy=http://proxy.example.org:3128,/etc/remora/proxy",
        "--proxy=https://a.example.org=http://other.example.org:8080,/etc/remora/proxy-0",
        "--proxy=https://b.example.org=direct",
    ];
    assert_eq!(given, expected);
    let pod = &controller["spec"]["template"]["spec"];
    let mounts = pod["containers"][0]["volumeMounts"].as_array().unwrap();
    for (number, (name, secret)) in [("proxy", "general"), ("proxy-0", "other")].into_iter().enumerate() {
        assert_eq!(pod["volumes"][number], json!({"name": name, "secret": {"secretName": secret}}));
        let mount = json!({"name": name, "mountPath": format!("/etc/remora/{name}"), "readOnly": true});
        assert_eq!(mounts[number], mount);
    }
    let egress = &get(&objects, "NetworkPolicy", "remora-controller")["spec"]["egress"][2]["ports"];
    assert_eq!(*egress, json!([{"port": 443}, {"port": 3128}, {"port": 8080}]));
    assert!(!arguments(deployment(&objects, "webhook")).iter().any(|argument| argument.starts_with("--proxy")));
}

/// The test sends a dry run, which the admission policies allow to the controller's account only.
#[test]
fn helm_test_checks_injection_as_controller() {
    let values = json!({"imagePullSecrets": [{"name": "x"}], "controller": {
        "serviceAccount": {"name": "given"}, "podLabels": {"mesh": "none"}, "podAnnotations": {"mesh": "no", "helm.sh/hook": "other"},
        "resources": {"limits": {"cpu": "1"}}, "podSecurityContext": {"fsGroup": 1},
    }});
    let objects = render(&values);
    let pod = get(&objects, "Pod", "remora-test-injection");
    let annotations = &pod["metadata"]["annotations"];
    assert_eq!((&annotations["helm.sh/hook"], &annotations["mesh"]), (&json!("test"), &json!("no")));
    assert_eq!(pod["metadata"]["labels"]["app.kubernetes.io/component"], "test");
    assert_eq!(pod["spec"]["securityContext"], json!({"fsGroup": 1}));
    assert_eq!(pod["spec"]["containers"][0]["resources"]["limits"]["cpu"], "1");
    assert_eq!(pod["spec"]["serviceAccountName"], "given");
    assert_eq!(pod["spec"]["imagePullSecrets"], json!([{"name": "x"}]));
    let (container, operator) = (&pod["spec"]["containers"][0], deployment(&objects, "controller"));
    let image = format!("--image={}", container["image"].as_str().unwrap());
    assert_eq!(container["args"], json!(["check-injection", "--namespace=remora-system", image]));
    assert_eq!(pod["spec"]["nodeSelector"], json!({"kubernetes.io/os": "linux"}));
    assert_eq!(pod["metadata"]["labels"]["mesh"], "none");
    assert_eq!(container["image"], operator["spec"]["template"]["spec"]["containers"][0]["image"]);
    let without = render(&json!({"webhook": {"replicas": 0}}));
    assert!(!without.keys().any(|(kind, _)| kind == "Pod"), "nothing injects");
    let more = ["admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"];
    let policies = json!({"webhook": {"replicas": 0}, "injection": {"by": "AdmissionPolicy"}});
    get(&self::objects(&render_on(&more, "remora", &policies).unwrap()), "Pod", "remora-test-injection");
}

/// The values that README.md shows for a mesh leave out each port of the operator's pods.
#[test]
fn values_for_meshes_exclude_ports_of_operator() {
    let readme = std::fs::read_to_string(chart().join("README.md")).unwrap();
    let section = readme.split("\n## Service meshes\n").nth(1).unwrap();
    let values = section
        .split("```yaml\n")
        .filter_map(|block| block.split("```").next())
        .find(|block| block.starts_with("controller:"));
    let objects = render(&serde_yaml::from_str(values.expect("values in YAML")).unwrap());
    for part in PARTS {
        let pod = &deployment(&objects, part)["spec"]["template"];
        let excluded = &pod["metadata"]["annotations"]["traffic.sidecar.istio.io/excludeInboundPorts"];
        let excluded: Vec<&str> = excluded.as_str().unwrap().split(',').collect();
        let ports = pod["spec"]["containers"][0]["ports"].as_array().unwrap();
        let ports: Vec<String> = ports.iter().map(|port| port["containerPort"].to_string()).collect();
        assert_eq!(excluded, ports, "{part}");
    }
}

/// Artifact Hub reads these annotations as YAML.
#[test]
fn metadata_for_artifact_hub_is_valid() {
    let text = std::fs::read_to_string(chart().join("Chart.yaml")).unwrap();
    let metadata: Value = serde_yaml::from_str(&text).unwrap();
    let annotation = |name: &str| metadata["annotations"][format!("artifacthub.io/{name}")].as_str().unwrap();
    let yaml = |name: &str| serde_yaml::from_str::<Value>(annotation(name)).unwrap();
    let definition = render(&json!({}));
    let definition = get(&definition, "CustomResourceDefinition", "featureenvironments.remora.dev");
    let listed = &yaml("crds")[0];
    assert_eq!(listed["name"], definition["metadata"]["name"]);
    assert_eq!(listed["kind"], definition["spec"]["names"]["kind"]);
    assert_eq!(listed["version"], definition["spec"]["versions"][0]["name"]);
    assert_eq!(yaml("crdsExamples")[0]["kind"], "FeatureEnvironment");
    assert_eq!(annotation("license"), "Apache-2.0");
}

#[test]
fn ca_bundle_is_mounted_for_controller_only() {
    let values = json!({"caBundle": {"configMap": "corporate-ca", "key": "bundle.pem"}});
    let objects =
        render(&super::merged(values, &json!({"proxy": {"url": "http://proxy.example.org:3128", "secretName": "x"}})));
    let controller = get(&objects, "Deployment", "remora-controller");
    assert!(arguments(controller).contains(&"--ca-bundle=/etc/remora/ca-bundle/ca.crt"));
    let pod = &controller["spec"]["template"]["spec"];
    let volume = json!({"name": "ca-bundle", "configMap": {"name": "corporate-ca", "items": [{"key": "bundle.pem", "path": "ca.crt"}]}});
    let mount = json!({"name": "ca-bundle", "mountPath": "/etc/remora/ca-bundle", "readOnly": true});
    assert_eq!(pod["volumes"].as_array().unwrap().len(), 2, "beside the credentials of the proxy");
    assert_eq!(pod["volumes"][1], volume);
    assert_eq!(pod["containers"][0]["volumeMounts"][1], mount);
    let webhook = get(&objects, "Deployment", "remora-webhook");
    assert!(webhook["spec"]["template"]["spec"].get("volumes").is_none());
    assert!(
        !arguments(get(&render(&json!({})), "Deployment", "remora-controller"))
            .iter()
            .any(|option| option.contains("ca-bundle"))
    );
}
