//! Tests `kubectl remora` against a simulated API server.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "ask/world.rs"]
mod world;

use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use remora_operator::ask::Failure;
use serde_json::{Value, json};
use world::World;

const ENVIRONMENT: &str = "/apis/remora.dev/v1alpha1/namespaces/shop/featureenvironments/storefront";
const PODS: &str = "/api/v1/namespaces/shop/pods";

/// Returns the flags of the first and of the second revision: name, state and value.
fn revisions() -> [Vec<(&'static str, bool, &'static str)>; 2] {
    [vec![("banner", false, "Welcome"), ("old", true, "1")], vec![("banner", true, "Sale"), ("fresh", true, "2")]]
}

fn world() -> World {
    World::with_revisions(&revisions())
}

#[tokio::test]
async fn flags_are_read_from_published_objects() {
    let (code, text) = world().ask(&["flags", "storefront"]).await.unwrap();
    assert_eq!(code, 0);
    assert!(text.contains(": 2 flags\n"), "{text}");
    let banner = text.lines().find(|line| line.starts_with("banner")).unwrap();
    assert!(banner.contains("on") && banner.contains("\"Sale\""), "{banner}");
    let (_, json) = world().ask(&["flags", "storefront", "-o", "json"]).await.unwrap();
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["flags"][0]["name"], "banner");
    assert_eq!(json["flags"][0]["enabled"], true);
}

#[tokio::test]
async fn content_of_revision_is_listed_as_text_and_json() {
    let world = world();
    let first = world.revisions[0].as_str();
    let (code, text) = world.ask(&["inspect", "storefront", "--revision", first]).await.unwrap();
    assert!(code == 0 && text.contains(&format!("revision            {first}\n")), "{text}");
    assert!(text.contains("\n2 features\n") && text.lines().any(|line| line.starts_with("  old ")), "{text}");
    let (_, json) = world.ask(&["inspect", "storefront", "-o", "json"]).await.unwrap();
    let json: Value = serde_json::from_str(&json).unwrap();
    let names: Vec<&Value> = json["features"].as_array().unwrap().iter().map(|feature| &feature["name"]).collect();
    assert_eq!(names, ["banner", "fresh"]);
    assert_eq!(json["regularExpressions"], json!({"automata": 0, "backtracking": 0}));
}

#[tokio::test]
async fn names_of_the_cluster_are_completed() {
    let world = world();
    let [first, second] = [&world.revisions[0], &world.revisions[1]];
    let environments = world.complete(&["pin", ""]).await;
    assert_eq!(environments, ["storefront", ":4"]);
    let revisions = world.complete(&["pin", "storefront", ""]).await;
    assert_eq!(revisions[0], format!("{second}\tpublished"));
    assert!(revisions[1].starts_with(&format!("{first}\tpublished at 2027-")), "{revisions:?}");
    assert_eq!(world.complete(&["diff", "storefront", first, &second[..4]]).await, [&revisions[0], ":4"]);
    let option = world.complete(&["flags", "storefront", &format!("--revision={}", &first[..4])]).await;
    assert!(option[0].starts_with(&format!("--revision={first}\t")), "{option:?}");
    assert_eq!(world.complete(&["explain", "storefront", ""]).await, ["banner", "fresh", ":4"]);
    assert_eq!(world.complete(&["explain", "storefront", "banner", "fr"]).await, ["fresh", ":4"]);
    assert_eq!(world.complete(&["pin", "elsewhere", ""]).await, [":4"]);
}

#[tokio::test]
async fn earlier_revision_is_read_from_its_copy() {
    let world = world();
    let first = world.revisions[0].clone();
    let (_, text) = world.ask(&["flags", "storefront", "--revision", &first]).await.unwrap();
    assert!(text.contains(&first) && text.contains("old") && !text.contains("fresh"), "{text}");
    let unknown = world.ask(&["flags", "storefront", "--revision", "000000000000"]).await.unwrap_err();
    assert!(matches!(&unknown, Failure::Usage(message) if message.contains(&first)), "{unknown}");
    assert_eq!(unknown.exit_code(), 2);
}

