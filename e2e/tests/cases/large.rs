//! Environments that are larger than a pod's volume layout or a pod's memory limit allows.

use std::time::Duration;

use http::Method;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{DeleteParams, DynamicObject, ListParams};
use remora_e2e::harness::{App, Case, PodPort, eventually, published, say, storefront, until, with_namespace};
use serde_json::{Value, json};

/// Number of identities with values of 18 kB each: 9 MB in total, which take sixteen objects.
const MANY: usize = 500;
const CAP: Duration = Duration::from_secs(120);
/// Longest wait for the status of the pods. The controller asks a pod that is silent on a busy machine again after five
/// minutes.
const ASKED_AGAIN: Duration = Duration::from_secs(400);

/// Returns the storefront document with a distinct value for each of this many identities.
fn laden(case: &Case, identities: usize) -> Value {
    let mut document = storefront(&case.client_key(), identities);
    for (number, identity) in document["identity_overrides"].as_array_mut().into_iter().flatten().enumerate() {
        let own = format!("{number:06}");
        identity["identity_features"][0]["feature_state_value"] = json!(own.repeat(3_000));
    }
    document
}

/// Returns the storefront document with a changed flag, and with so many values that its core takes three parts.
fn grown(case: &Case) -> Value {
    let mut document = storefront(&case.client_key(), 0);
    document["feature_states"][0]["enabled"] = json!(true);
    document["feature_states"][0]["feature_state_value"] = json!("grown");
    let features = document["feature_states"].as_array_mut();
    // The core has each value twice: in the context and in the answers.
    features.into_iter().for_each(|features| {
        for number in 0..60 {
            let mut feature = features.last().cloned().unwrap_or_default();
            feature["django_id"] = json!(1_000 + number);
            feature["feature"]["id"] = json!(1_000 + number);
            feature["feature"]["name"] = json!(format!("laden-{number}"));
            feature["feature_state_value"] = json!(format!("{number:06}").repeat(3_000));
            features.push(feature);
        }
    });
    document
}

fn files(environment: &DynamicObject) -> Option<u64> {
    environment.data.pointer("/status/delivery/overridesFiles").and_then(Value::as_u64)
}

/// Returns the beginning of an identity's own value, as the pod answers.
async fn own_value(pod: &PodPort, key: &str, number: usize) -> anyhow::Result<Option<String>> {
    let reply = pod.ask(Method::GET, &format!("/api/v1/identities/?identifier=user-{number}"), Some(key), None).await?;
    let answer: Value = serde_json::from_str(&reply.body)?;
    let flags = answer["flags"].as_array().into_iter().flatten();
    let banner = flags.into_iter().find(|flag| flag["feature"]["name"] == "banner").cloned().unwrap_or_default();
    Ok(banner["feature_state_value"].as_str().and_then(|value| value.get(..6)).map(str::to_owned))
}

/// The environment needs more objects than the volumes of running pods name. These pods keep what they have and are
/// reported; new pods have everything.
#[tokio::test]
async fn overrides_that_outgrow_volume_need_restart() -> anyhow::Result<()> {
    with_namespace(async |case| {
        case.storefront().await?;
        let before = case.pod(&App::new("before").inject("storefront")).await?;
        case.upstream.serve(&case.server_key(), &laden(&case, MANY)).await?;
        let many = |environment: &DynamicObject| files(environment) == Some(16);
        until(&case.environments(), "storefront", "sixteen objects have overrides", CAP, many).await?;
        let ours = ListParams::default().labels("remora.dev/environment=storefront");
        let names: Vec<String> = case
            .api::<ConfigMap>()
            .list_metadata(&ours)
            .await?
            .items
            .into_iter()
            .filter_map(|map| map.metadata.name)
            .collect();
        let count = names.iter().filter(|name| name.starts_with(&published("storefront", "overrides-"))).count();
        anyhow::ensure!(count == 16, "{names:?}");

        let after = case.pod(&App::new("after").inject("storefront")).await?;
        let key = case.client_key();
        // A kubelet on a busy node may read only some of the objects at first, and the next read may come later than
        // the application's own wait.
        eventually("identities of all objects have their own values", CAP, async || {
            for number in (0..MANY).step_by(7) {
                let own = own_value(&after, &key, number).await?;
                anyhow::ensure!(own == Some(format!("{number:06}")), "user-{number} has {own:?}");
            }
            Ok(Some(()))
        })
        .await?;
        anyhow::ensure!(own_value(&after, &key, MANY).await?.as_deref() == Some("Welcom"), "nobody's own value");

        let told = |environment: &DynamicObject| {
            let pods = &environment.data["status"]["pods"];
            let problem = pods["problem"].as_str().unwrap_or_default();
            pods["behind"] == 1
                && problem.contains("1 pod (before): the volume names fewer than the 16 published overrides objects")
        };
        until(&case.environments(), "storefront", "it is said which pod has to be restarted", ASKED_AGAIN, told)
            .await?;
        // The pod keeps everything that it had.
        for number in 0..3 {
            let reply = before
                .ask(Method::GET, &format!("/api/v1/identities/?identifier=user-{number}"), Some(&key), None)
                .await?;
            anyhow::ensure!(reply.body.contains(&format!("for {number}")), "{}", reply.body);
        }
        Ok(())
    })
    .await
}

