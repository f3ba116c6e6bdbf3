//! Rendered output of the chart, by the real `helm` program; no cluster is needed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod deployments;
mod errors;
mod monitoring;
mod network;
mod packed;
mod readme;
mod render;
mod roles;
mod sidecar;
mod values;

use std::fmt::Write as _;

use serde_json::{Value, json};

use self::render::{
    MORE, Objects, arguments, at, chart, get, helm, helm_on, merged, objects, render, render_as, render_in, render_on,
};

#[test]
fn chart_passes_helm_lint() {
    let output = helm(&["lint", "--strict"], &json!({}));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn pods_run_with_restricted_security_context() {
    let objects = render(&json!({}));
    for part in ["controller", "webhook"] {
        let pod = &get(&objects, "Deployment", &format!("remora-{part}"))["spec"]["template"]["spec"];
        assert_eq!(pod["serviceAccountName"], format!("remora-{part}"), "an account of its own");
        assert_eq!(
            pod["containers"][0]["securityContext"],
            json!({
                "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": true,
                "runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"},
            })
        );
        assert!(pod["containers"][0]["resources"]["requests"]["memory"].is_string());
    }
}

#[test]
fn deployments_get_arguments_of_their_part_only() {
    let objects = render(&json!({}));
    let deployment = get(&objects, "Deployment", "remora-controller");
    let controller = arguments(deployment);
    let image = deployment["spec"]["template"]["spec"]["containers"][0]["image"].as_str().unwrap();
    let self_check = format!("--self-check={image}");
    assert_eq!(
        controller,
        [
            "controller",
            "--lease=remora-controller",
            "--max-document-bytes=67108864",
            "--max-snapshot-bytes=134217728",
            "--allowed-origin=https://edge.api.flagsmith.com",
            "--allowed-origin=https://realtime.flagsmith.com",
            &self_check,
            "--admin-listen=[::]:8080",
            "--log-level=info",
            "--log-json",
        ]
    );
    let webhook = arguments(get(&objects, "Deployment", "remora-webhook"));
    for expected in [
        "webhook",
        "--webhook-service=remora-webhook",
        "--webhook-configuration=remora",
        "--certificate-secret=remora-webhook-authority",
        concat!("--sidecar-image=remora-sidecar:", env!("CARGO_PKG_VERSION")),
    ] {
        assert!(webhook.contains(&expected), "{expected} in {webhook:?}");
    }
    get(&objects, "Service", "remora-webhook");
    get(&objects, "MutatingWebhookConfiguration", "remora");
}

#[test]
fn registration_covers_annotated_pods_only() {
    let objects = render(&json!({"webhook": {"excludedNamespaces": ["payments", "kube-system"]}}));
    let webhooks = get(&objects, "MutatingWebhookConfiguration", "remora")["webhooks"].as_array().unwrap();
    let [webhook] = webhooks.as_slice() else { panic!("{} webhooks", webhooks.len()) };
    assert_eq!(
        webhook["rules"],
        json!([{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"],
                "scope": "Namespaced"}])
    );
    let condition = webhook["matchConditions"][0]["expression"].as_str().unwrap();
    assert!(condition.contains("'remora.dev/inject' in object.metadata.annotations"), "{condition}");
    let condition = webhook["matchConditions"][1]["expression"].as_str().unwrap();
    assert!(condition.starts_with("request.namespace != 'remora-system' ||"), "{condition}");
    assert_eq!(
        webhook["namespaceSelector"]["matchExpressions"],
        json!([
            {"key": "kubernetes.io/metadata.name", "operator": "NotIn",
             "values": ["kube-system", "kube-node-lease", "payments"]},
            {"key": "remora.dev/admission", "operator": "NotIn", "values": ["disabled"]},
        ])
    );
    for (field, value) in [
        ("failurePolicy", json!("Fail")),
        ("timeoutSeconds", json!(5)),
        ("sideEffects", json!("None")),
        ("reinvocationPolicy", json!("IfNeeded")),
        ("matchPolicy", json!("Equivalent")),
        ("admissionReviewVersions", json!(["v1"])),
    ] {
        assert_eq!(webhook[field], value, "{field}");
    }
    assert_eq!(webhook["clientConfig"].get("caBundle"), None, "an upgrade would put it in place of the webhook's");
}

