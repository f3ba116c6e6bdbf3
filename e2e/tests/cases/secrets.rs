//! Snapshots in Secrets, and the switch from ConfigMaps while pods run.

use std::sync::LazyLock;

use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::api::{Api, ListParams};
use remora_e2e::harness::{App, Case, published, storefront, with_namespace};
use serde_json::{Value, json};

static CORE: LazyLock<String> = LazyLock::new(|| published("storefront", "core"));

async fn environment(case: &Case, delivery: &Value) -> anyhow::Result<()> {
    let spec = json!({"source": case.flagsmith(), "refresh": {"interval": "1s"}, "delivery": delivery});
    let metadata = json!({"name": "storefront"});
    case.apply(
        json!({"apiVersion": "remora.dev/v1alpha1", "kind": "FeatureEnvironment", "metadata": metadata, "spec": spec}),
    )
    .await?;
    case.condition("storefront", "Ready", "True", None).await?;
    case.condition("storefront", "Published", "True", None).await
}

/// Returns the numbers of ConfigMaps and Secrets that a pod mounts for the environment.
async fn mounted(case: &Case, pod: &str) -> anyhow::Result<[usize; 2]> {
    let pod = serde_json::to_value(case.api::<Pod>().get(pod).await?)?;
    let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    let sources = volumes.filter_map(|volume| volume["projected"]["sources"].as_array()).flatten();
    let named: Vec<&Value> = sources.collect();
    let count = |kind: &str| {
        let name =
            |source: &&&Value| source[kind]["name"].as_str().is_some_and(|name| name.starts_with("remora-storefront-"));
        named.iter().filter(name).count()
    };
    Ok([count("configMap"), count("secret")])
}

#[tokio::test]
async fn pod_is_served_from_secrets() -> anyhow::Result<()> {
    with_namespace(async |case| {
        case.upstream.serve(&case.server_key(), &storefront(&case.client_key(), 3)).await?;
        case.secret("flagsmith", &case.server_key()).await?;
        environment(&case, &json!({"as": "Secret"})).await?;
        let secret = case.api::<Secret>().get(&CORE).await?;
        anyhow::ensure!(secret.type_.as_deref() == Some("remora.dev/snapshot"), "{:?}", secret.type_);
        anyhow::ensure!(case.api::<ConfigMap>().get_opt(&CORE).await?.is_none(), "there is a ConfigMap, too");

        let app = case.pod(&App::new("shop").inject("storefront")).await?;
        let [maps, secrets] = mounted(&case, app.pod()).await?;
        anyhow::ensure!(maps == 0 && secrets > 1, "{maps} ConfigMaps and {secrets} Secrets are mounted");
        let flipped = json!({"enabled": true, "value": "flipped"});
        case.flip("storefront", "checkout", &flipped).await?;
        case.answer(&app, "the flipped flag", |answer| answer["value"] == "flipped").await?;

        // The operator checks for a deleted object once a minute.
        let api: Api<Secret> = case.api();
        api.delete(&CORE, &Default::default()).await?;
        let back = "the Secret is back";
        let cap = std::time::Duration::from_secs(150);
        remora_e2e::harness::eventually(back, cap, async || Ok(api.get_opt(&CORE).await?.map(|_| ()))).await?;
        anyhow::ensure!(case.api::<ConfigMap>().get_opt(&CORE).await?.is_none(), "there is a ConfigMap, too");
        Ok(())
    })
    .await
}

/// A running pod keeps its mounts. Both this pod and later ones follow changes, and the status reports the pods to
/// restart.
#[tokio::test]
async fn change_from_config_maps_to_secrets_leaves_no_pod_behind() -> anyhow::Result<()> {
    with_namespace(async |case| {
        case.storefront().await?;
        let before = case.pod(&App::new("before").inject("storefront")).await?;
        environment(&case, &json!({"as": "Secret"})).await?;
        let after = case.pod(&App::new("after").inject("storefront")).await?;
        anyhow::ensure!(mounted(&case, before.pod()).await?[1] == 0, "the pod that was there before mounts Secrets");
        anyhow::ensure!(mounted(&case, after.pod()).await?[0] == 0, "the new pod mounts ConfigMaps");
        case.flip("storefront", "checkout", &json!({"enabled": true, "value": "both"})).await?;
        for app in [&before, &after] {
            case.answer(app, "the flipped flag", |answer| answer["value"] == "both").await?;
        }
        let (api, cap) = (case.environments(), std::time::Duration::from_secs(60));
        let told = |environment: &kube::api::DynamicObject| {
            let status = &environment.data["status"];
            let problem = status["pods"]["problem"].as_str().unwrap_or_default();
            status["delivery"]["formerly"] == "ConfigMap"
                && problem.contains("1 pod (before): the volume names ConfigMaps")
        };
        remora_e2e::harness::until(&api, "storefront", "it is said which pod mounts ConfigMaps", cap, told).await?;
        let ours = ListParams::default().labels("remora.dev/environment=storefront");
        anyhow::ensure!(!case.api::<ConfigMap>().list_metadata(&ours).await?.items.is_empty(), "they went too early");
        Ok(())
    })
    .await
}