#[tokio::test]
async fn core_in_parts_is_read_as_a_whole() {
    let world = world();
    assert_eq!(world.publish_core_in_parts(), 2);
    let (_, text) = world.ask(&["flags", "storefront"]).await.unwrap();
    assert!(text.contains(": 60 flags\n") && text.contains("large-59"), "{}", text.len());
    let (_, text) = world.ask(&["size", "storefront"]).await.unwrap();
    assert!(text.contains("core-b-00") && text.contains("core-b-01"), "{text}");
    world.remove("/api/v1/namespaces/shop/configmaps/remora-storefront-v3-core-b-01");
    let incomplete = world.ask(&["flags", "storefront"]).await.unwrap_err();
    assert!(incomplete.to_string().contains("core-b-01 does not exist") && incomplete.exit_code() == 3, "{incomplete}");
}

#[tokio::test]
async fn diff_compares_last_two_revisions_by_default() {
    let world = world();
    let (code, text) = world.ask(&["diff", "storefront"]).await.unwrap();
    assert_eq!(code, 1);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], format!("revision {} -> {}", world.revisions[0], world.revisions[1]));
    assert!(lines.iter().any(|line| line.starts_with("~ flag banner: off \"Welcome\" -> on \"Sale\"")), "{text}");
    assert!(lines.iter().any(|line| line.starts_with("+ flag fresh")), "{text}");
    let (code, text) = world.ask(&["diff", "storefront", "-o", "json"]).await.unwrap();
    let json: Value = serde_json::from_str(&text).unwrap();
    let state = |enabled: bool, value: &str| json!({"enabled": enabled, "value": format!("{value:?}"), "serverOnly": false, "isServed": true});
    let flags = json!([
        {"name": "banner", "change": "changed", "before": state(false, "Welcome"), "after": state(true, "Sale")},
        {"name": "fresh", "change": "added", "after": state(true, "2")},
        {"name": "old", "change": "removed", "before": state(true, "1")},
    ]);
    let expected = json!({
        "before": world.revisions[0], "after": world.revisions[1], "twoEnvironments": false, "onlyConditions": false,
        "flags": flags, "segments": [],
    });
    assert_eq!((code, json), (1, expected));
    let same = ["diff", "storefront", &world.revisions[1], &world.revisions[1]];
    let (code, text) = world.ask(&same).await.unwrap();
    assert!(code == 0 && text.contains("are the same"), "{text}");
}

#[tokio::test]
async fn explanation_is_of_published_revision() {
    let world = world();
    let asked = ["explain", "storefront", "banner", "--identifier", "alice", "--trait", "plan=pro"];
    let (code, text) = world.ask(&asked).await.unwrap();
    assert_eq!(code, 0);
    assert!(text.contains("banner: on, \"Sale\"\n  default: "), "{text}");
    assert!(!text.contains("fresh"), "{text}");
    let wrong = world.ask(&["explain", "storefront", "gone"]).await.unwrap_err();
    assert_eq!(wrong.exit_code(), 2, "{wrong}");
    let alone = world.ask(&["explain", "storefront", "--trait", "plan=pro"]).await.unwrap_err();
    assert!(alone.to_string().contains("--identifier"), "{alone}");
}