/// Without the webhook, none of its objects are rendered, and the policies match the same pods.
#[test]
fn policies_replace_objects_of_webhook() {
    let values = json!({"webhook": {"excludedNamespaces": ["payments"]}, "controller": {"namespaces": ["shop"]}});
    let by_webhook = render(&values);
    let by_policy = render(&merged(values, &json!({"injection": {"by": "AdmissionPolicy"}})));
    let names = |objects: &Objects| objects.keys().map(|(kind, name)| format!("{kind} {name}")).collect::<Vec<_>>();
    let (webhooks, policies) = (names(&by_webhook), names(&by_policy));
    let gone: Vec<_> = webhooks.iter().filter(|name| !policies.contains(name)).collect();
    assert_eq!(
        gone,
        [
            "ClusterRole remora-webhook",
            "ClusterRoleBinding remora-webhook",
            "Deployment remora-webhook",
            "MutatingWebhookConfiguration remora",
            "PodDisruptionBudget remora-webhook",
            "Role remora-webhook",
            "RoleBinding remora-webhook",
            "Service remora-webhook",
            "ServiceAccount remora-webhook",
            "ValidatingAdmissionPolicy remora-webhook-authority",
            "ValidatingAdmissionPolicy remora-webhook-registration",
            "ValidatingAdmissionPolicyBinding remora-webhook-authority",
            "ValidatingAdmissionPolicyBinding remora-webhook-registration",
        ]
    );
    let new: Vec<_> = policies.iter().filter(|name| !webhooks.contains(name)).collect();
    assert_eq!(
        new,
        [
            "MutatingAdmissionPolicy remora",
            "MutatingAdmissionPolicyBinding remora",
            "ValidatingAdmissionPolicy remora-deliveries",
            "ValidatingAdmissionPolicy remora-refusals",
            "ValidatingAdmissionPolicy remora-warnings",
            "ValidatingAdmissionPolicyBinding remora-deliveries",
            "ValidatingAdmissionPolicyBinding remora-refusals",
            "ValidatingAdmissionPolicyBinding remora-warnings",
        ]
    );
    assert!(
        arguments(get(&by_policy, "Deployment", "remora-controller"))
            .iter()
            .any(|argument| argument.starts_with("--self-check="))
    );

    let webhook = &get(&by_webhook, "MutatingWebhookConfiguration", "remora")["webhooks"][0];
    for (kind, name, failure, own) in [
        ("MutatingAdmissionPolicy", "remora", "Fail", &["lacks-an-addition"][..]),
        ("ValidatingAdmissionPolicy", "remora-refusals", "Fail", &[]),
        ("ValidatingAdmissionPolicy", "remora-warnings", "Ignore", &["may-get-a-warning"]),
    ] {
        let policy = &get(&by_policy, kind, name)["spec"];
        // A condition of its own leaves out pods that the policy would leave alone.
        let conditions = policy["matchConditions"].as_array().unwrap();
        let (shared, further) = conditions.split_at(2);
        assert_eq!(Some(shared), webhook["matchConditions"].as_array().map(Vec::as_slice), "{name}");
        assert!(further.iter().map(|condition| &condition["name"]).eq(own), "{name}: {further:?}");
        assert_eq!(policy["matchConstraints"]["resourceRules"], webhook["rules"], "{name}");
        assert_eq!(policy["matchConstraints"]["namespaceSelector"], webhook["namespaceSelector"], "{name}");
        assert_eq!(policy["failurePolicy"], failure, "{name}");
        assert_eq!(get(&by_policy, &format!("{kind}Binding"), name)["spec"]["policyName"], name);
    }
    // A FeatureEnvironment that another release serves may have another delivery.
    let deliveries = &get(&by_policy, "ValidatingAdmissionPolicy", "remora-deliveries")["spec"]["matchConstraints"];
    let only = json!([{"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["shop"]}]);
    assert_eq!(deliveries["namespaceSelector"]["matchExpressions"], only);
    let policy = get(&by_policy, "MutatingAdmissionPolicy", "remora");
    assert_eq!(policy["spec"]["reinvocationPolicy"], webhook["reinvocationPolicy"]);
    let variables = policy["spec"]["variables"].as_array().unwrap();
    let sidecar = variables.iter().find(|variable| variable["name"] == "sidecar").unwrap();
    let image = concat!("'image': dyn('remora-sidecar:", env!("CARGO_PKG_VERSION"), "')");
    assert!(sidecar["expression"].as_str().unwrap().contains(image), "{sidecar}");
    for (name, action) in [("remora-refusals", "Deny"), ("remora-warnings", "Warn")] {
        let binding = &get(&by_policy, "ValidatingAdmissionPolicyBinding", name)["spec"];
        assert_eq!(binding["validationActions"], json!([action]));
    }
}

#[test]
fn policies_use_newest_api_version_and_need_one() {
    let values = json!({"injection": {"by": "AdmissionPolicy"}});
    let error = render_on(&[], "remora", &values).unwrap_err();
    assert!(error.contains("Use injection.by: Webhook"), "{error}");
    let version = |more: &[&str]| {
        let objects = objects(&render_on(more, "remora", &values).unwrap());
        let of = |kind| get(&objects, kind, "remora")["apiVersion"].as_str().unwrap().to_owned();
        assert_eq!(of("MutatingAdmissionPolicy"), of("MutatingAdmissionPolicyBinding"));
        of("MutatingAdmissionPolicy")
    };
    assert_eq!(version(&MORE), "admissionregistration.k8s.io/v1beta1");
    let both = [MORE[0], "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"];
    assert_eq!(version(&both), "admissionregistration.k8s.io/v1");
}

#[test]
fn roles_have_listed_permissions_only() {
    let objects = render(&json!({}));
    let mut said = String::new();
    for ((kind, name), object) in &objects {
        for rule in object["rules"].as_array().into_iter().flatten() {
            let list = |field: &str| {
                let items = rule[field].as_array().into_iter().flatten();
                items.map(|item| item.as_str().unwrap()).collect::<Vec<_>>().join(",")
            };
            if kind.ends_with("Role") {
                let (resources, verbs, only) = (list("resources"), list("verbs"), list("resourceNames"));
                writeln!(said, "{kind} {name}: {verbs} {resources} {only}").unwrap();
            }
        }
    }
    // Each new permission must be added here on purpose.
    let expected = "\
ClusterRole remora-controller: get,list,watch featureenvironments 
ClusterRole remora-controller: get,patch featureenvironments/status 
ClusterRole remora-controller: update featureenvironments/finalizers 
ClusterRole remora-controller: get,list,watch,create,patch,delete configmaps 
ClusterRole remora-controller: get,create,patch,delete secrets 
ClusterRole remora-controller: create,patch events 
ClusterRole remora-controller: list,watch,patch pods 
ClusterRole remora-controller: get namespaces 
ClusterRole remora-edit: create,update,patch,delete,deletecollection featureenvironments 
ClusterRole remora-view: get,list,watch featureenvironments 
ClusterRole remora-webhook: get,list,watch featureenvironments 
ClusterRole remora-webhook: get,list,watch namespaces 
ClusterRole remora-webhook: get,patch mutatingwebhookconfigurations remora
Role remora-controller: create leases 
Role remora-controller: get,update,delete leases remora-controller
Role remora-controller: create pods 
Role remora-webhook: get,update secrets remora-webhook-authority
Role remora-webhook: create secrets 
";
    assert_eq!(said, expected);
}

#[test]
fn requests_of_controller_have_priority_level_of_their_own_and_its_lease_that_of_leader_election() {
    let objects = render(&json!({}));
    let subject = json!({"kind": "ServiceAccount", "serviceAccount": {"name": "remora-controller", "namespace": "remora-system"}});
    let mut precedences = Vec::new();
    for (name, level) in [("remora-controller-lease", "leader-election"), ("remora-controller", "remora-controller")] {
        let schema = &get(&objects, "FlowSchema", name)["spec"];
        assert_eq!(schema["priorityLevelConfiguration"]["name"], level);
        assert_eq!(schema["rules"][0]["subjects"], json!([subject]));
        precedences.push(schema["matchingPrecedence"].as_u64().unwrap());
    }
    assert!(precedences[0] < precedences[1] && precedences[1] < 9000, "{precedences:?}");
    let level = &get(&objects, "PriorityLevelConfiguration", "remora-controller")["spec"];
    assert_eq!((&level["type"], &level["limited"]["limitResponse"]["type"]), (&json!("Limited"), &json!("Queue")));
}

/// With a list of namespaces, there are no permissions in other namespaces, and pods of other namespaces are not
/// matched.
#[test]
fn chosen_namespaces_limit_watches_and_roles() {
    let objects = render(&json!({"controller": {"namespaces": ["payments", "shop"]}}));
    // The only permission for the whole cluster is on namespaces themselves.
    assert_eq!(
        get(&objects, "ClusterRole", "remora-controller")["rules"],
        json!([{"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"], "resourceNames": ["payments", "shop"]}])
    );
    let binding = get(&objects, "ClusterRoleBinding", "remora-controller");
    assert_eq!(binding["roleRef"]["name"], "remora-controller");
    assert_eq!(binding["subjects"][0]["name"], "remora-controller");
    let controller = arguments(get(&objects, "Deployment", "remora-controller"));
    for namespace in ["payments", "shop"] {
        assert!(controller.contains(&format!("--watch-namespace={namespace}").as_str()), "{controller:?}");
    }
    let everywhere = &get(&render(&json!({})), "ClusterRole", "remora-controller")["rules"].clone();
    let text = render_as("remora", &json!({"controller": {"namespaces": ["payments", "shop"]}})).unwrap();
    let mut granted = Vec::new();
    for document in serde_yaml::Deserializer::from_str(&text) {
        let object: Value = serde::Deserialize::deserialize(document).unwrap();
        if object["metadata"]["name"] == "remora-controller-environments" {
            let namespace = object["metadata"]["namespace"].as_str().unwrap().to_owned();
            if object["kind"] == "Role" {
                let (last, rest) = everywhere.as_array().unwrap().split_last().unwrap();
                assert_eq!(object["rules"].as_array().unwrap(), rest);
                assert_eq!(last["resources"], json!(["namespaces"]));
            } else {
                let account =
                    json!([{"kind": "ServiceAccount", "name": "remora-controller", "namespace": "remora-system"}]);
                assert_eq!(object["subjects"], account);
            }
            granted.push((object["kind"].as_str().unwrap().to_owned(), namespace));
        }
    }
    let expected = ["Role", "RoleBinding"].map(|kind| ["payments", "shop"].map(|at| (kind.to_owned(), at.to_owned())));
    assert_eq!(granted, expected.concat());
    let webhook = &get(&objects, "MutatingWebhookConfiguration", "remora")["webhooks"][0];
    // The release's own namespace stays selected for the dry runs of the self-check, and a condition excludes its pods.
    let values = json!(["payments", "shop", "remora-system"]);
    let only = json!({"key": "kubernetes.io/metadata.name", "operator": "In", "values": values});
    let selected = webhook["namespaceSelector"]["matchExpressions"].as_array().unwrap();
    assert!(selected.contains(&only), "{selected:?}");
}

/// The self-check's dry run is a pod of the release's own namespace, so no list of namespaces may leave it out.
#[test]
fn own_namespace_stays_selected_for_self_check() {
    let both = ["payments", "remora-system"];
    let values =
        json!({"webhook": {"excludedNamespaces": both}, "controller": {"namespaces": ["shop", "remora-system"]}});
    for by in ["Webhook", "AdmissionPolicy"] {
        let objects = render(&merged(values.clone(), &json!({"injection": {"by": by}})));
        let expressions = match by {
            "Webhook" => &get(&objects, "MutatingWebhookConfiguration", "remora")["webhooks"][0]["namespaceSelector"],
            _ => &get(&objects, "MutatingAdmissionPolicy", "remora")["spec"]["matchConstraints"]["namespaceSelector"],
        }["matchExpressions"]
            .as_array()
            .unwrap();
        let key = "kubernetes.io/metadata.name";
        assert_eq!(
            expressions[..2],
            [
                json!({"key": key, "operator": "NotIn", "values": ["kube-system", "kube-node-lease", "payments"]}),
                json!({"key": key, "operator": "In", "values": ["shop", "remora-system"]}),
            ],
            "{by}"
        );
    }
}

/// The controller publishes nothing in namespaces where pods are never injected.
#[test]
fn publishing_is_denied_in_namespaces_without_injection() {
    let objects = render(&json!({"webhook": {"excludedNamespaces": ["payments", "kube-system"]}}));
    let policy = &get(&objects, "ValidatingAdmissionPolicy", "remora-controller-objects")["spec"];
    let expression = policy["validations"][2]["expression"].as_str().unwrap();
    let excluded = "['kube-system', 'kube-public', 'kube-node-lease', 'remora-system', 'payments']";
    assert_eq!(expression, format!("!(request.namespace in {excluded})"));
    let binding = &get(&objects, "ValidatingAdmissionPolicyBinding", "remora-controller-objects")["spec"];
    assert_eq!(binding["validationActions"], json!(["Deny"]));
}

/// The webhook may create Secrets and change its registration only if it creates its certificates itself, and policies
/// limit both.
#[test]
fn webhook_account_is_limited_to_one_secret_and_one_field() {
    let policies = ["remora-webhook-authority", "remora-webhook-registration"];
    let objects = render(&json!({}));
    for name in policies {
        let policy = &get(&objects, "ValidatingAdmissionPolicy", name)["spec"];
        assert_eq!(policy["failurePolicy"], "Fail", "{name}");
        let account = "request.userInfo.username == 'system:serviceaccount:remora-system:remora-webhook'";
        assert_eq!(policy["matchConditions"][0]["expression"], account, "{name}");
        let binding = &get(&objects, "ValidatingAdmissionPolicyBinding", name)["spec"];
        assert_eq!(binding, &json!({"policyName": name, "validationActions": ["Deny"]}));
    }
    // The policy compares every field of the registered webhook, except the one that may change.
    let policy = get(&objects, "ValidatingAdmissionPolicy", policies[1]);
    let expression = policy["spec"]["validations"][0]["expression"].as_str().unwrap();
    let webhook = get(&objects, "MutatingWebhookConfiguration", "remora")["webhooks"][0].as_object().unwrap();
    for field in webhook.keys().filter(|field| !["name", "clientConfig"].contains(&field.as_str())) {
        assert!(expression.contains(&format!("now.?{field} == was.?{field}")), "{field}");
    }
    let certificates =
        json!({"source": "Secret", "secretName": "mine", "caBundle": "-----BEGIN CERTIFICATE-----\nx\n"});
    let given = render(&json!({"webhook": {"certificates": certificates}}));
    assert!(policies.iter().all(|name| !given.contains_key(&("ValidatingAdmissionPolicy".to_owned(), (*name).into()))));
}

#[test]
fn eviction_needs_permission_and_webhook() {
    let rights = |values: &Value| {
        let objects = render(values);
        let role = get(&objects, "ClusterRole", "remora-controller").to_string();
        let policy = get(&objects, "ValidatingAdmissionPolicy", "remora-controller-pods").to_string();
        let arguments = arguments(get(&objects, "Deployment", "remora-controller")).join(" ");
        (role.contains("pods/eviction"), policy.contains("not-an-eviction"), arguments.contains("--evict-uninjected"))
    };
    assert_eq!(rights(&json!({})), (false, false, false));
    assert_eq!(rights(&json!({"auditor": {"evict": true}})), (true, true, true));
    let nobody = json!({"webhook": {"replicas": 0, "excludedNamespaces": ["payments"]}});
    let objects = render(&nobody);
    let arguments = arguments(get(&objects, "Deployment", "remora-controller"));
    assert!(!arguments.iter().any(|argument| argument.starts_with("--self-check")), "it would never be ready");
    assert!(
        !objects.contains_key(&("MutatingWebhookConfiguration".to_owned(), "remora".to_owned())),
        "no pod could be created"
    );
    assert!(arguments.contains(&"--excluded-namespace=payments"));
}

#[test]
fn disruption_budget_needs_several_replicas() {
    let has = |part: &str, replicas: u32| {
        let objects = render(&json!({part: {"replicas": replicas}}));
        objects.contains_key(&("PodDisruptionBudget".to_owned(), format!("remora-{part}")))
    };
    for part in ["webhook", "controller"] {
        assert!(has(part, 2) && !has(part, 1), "{part}");
    }
}

#[test]
fn pods_run_on_linux_and_on_nodes_with_given_labels() {
    let selector = |objects: &Objects, part: &str| {
        get(objects, "Deployment", &format!("remora-{part}"))["spec"]["template"]["spec"]["nodeSelector"].clone()
    };
    let plain = render(&json!({}));
    let labels = json!({"nodeSelector": {"pool": "platform"}});
    let chosen = render(&json!({"controller": labels, "webhook": labels}));
    for part in ["webhook", "controller"] {
        assert_eq!(selector(&plain, part), json!({"kubernetes.io/os": "linux"}));
        assert_eq!(selector(&chosen, part), json!({"kubernetes.io/os": "linux", "pool": "platform"}));
    }
}

/// Helm passes the condition of a dependency to the chart.
#[test]
fn chart_accepts_condition_of_dependency() {
    assert_eq!(render(&json!({"enabled": true})), render(&json!({})));
}

#[test]
fn image_digest_replaces_tag() {
    let digest = format!("sha256:{}", "0123456789abcdef".repeat(4));
    let image = json!({"repository": "example.org/r", "tag": "1", "digest": digest});
    let objects = render(&json!({"image": {"operator": image, "sidecar": image}}));
    let webhook = get(&objects, "Deployment", "remora-webhook");
    assert_eq!(webhook["spec"]["template"]["spec"]["containers"][0]["image"], format!("example.org/r@{digest}"));
    let sidecar = format!("--sidecar-image=example.org/r@{digest}");
    assert!(arguments(webhook).contains(&sidecar.as_str()));
}

#[test]
fn crds_stay_after_uninstall() {
    let crd = ("CustomResourceDefinition".to_owned(), "featureenvironments.remora.dev".to_owned());
    let policy = |objects: &Objects| objects[&crd]["metadata"]["annotations"].get("helm.sh/resource-policy").cloned();
    assert_eq!(policy(&render(&json!({}))), Some(json!("keep")));
    assert_eq!(policy(&render(&json!({"crds": {"keep": false}}))), None);
    assert!(!render(&json!({"crds": {"enabled": false}})).contains_key(&crd));
}

#[test]
fn releases_of_other_names_share_no_names() {
    let other = objects(&render_as("other", &json!({})).unwrap());
    for (kind, name) in render(&json!({})).keys().filter(|(kind, _)| kind != "CustomResourceDefinition") {
        assert!(!other.contains_key(&(kind.clone(), name.clone())), "{kind} {name}");
    }
}

/// The permissions of the webhook's part of the release on certificates depend on who creates them.
#[test]
fn certificates_have_one_source() {
    let rights = |objects: &Objects| {
        let role = ("Role".to_owned(), "remora-webhook".to_owned());
        let registration = get(objects, "ClusterRole", "remora-webhook").to_string().contains("mutatingwebhook");
        (objects.contains_key(&role), registration)
    };
    let registered = |objects: &Objects| get(objects, "MutatingWebhookConfiguration", "remora").clone();
    let mounted = |objects: &Objects| {
        let webhook = get(objects, "Deployment", "remora-webhook");
        assert!(arguments(webhook).contains(&"--certificate-directory=/etc/remora/certificate"));
        assert!(!arguments(webhook).iter().any(|argument| argument.starts_with("--certificate-secret")));
        let pod = &webhook["spec"]["template"]["spec"];
        assert_eq!(pod["containers"][0]["volumeMounts"][0]["mountPath"], "/etc/remora/certificate");
        pod["volumes"][0]["secret"]["secretName"].clone()
    };
    let own = render(&json!({}));
    assert_eq!(rights(&own), (true, true));
    assert_eq!(get(&own, "Deployment", "remora-webhook")["spec"]["template"]["spec"].get("volumes"), None);

    let with = |certificates: Value| json!({"webhook": {"certificates": certificates}});
    let issuer = json!({"name": "corporate", "kind": "ClusterIssuer"});
    let managed = render(&with(json!({"source": "CertManager", "issuerRef": issuer})));
    assert_eq!(rights(&managed), (false, false));
    assert_eq!(mounted(&managed), "remora-webhook-certificate");
    let certificate = &get(&managed, "Certificate", "remora-webhook")["spec"];
    assert_eq!(certificate["secretName"], "remora-webhook-certificate");
    assert_eq!(certificate["dnsNames"], json!(["remora-webhook.remora-system.svc"]));
    assert_eq!(certificate["issuerRef"], issuer);
    let registration = registered(&managed);
    let inject = &registration["metadata"]["annotations"]["cert-manager.io/inject-ca-from"];
    assert_eq!(inject, "remora-system/remora-webhook");
    assert_eq!(registration["webhooks"][0]["clientConfig"].get("caBundle"), None);

    let pem = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let given = render(&with(json!({"source": "Secret", "secretName": "mine", "caBundle": pem})));
    assert_eq!(rights(&given), (false, false));
    assert_eq!(mounted(&given), "mine");
    let registration = registered(&given);
    let bundle = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCkFBQUEKLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=";
    assert_eq!(registration["webhooks"][0]["clientConfig"]["caBundle"], bundle);

    for (certificates, asked) in [
        (json!({"source": "CertManager"}), "webhook.certificates.issuerRef.name"),
        (json!({"source": "Secret", "caBundle": pem}), "webhook.certificates.secretName"),
        (json!({"source": "Secret", "secretName": "mine"}), "webhook.certificates.caBundle"),
    ] {
        let error = render_as("remora", &with(certificates)).unwrap_err();
        assert!(error.contains(asked), "{error}");
    }
}

#[test]
fn wrong_values_are_refused_by_schema() {
    for (path, value) in [
        ("webhok", json!({})),
        ("extraLabels", json!({"a": "b"})),
        ("image.registry", json!("registry.example.org/")),
        ("webhook.serviceAccount.name", json!("it's")),
        ("webhook.replica", json!(1)),
        ("webhook.failurePolicy", json!("fail")),
        ("injection.by", json!("Policy")),
        ("webhook.timeoutSeconds", json!(30)),
        ("webhook.port", json!(443)),
        ("allowedOrigins", json!([])),
        ("allowedOrigins", json!(["https://flags.example.org/api/v1/"])),
        ("image.sidecar.digest", json!("0123")),
    ] {
        let error = render_as("remora", &at(path, &value)).expect_err(path);
        assert!(error.contains("don't meet the specifications of the schema"), "{path}: {error}");
    }
}