/// The core needs more objects than the volume of a running pod names. The published revision stays until the pod is
/// replaced. A pod that was admitted since then has room, and takes up the parts as a whole.
#[tokio::test]
async fn core_that_outgrows_volume_is_withheld_until_pod_is_replaced() -> anyhow::Result<()> {
    with_namespace(async |case| {
        case.storefront().await?;
        let before = case.pod(&App::new("before").inject("storefront")).await?;
        case.upstream.serve(&case.server_key(), &grown(&case)).await?;
        case.condition("storefront", "Published", "False", Some("PodsWithoutRoom")).await?;
        case.condition("storefront", "Ready", "True", Some("LastGood")).await?;
        case.answer(&before, "the flag as it was", |answer| answer["value"] != "grown").await?;

        let after = case.pod(&App::new("after").inject("storefront")).await?;
        case.answer(&after, "the flag as it was", |answer| answer["value"] != "grown").await?;
        case.api::<Pod>().delete(before.pod(), &DeleteParams::default()).await?;
        case.condition("storefront", "Published", "True", Some("Published")).await?;
        case.answer(&after, "the flag of the core in parts", |answer| answer["value"] == "grown").await?;
        let environment = case.environments().get("storefront").await?;
        let objects = environment.data["status"]["objects"].to_string();
        let part = published("storefront", "core-a-02");
        anyhow::ensure!(objects.contains(&part), "{objects}");

        // The next revision goes to the other set, and the pod follows.
        case.flip("storefront", "checkout", &json!({"enabled": true, "value": "flipped"})).await?;
        case.answer(&after, "the flipped flag", |answer| answer["value"] == "flipped").await?;
        let environment = case.environments().get("storefront").await?;
        let objects = environment.data["status"]["objects"].to_string();
        anyhow::ensure!(objects.contains(&published("storefront", "core-b-02")), "{objects}");
        let history: remora_e2e::app::History = after.get("/watch").await?;
        anyhow::ensure!(history.failed == 0, "{history:?}");
        Ok(())
    })
    .await
}

/// The volume is a tmpfs of the size of the pod's memory limits, and an update needs twice the snapshot's size. The
/// kubelet's first update fails, and its later mount never reaches the running container. The operator notifies the pod
/// again and reports it with the action to take; a pod with a higher limit follows.
#[tokio::test]
async fn pod_without_room_for_update_is_reported() -> anyhow::Result<()> {
    with_namespace(async |case| {
        case.upstream.serve(&case.server_key(), &laden(&case, MANY)).await?;
        case.secret("flagsmith", &case.server_key()).await?;
        case.environment("storefront", case.flagsmith()).await?;
        case.condition("storefront", "Ready", "True", None).await?;
        let limited = json!({"requests": {"cpu": "5m", "memory": "4Mi"}, "limits": {"memory": "8Mi"}});
        let cramped =
            App::new("cramped").inject("storefront").resources(limited).annotate("remora.dev/memory-limit", "8Mi");
        let cramped = case.pod(&cramped).await?;
        let roomy = case.pod(&App::new("roomy").inject("storefront")).await?;
        case.flip("storefront", "checkout", &json!({"enabled": true, "value": "flipped"})).await?;
        case.answer(&roomy, "the flipped flag", |answer| answer["value"] == "flipped").await?;

        let told = |environment: &DynamicObject| {
            let pods = &environment.data["status"]["pods"];
            let problem = pods["problem"].as_str().unwrap_or_default();
            pods["behind"] == 1 && problem.contains("1 pod (cramped): the memory limits leave")
        };
        until(&case.environments(), "storefront", "it is said which pod cannot follow, and why", ASKED_AGAIN, told)
            .await?;
        let pod = case.api::<Pod>().get_metadata(cramped.pod()).await?;
        let annotations = pod.metadata.annotations.unwrap_or_default();
        let told = annotations.get("remora.dev/revision.storefront").cloned().unwrap_or_default();
        anyhow::ensure!(told.contains(' '), "it was told once only: {told}");
        let metrics = case.cluster.operator("controller").await?;
        let series = format!(
            r#"remora_environment_pods{{namespace="{}",environment="storefront",state="behind"}} 1"#,
            case.namespace
        );
        eventually(&format!("a metric says {series}"), CAP, async || {
            for pod in &metrics {
                if pod.text("/metrics").await?.lines().any(|line| line == series) {
                    return Ok(Some(()));
                }
            }
            Ok(None)
        })
        .await?;
        let events: kube::Api<k8s_openapi::api::events::v1::Event> = case.api();
        let event = eventually("there is an Event PodsBehind", CAP, async || {
            let all = events.list(&ListParams::default()).await?;
            Ok(all.items.into_iter().find(|event| event.reason.as_deref() == Some("PodsBehind")))
        })
        .await?;
        let history: remora_e2e::app::History = cramped.get("/watch").await?;
        anyhow::ensure!(history.failed == 0, "{history:?}");
        say(&format!("a pod without room: {}", event.note.unwrap_or_default()));
        Ok(())
    })
    .await
}