#[tokio::test]
async fn explanation_of_pod_is_of_the_revision_that_it_serves() {
    let world = world();
    let running = json!({"running": {}});
    let metrics = |revision: &str| {
        Value::String(format!("remora_sidecar_revision_info{{environment=\"storefront\",revision=\"{revision}\"}} 1\n"))
    };
    let asked = ["explain", "storefront", "banner", "--pod", "web-1"];
    let unknown = world.ask(&asked).await.unwrap_err();
    assert!(unknown.exit_code() == 2 && unknown.to_string().contains("no pod \"web-1\""), "{unknown}");
    world.put(&format!("{PODS}/web-1"), pod("web-1", &running));
    world.put(&format!("{PODS}/web-1:4778/proxy/metrics"), metrics(&world.revisions[0]));
    let (_, text) = world.ask(&asked).await.unwrap();
    assert!(text.contains(&world.revisions[0]) && text.contains("banner: off, \"Welcome\""), "{text}");
    assert!(!text.contains("overridden by the pod"), "{text}");
    let mut overriding = pod("web-1", &running);
    overriding["spec"]["initContainers"][0]["args"] = json!(["--overrides", r#"{"banner": {"enabled": true}}"#]);
    world.put(&format!("{PODS}/web-1"), overriding);
    let (_, text) = world.ask(&asked).await.unwrap();
    assert!(text.contains("banner: overridden by the pod"), "{text}");
    world.put(&format!("{PODS}/web-1"), pod("web-1", &running));
    world.put(&format!("{PODS}/web-1:4778/proxy/metrics"), metrics("000000000000"));
    let gone = world.ask(&asked).await.unwrap_err();
    assert!(gone.exit_code() == 3 && gone.to_string().contains("no port of the pod serves its files"), "{gone}");
    world.put(&format!("{PODS}/web-1:4778/proxy/metrics"), Value::String(String::new()));
    let empty = world.ask(&asked).await.unwrap_err();
    assert!(empty.to_string().contains("serves no revision yet"), "{empty}");
    world.refuse(&format!("{PODS}/web-1:4778/proxy/metrics"));
    let refused = world.ask(&asked).await.unwrap_err();
    assert!(refused.to_string().starts_with("missing right: get pods/proxy in namespace shop"), "{refused}");
}

#[tokio::test]
async fn size_names_objects_and_largest_flags() {
    let (_, text) = world().ask(&["size", "storefront"]).await.unwrap();
    assert!(text.contains("remora-storefront-v3-core"), "{text}");
    assert!(text.contains("banner"), "{text}");
}

#[tokio::test]
async fn history_lists_published_revision_first() {
    let world = world();
    let (code, json) = world.ask(&["history", "storefront", "-o", "json"]).await.unwrap();
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((code, &json["revisions"][0]["revision"]), (0, &json!(world.revisions[1])));
    assert_eq!(json["revisions"][0]["changes"]["changed"], json!(["banner"]));
    assert_eq!(json["revisions"][1]["isPublished"], false);
}

#[tokio::test]
async fn pin_and_unpin_change_only_the_pin() {
    let world = world();
    let first = world.revisions[0].clone();
    let (code, _) = world.ask(&["pin", "storefront", &first]).await.unwrap();
    assert_eq!((code, world.patches()), (0, vec![json!({"spec": {"pin": first}})]));
    world.ask(&["unpin", "storefront"]).await.unwrap();
    assert_eq!(world.patches(), [json!({"spec": {"pin": ""}})]);
    let unknown = world.ask(&["pin", "storefront", "000000000000"]).await.unwrap_err();
    assert!(unknown.exit_code() == 2 && world.patches().is_empty(), "{unknown}");
}

#[tokio::test]
async fn confirm_approves_only_held_revision() {
    let world = world();
    assert_eq!(world.ask(&["confirm", "storefront"]).await.unwrap_err().exit_code(), 2);
    world.edit(ENVIRONMENT, |object| object["status"]["heldRevision"] = json!("abcabcabcabc"));
    assert_eq!(world.ask(&["confirm", "storefront", "000000000000"]).await.unwrap_err().exit_code(), 2);
    assert!(world.patches().is_empty());
    world.ask(&["confirm", "storefront"]).await.unwrap();
    assert_eq!(world.patches(), [json!({"metadata": {"annotations": {"remora.dev/confirm": "abcabcabcabc"}}})]);
}

#[tokio::test]
async fn refresh_waits_for_served_request() {
    let world = world();
    let (code, _) = world.ask(&["refresh", "storefront"]).await.unwrap();
    assert_eq!((code, world.patches().len()), (0, 1));
    // No controller serves the request.
    let (code, text) = world.ask(&["refresh", "storefront", "--wait", "1s"]).await.unwrap();
    assert!(code == 1 && text.contains("has not fetched"), "{text}");
    world.serve_refreshes();
    let (code, text) = world.ask(&["refresh", "storefront", "--wait", "30s"]).await.unwrap();
    assert!(code == 0 && text.contains(&world.revisions[1]), "{text}");
}

fn pod(name: &str, state: &Value) -> Value {
    json!({
        "metadata": {
            "name": name, "namespace": "shop", "annotations": {"remora.dev/inject": "storefront"},
            "labels": {"remora.dev/sidecar": "injected"},
        },
        "spec": {"nodeName": "n1", "containers": [], "initContainers": [{
            "name": "remora", "restartPolicy": "Always", "ports": [{"name": "remora-admin", "containerPort": 4778}],
        }]},
        "status": {"phase": "Running", "initContainerStatuses": [
            {"name": "remora", "image": "", "imageID": "", "ready": true, "restartCount": 0, "state": state},
        ]},
    })
}

fn list(items: &[Value]) -> Value {
    json!({"metadata": {}, "items": items})
}

#[tokio::test]
async fn pods_are_asked_through_the_api_server() {
    let world = world();
    let serving = |revision: &str| {
        Value::String(format!(
            "remora_sidecar_revision_info{{environment=\"storefront\",revision=\"{revision}\"}} 1\n\
             remora_sidecar_last_swap_timestamp_seconds{{environment=\"storefront\"}} 1800000000\n"
        ))
    };
    let running = json!({"running": {}});
    world.put(PODS, list(&[pod("web-1", &running), pod("web-2", &running)]));
    world.put(&format!("{PODS}/web-1:4778/proxy/metrics"), serving(&world.revisions[1]));
    world.put(&format!("{PODS}/web-2:4778/proxy/metrics"), serving(&world.revisions[0]));
    let (code, json) = world.ask(&["pods", "storefront", "-o", "json"]).await.unwrap();
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((code, &json["pods"][0]["state"], &json["pods"][1]["state"]), (1, &json!("current"), &json!("behind")));
    world.put(PODS, list(&[pod("web-1", &running)]));
    assert_eq!(world.ask(&["pods", "storefront"]).await.unwrap().0, 0);
    let mut testing = pod("web-1", &running);
    testing["spec"]["initContainers"][0]["args"] =
        json!(["--await", "10s", "--overrides", r#"{"dark mode":{"enabled":true},"banner":{"value":"x"}}"#]);
    world.put(PODS, list(&[testing]));
    let (code, text) = world.ask(&["pods", "storefront"]).await.unwrap();
    assert!(code == 0 && text.contains("\nweb-1: overrides flags: banner, dark mode\n"), "{text}");
    let (_, json) = world.ask(&["pods", "storefront", "-o", "json"]).await.unwrap();
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["pods"][0]["overrides"], json!(["banner", "dark mode"]));
    assert_eq!(json["pods"][0].get("overrideKey"), None);
    let mut accepting = pod("web-1", &running);
    accepting["spec"]["volumes"] =
        json!([{"name": "data"}, {"name": "override-key-remora", "secret": {"secretName": "tests"}}]);
    accepting["spec"]["initContainers"][0]["args"] = json!(["--override-key", "/var/run/remora-override-key/key"]);
    world.put(PODS, list(&[accepting]));
    let (code, text) = world.ask(&["pods", "storefront"]).await.unwrap();
    let line = "\nweb-1: accepts signed overrides in requests, with the key of Secret \"tests\"\n";
    assert!(code == 0 && text.contains(line), "{text}");
    let (_, json) = world.ask(&["pods", "storefront", "-o", "json"]).await.unwrap();
    assert_eq!(serde_json::from_str::<Value>(&json).unwrap()["pods"][0]["overrideKey"], "tests");
    world.refuse(&format!("{PODS}/web-1:4778/proxy/metrics"));
    let (code, text) = world.ask(&["pods", "storefront"]).await.unwrap();
    assert!(code == 3 && text.contains("missing right: get pods/proxy in namespace shop"), "{text}");
}

#[tokio::test]
async fn overrides_are_signed_with_the_key_of_a_secret() {
    const SECRETS: &str = "/api/v1/namespaces/shop/secrets";
    let world = world();
    let secret = |key: &[u8]| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "tests"}, "data": {"key": BASE64.encode(key)}});
    world.put(&format!("{SECRETS}/tests"), secret(&[b"0123456789abcdef".repeat(2), b"\n".to_vec()].concat()));
    let flags = r#"{"b\u00e4nner": {"value": "x"}}"#;
    let sign = async |more: &[&str]| {
        let arguments: Vec<&str> = ["sign", "storefront"].iter().chain(more).copied().collect();
        world.ask(&arguments).await
    };
    let (code, text) = sign(&[flags, "--secret", "tests", "--for", "2m"]).await.unwrap();
    let value = text.strip_prefix("X-Remora-Override: ").unwrap().trim_end().to_owned();
    let parts: Vec<&str> = value.splitn(3, ' ').collect();
    assert_eq!((code, parts[2]), (0, r#"{"b\u00e4nner":{"value":"x"}}"#));
    let left = parts[0].parse::<i64>().unwrap() - jiff::Timestamp::now().as_second();
    assert!((60..=120).contains(&left), "{left}");
    let (_, json) = sign(&[flags, "--secret", "tests", "-o", "json"]).await.unwrap();
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["header"], &json["environment"]), (&json!("X-Remora-Override"), &json!("storefront")));

    let long = format!(r#"{{"a": {{"value": "{}"}}}}"#, "x".repeat(4050));
    for (arguments, expected) in [
        (
            [flags, "--secret", "none", "--for", "1h"],
            "has no Secret \"none\" with 32 to 256 bytes under the name \"key\"",
        ),
        ([flags, "--secret", "tests", "--for", "169h"], "--for must be from 1s to 168h"),
        ([flags, "--secret", "tests", "--for", "500ms"], "--for must be from 1s to 168h"),
        (["banner=on", "--secret", "tests", "--for", "1h"], "must be JSON of at most 16 flags"),
        ([&long, "--secret", "tests", "--for", "1h"], "at most 4096 are accepted"),
    ] {
        let failure = sign(&arguments).await.unwrap_err();
        assert!(failure.exit_code() == 2 && failure.to_string().contains(expected), "{failure}");
    }
    world.put(&format!("{SECRETS}/tests"), secret(b"too short"));
    let failure = sign(&[flags, "--secret", "tests"]).await.unwrap_err();
    assert!(failure.to_string().contains("with 32 to 256 bytes"), "{failure}");
    world.refuse(&format!("{SECRETS}/tests"));
    let failure = sign(&[flags, "--secret", "tests"]).await.unwrap_err();
    assert!(failure.to_string().contains("missing right: get secrets in namespace shop"), "{failure}");
}

#[tokio::test]
async fn flags_have_the_uses_that_running_pods_counted() {
    let world = world();
    let counted = |uses: Value| Value::String(json!({"process": "p", "ageMs": 7, "uses": uses}).to_string());
    let running = json!({"running": {}});
    let waiting = json!({"waiting": {"reason": "ImagePullBackOff"}});
    world.put(PODS, list(&[pod("web-1", &running), pod("web-2", &running), pod("web-3", &waiting)]));
    world.put(&format!("{PODS}/web-1:4778/proxy/uses/storefront"), counted(json!({"banner": 40, "gone": 1})));
    world.put(&format!("{PODS}/web-2:4778/proxy/uses/storefront"), counted(json!({"banner": 2})));
    let (code, text) = world.ask(&["flags", "storefront", "-o", "json"]).await.unwrap();
    let json: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((code, &json["uses"]), (0, &json!({"pods": 2, "answered": 2})));
    assert_eq!((&json["flags"][0]["uses"], &json["flags"][1]["uses"]), (&json!(42), &json!(0)));
    let idle = json!([{"flag": "banner", "since": "2026-10-01"}, {"flag": "fresh", "since": "2026-10-02"}]);
    world.edit("/apis/remora.dev/v1alpha1/namespaces/shop/featureenvironments/storefront", |object| {
        object["status"]["idleFlags"] =
            json!({"since": "2026-10-01", "until": "2026-11-22", "count": 2, "unused": 0, "flags": idle});
    });
    world.remove(&format!("{PODS}/web-2:4778/proxy/uses/storefront"));
    let (_, text) = world.ask(&["flags", "storefront"]).await.unwrap();
    let line = |start: &str| text.lines().find(|line| line.starts_with(start)).unwrap();
    assert!(line("banner").contains("   40") && line("fresh").contains("   none since 2026-10-02"), "{text}");
    assert!(line("uses: ").starts_with("uses: as 1 of 2 running pods counted them"), "{text}");
    // Without rights on pods, the flags are still listed.
    world.refuse(PODS);
    let (code, text) = world.ask(&["flags", "storefront"]).await.unwrap();
    assert!(code == 0 && text.contains("missing right: list pods in namespace shop"), "{text}");
    assert!(text.contains(": 2 flags\n"), "{text}");
}

#[tokio::test]
async fn missing_right_is_named() {
    let world = world();
    world.refuse("/api/v1/namespaces/shop/configmaps/remora-storefront-v3-core");
    let refused = world.ask(&["flags", "storefront"]).await.unwrap_err();
    assert_eq!(refused.exit_code(), 3);
    assert!(refused.to_string().starts_with("missing right: get configmaps in namespace shop"), "{refused}");
}

#[tokio::test]
async fn unknown_environment_lists_known_ones() {
    let unknown = world().ask(&["flags", "gone"]).await.unwrap_err();
    assert!(matches!(&unknown, Failure::Usage(message) if message.contains("it has storefront")), "{unknown}");
    let absent = World::default().ask(&["flags", "storefront"]).await.unwrap_err();
    assert!(matches!(absent, Failure::NotInstalled), "{absent}");
}

#[tokio::test]
async fn healthy_cluster_has_no_finding() {
    let world = world();
    world.install();
    let (code, text) = world.ask(&["check", "--only-namespace"]).await.unwrap();
    assert!(code == 0 && text.ends_with("0 errors, 0 warnings, 0 not checked\n"), "{text}");
    for part in [
        "API server",
        "Deployment remora-controller",
        "Lease",
        "MutatingWebhookConfiguration",
        "pod webhook-1",
        "dry run",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// A release of another name has a Lease of its own, and the chart's values choose the port of the webhook's metrics.
#[tokio::test]
async fn lease_and_port_of_metrics_are_those_of_the_release() {
    let world = world();
    world.install();
    let controller = json!({"name": "controller", "args": ["controller", "--lease=remora-other-controller"]});
    world.edit(world::DEPLOYMENTS, |deployments| {
        deployments["items"][0]["spec"]["template"] = json!({"spec": {"containers": [controller]}});
    });
    world.rename(world::LEASE, &world::LEASE.replace("remora-controller", "remora-other-controller"));
    let ports = json!([{"name": "webhook", "containerPort": 9443}, {"name": "admin", "containerPort": 9080}]);
    world.edit(world::SYSTEM_PODS, |pods| {
        pods["items"][0]["spec"] = json!({"containers": [{"name": "webhook", "ports": ports}]});
    });
    let metrics = |port: u16| format!("{}/webhook-1:{port}/proxy/metrics", world::SYSTEM_PODS);
    world.rename(&metrics(8080), &metrics(9080));
    let (code, text) = world.ask(&["check", "--only-namespace"]).await.unwrap();
    assert!(code == 0 && text.contains("Lease remora-system/remora-other-controller"), "{text}");
}

#[tokio::test]
async fn registration_of_another_release_is_left_out() {
    let world = world();
    world.install();
    world.edit(world::REGISTRATIONS, |registrations| {
        let mut other = registrations["items"][0].clone();
        other["metadata"]["name"] = json!("remora-other");
        // The CA certificate of the registration is missing, which is a fault.
        other["webhooks"][0]["clientConfig"] = json!({"service": {"name": "w", "namespace": "other"}});
        registrations["items"][0]["webhooks"][0]["clientConfig"]["service"] =
            json!({"name": "remora-webhook", "namespace": "remora-system"});
        registrations["items"].as_array_mut().unwrap().push(other);
    });
    let (code, text) = world.ask(&["check", "--only-namespace"]).await.unwrap();
    assert!(code == 0 && !text.contains("remora-other"), "{text}");
}

/// After an upgrade, sidecars keep their image until somebody restarts their workload. That is no fault.
#[tokio::test]
async fn workloads_with_image_of_earlier_installation_are_listed() {
    let world = world();
    world.install();
    let owned = |name: &str, image: &str, kind: &str, owner: &str, labels: &Value| {
        let mut pod = pod(name, &json!({"running": {}}));
        pod["spec"]["initContainers"][0]["image"] = json!(image);
        pod["metadata"]["labels"] = labels.clone();
        pod["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "apps/v1", "kind": kind, "name": owner, "uid": "u", "controller": true}]);
        pod
    };
    let of_template = json!({"pod-template-hash": "5d4f"});
    let pods = [
        owned("web-5d4f-a", "sidecar:1", "ReplicaSet", "web-5d4f", &of_template),
        owned("new-5d4f-a", "sidecar:2", "ReplicaSet", "new-5d4f", &of_template),
        owned("queue-0", "sidecar:1", "StatefulSet", "queue", &json!({})),
    ];
    world.put(PODS, list(&pods));
    let (code, text) = world.ask(&["check", "--only-namespace"]).await.unwrap();
    let line = "note     Deployment shop/web, StatefulSet shop/queue: sidecar image sidecar:1 in 2 pods, and new pods get sidecar:2\n";
    assert!(code == 0 && text.contains(line) && !text.contains("shop/new"), "{text}");

    // Without the dry run, the webhook's argument names the image.
    world.edit(world::DEPLOYMENTS, |deployments| {
        let webhook = json!({"name": "webhook", "args": ["webhook", "--sidecar-image=sidecar:1"]});
        deployments["items"][1]["spec"]["template"] = json!({"spec": {"containers": [webhook]}});
    });
    let (code, text) = world.ask(&["check", "--only-namespace", "--no-dry-run"]).await.unwrap();
    let line = "note     Deployment shop/new: sidecar image sidecar:2 in 1 pod, and new pods get sidecar:1\n";
    assert!(code == 0 && text.contains(line), "{text}");
}

#[tokio::test]
async fn pods_of_excluded_namespace_are_no_fault() {
    let world = world();
    world.install();
    let mut bare = pod("web-1", &json!({"running": {}}));
    bare["spec"] = json!({"containers": [{"name": "web"}]});
    world.put(PODS, list(&[bare]));
    assert_eq!(world.ask(&["check", "--only-namespace"]).await.unwrap().0, 1);
    let labels = json!({"remora.dev/admission": "disabled"});
    world.put("/api/v1/namespaces/shop", json!({"metadata": {"name": "shop", "labels": labels}}));
    assert_eq!(world.ask(&["check", "--only-namespace"]).await.unwrap().0, 0);
}

#[tokio::test]
async fn each_broken_part_is_found() {
    type Break = fn(&World);
    let table: [(&str, u8, Break); 13] = [
        ("it has no Deployment of Remora's controller", 1, |world| world.put(world::DEPLOYMENTS, list(&[]))),
        ("Lease remora-system/remora-controller: it does not exist", 1, |world| world.remove(world::LEASE)),
        ("neither a MutatingWebhookConfiguration nor", 1, |world| world.put(world::REGISTRATIONS, list(&[]))),
        ("webhook's certificate, pod webhook-1: it expired at", 1, |world| {
            world.put_webhook_metrics(1_700_000_000, world::AUTHORITY_EXPIRES);
        }),
        ("is not in the CA bundle of the registration", 1, |world| {
            world.put_webhook_metrics(world::AUTHORITY_EXPIRES, 2_000_000_000);
        }),
        ("webhook's certificate, Secret remora-system/tls: it has no certificate", 1, |world| {
            let volume = json!({"name": "certificate", "secret": {"secretName": "tls"}});
            world.edit(world::DEPLOYMENTS, |deployments| {
                deployments["items"][1]["spec"]["template"] = json!({"spec": {"containers": [], "volumes": [volume]}});
            });
        }),
        ("missing right: get pods/proxy in namespace remora-system", 3, |world| {
            world.refuse(&format!("{}/webhook-1:8080/proxy/metrics", world::SYSTEM_PODS));
        }),
        ("in namespace shop the controller may not list pods, watch pods, patch pods", 1, |world| {
            world.withhold("pods");
        }),
        ("missing right: create subjectaccessreviews.authorization.k8s.io in the cluster", 3, |world| {
            world.refuse(world::REVIEWS);
        }),
        ("is admitted without a sidecar", 1, |world| world.admit_without_sidecar()),
        ("the pod asks for flags and has no sidecar", 1, |world| {
            let mut bare = pod("web-1", &json!({"running": {}}));
            bare["spec"]["initContainers"] = json!([]);
            bare["spec"]["containers"] = json!([{"name": "web"}]);
            world.put(PODS, list(&[bare]));
        }),
        ("100 of 100 count/configmaps are used", 1, |world| {
            let amounts = json!({"count/configmaps": "100"});
            let metadata = json!({"name": "few", "namespace": "shop"});
            let quota = json!({"metadata": metadata, "status": {"hard": amounts, "used": amounts}});
            world.put("/api/v1/namespaces/shop/resourcequotas", list(&[quota]));
        }),
        ("missing right: list deployments.apps in namespace remora-system", 3, |world| {
            world.refuse(world::DEPLOYMENTS);
        }),
    ];
    for (line, expected, break_it) in table {
        let world = world();
        world.install();
        break_it(&world);
        let (code, text) = world.ask(&["check", "--only-namespace"]).await.unwrap();
        assert!(code == expected && text.contains(line), "{line}: {code}\n{text}");
        assert!(expected == 3 || text.contains("         do: "), "{text}");
    }
}
