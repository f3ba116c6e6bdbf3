//! Injection by admission policies has the same effect as the webhook: dry runs through the API server check both
//! against the same pods, one installation after the other.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Context as _;
use http_body_util::BodyExt as _;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, Patch, PatchParams};
use kube::client::Body;
use remora_e2e::harness::{App, Case, Release, SYSTEM, alone_in_namespace, eventually, say};
use serde_json::{Value, json};

use super::golden::{Becomes, Golden, NAMESPACE, REPOSITORY, Settings, Spot, TAG, bounds, table};
use super::incomplete::incomplete;

const CAP: Duration = Duration::from_secs(30);

/// Answer of the API server to a dry run.
struct Answer {
    status: u16,
    object: Value,
    warnings: BTreeSet<String>,
}

async fn dry_run(case: &Case, namespace: &str, pod: &Value) -> anyhow::Result<Answer> {
    let mut pod = pod.clone();
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    let metadata = pod["metadata"].as_object_mut().context("a pod without metadata")?;
    metadata.remove("namespace");
    if !metadata.contains_key("name") {
        metadata.insert("generateName".to_owned(), json!("golden-"));
    }
    let request = http::Request::post(format!("/api/v1/namespaces/{namespace}/pods?dryRun=All"))
        .header("content-type", "application/json")
        .body(Body::from(pod.to_string().into_bytes()))?;
    let response = case.cluster.client.send(request).await?;
    let status = response.status().as_u16();
    let warnings = response.headers().get_all("warning").iter().filter_map(|value| value.to_str().ok());
    let warnings = warnings.map(warning).collect();
    let object = serde_json::from_slice(&response.into_body().collect().await?.to_bytes())?;
    Ok(Answer { status, object, warnings })
}

/// Returns the text of a warning, without the prefix that the API server adds for policies.
fn warning(header: &str) -> String {
    let text = header.strip_prefix("299 - \"").and_then(|text| text.strip_suffix('"')).unwrap_or(header);
    let text = text.replace("\\\"", "\"").replace("\\\\", "\\");
    match text.strip_prefix("Validation failed for ValidatingAdmissionPolicy ") {
        Some(rest) => rest.split_once(": ").map_or_else(String::new, |(_, words)| words.to_owned()),
        None => text,
    }
}

/// Removes what differs between creations and between namespaces.
fn canonical(mut pod: Value) -> Value {
    let is_token = |item: &Value| item["name"].as_str().is_some_and(|name| name.starts_with("kube-api-access-"));
    for member in ["name", "generateName", "namespace", "uid", "creationTimestamp", "managedFields"] {
        if let Some(metadata) = pod["metadata"].as_object_mut() {
            metadata.remove(member);
        }
    }
    let drop_tokens = |list: &mut Value| {
        if let Some(items) = list.as_array_mut() {
            items.retain(|item| !is_token(item));
        }
    };
    drop_tokens(&mut pod["spec"]["volumes"]);
    for list in ["initContainers", "containers"] {
        for container in pod["spec"][list].as_array_mut().into_iter().flatten() {
            drop_tokens(&mut container["volumeMounts"]);
        }
    }
    pod["status"].take();
    pod
}

/// Expected outcome for a pod, as the API server writes it: the expected pod is sent to a namespace without injection.
struct Target {
    golden: Golden,
    pod: Option<Value>,
    /// The API server's own warnings about both pods, for example about a fraction of a byte.
    warnings: BTreeSet<String>,
    /// True if the API server refuses the pod in any case.
    impossible: bool,
}

async fn target(case: &Case, untouched: &str, golden: Golden) -> anyhow::Result<Target> {
    let before = dry_run(case, untouched, &golden.pod).await?;
    let impossible = !(200..300).contains(&before.status);
    let mut warnings = before.warnings;
    let pod = match &golden.becomes {
        Becomes::Pod { pod, .. } if !impossible => {
            let after = dry_run(case, untouched, pod).await?;
            anyhow::ensure!(
                after.status == 201,
                "{}: the pod that is expected is refused: {}",
                golden.name,
                after.object
            );
            warnings.extend(after.warnings);
            Some(canonical(after.object))
        }
        _ => None,
    };
    Ok(Target { golden, pod, warnings, impossible })
}

/// Returns the difference between the actual and the expected outcome.
async fn differs(case: &Case, target: &Target) -> anyhow::Result<Option<String>> {
    let namespace = match target.golden.place {
        Spot::Anywhere => &case.namespace,
        Spot::KubeSystem => "kube-system",
        Spot::Ours => SYSTEM,
    };
    let answer = dry_run(case, namespace, &target.golden.pod).await?;
    Ok(match &target.golden.becomes {
        _ if target.impossible => (200..300).contains(&answer.status).then(|| "admitted".to_owned()),
        Becomes::Refused(words) => {
            let words = words.replace(&format!("of namespace {NAMESPACE} "), &format!("of namespace {namespace} "));
            let said = answer.object["message"].as_str().unwrap_or_default();
            (answer.status != 403 || !said.ends_with(&words))
                .then(|| format!("{} {said}\ninstead of: {words}", answer.status))
        }
        Becomes::Pod { warnings, .. } => {
            let mut said = answer.warnings;
            // Only the webhook checks that the FeatureEnvironment exists.
            said.retain(|warning| !target.warnings.contains(warning) && !warning.starts_with("FeatureEnvironment "));
            let expected: BTreeSet<_> = warnings.iter().cloned().collect();
            let pod = canonical(answer.object);
            if Some(&pod) != target.pod.as_ref() {
                Some(format!("{pod}\ninstead of: {}", target.pod.clone().unwrap_or_default()))
            } else if said != expected {
                Some(format!("warnings {said:?} instead of {expected:?}"))
            } else {
                None
            }
        }
    })
}

/// Waits until the pod's outcome is the expected one.
async fn becomes(case: &Case, target: &Target) -> anyhow::Result<()> {
    eventually(&format!("{} becomes what it should", target.golden.name), CAP, async || {
        differs(case, target).await?.map_or(Ok(Some(())), |difference| Err(anyhow::anyhow!(difference)))
    })
    .await
}

/// Replaces the namespace's annotations.
async fn annotate(case: &Case, before: &Value, annotations: &Value) -> anyhow::Result<()> {
    let mut all: serde_json::Map<_, _> =
        before.as_object().into_iter().flatten().map(|(key, _)| (key.clone(), Value::Null)).collect();
    all.extend(annotations.as_object().cloned().unwrap_or_default());
    let api: Api<Namespace> = Api::all(case.cluster.client.clone());
    let patch = Patch::Merge(json!({"metadata": {"annotations": all}}));
    api.patch(&case.namespace, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Checks the targets with these settings against the current installation, which has them.
async fn hold(case: &Case, targets: &[Target], settings: Settings) -> anyhow::Result<()> {
    let targets = || targets.iter().filter(|target| target.golden.settings == settings);
    // The API server activates each policy separately, within a second or two: one pod for each of them.
    let each = ["bad-annotation", "deployment", "host-network", "values-annotated", "values-none-annotated"];
    for target in targets().filter(|target| each.contains(&target.golden.name.as_str())) {
        becomes(case, target).await?;
    }
    let mut wrong = Vec::new();
    for target in targets().filter(|target| target.golden.defaults.is_empty()) {
        if let Some(difference) = differs(case, target).await? {
            wrong.push(format!("{}: {difference}", target.golden.name));
        }
    }
    anyhow::ensure!(wrong.is_empty(), "{} pods become something else:\n{}", wrong.len(), wrong.join("\n"));
    let mut before = json!({});
    for target in targets().filter(|target| !target.golden.defaults.is_empty()) {
        let annotations = json!(target.golden.defaults);
        annotate(case, &before, &annotations).await?;
        before = annotations;
        // Namespaces come from caches.
        becomes(case, target).await?;
    }
    annotate(case, &before, &json!({})).await
}

/// Returns the values of a release with this kind of injection and these settings.
fn values(case: &Case, by: &str, settings: Settings) -> anyhow::Result<Value> {
    let operator = json!({"repository": case.cluster.repository("remora-operator"), "tag": case.cluster.tag()});
    let sidecar = json!({"repository": REPOSITORY, "tag": TAG});
    let mut values = settings.values()?;
    values["injection"] = json!({"by": by});
    values["image"] = json!({"operator": operator, "sidecar": sidecar});
    Ok(values)
}

#[tokio::test]
async fn webhook_and_policies_patch_every_pod_equally() -> anyhow::Result<()> {
    alone_in_namespace(async |case| {
        let untouched = format!("{}-untouched", case.namespace);
        let labels = json!({"remora.dev/e2e": "case", "remora.dev/admission": "disabled"});
        case.cluster
            .apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": untouched, "labels": labels}}))
            .await?;
        let release = Release::of(&case.cluster);
        let compared = async {
            let mut targets = Vec::new();
            for golden in table()?.into_iter().chain(bounds()?).chain(incomplete()?) {
                let name = golden.name.clone();
                let made = eventually("pods can be asked about", CAP, async || {
                    // A new namespace has no service account at first.
                    let probe = json!({"metadata": {}, "spec": {"containers": [{"name": "a", "image": "a"}]}});
                    Ok((dry_run(&case, &untouched, &probe).await?.status == 201).then_some(()))
                });
                made.await?;
                targets.push(target(&case, &untouched, golden).await.context(name)?);
            }
            let impossible: Vec<_> =
                targets.iter().filter(|target| target.impossible).map(|target| target.golden.name.as_str()).collect();
            // No current API server passes these pods to the webhook.
            anyhow::ensure!(impossible == ["malformed", "unknown-fields"], "{impossible:?}");
            for by in ["AdmissionPolicy", "Webhook"] {
                for settings in Settings::ALL {
                    release.install_with(&values(&case, by, settings)?).await?;
                    let held = hold(&case, &targets, settings).await;
                    held.with_context(|| format!("injection by {by} with {settings:?}"))?;
                }
            }
            say(&format!("{} pods become the same by webhook and by policies", targets.len()));
            anyhow::Ok(())
        };
        let compared = compared.await;
        let api: Api<Namespace> = Api::all(case.cluster.client.clone());
        api.delete(&untouched, &Default::default()).await?;
        compared?;
        release.install().await
    })
    .await
}

#[tokio::test]
async fn pods_get_flags_without_webhook() -> anyhow::Result<()> {
    alone_in_namespace(async |case| {
        case.storefront().await?;
        let release = Release::of(&case.cluster);
        let before = case.pod(&App::new("before").inject("storefront")).await?;
        // The controller becomes ready with the first dry run that adds a sidecar to a pod.
        release.install_with(&json!({"injection": {"by": "AdmissionPolicy"}})).await?;
        let webhooks: Api<MutatingWebhookConfiguration> = Api::all(case.cluster.client.clone());
        anyhow::ensure!(webhooks.get_opt("remora").await?.is_none(), "there is a registration");
        eventually("the webhook's pods are gone", CAP, async || {
            let left = case.cluster.pods(SYSTEM, "app.kubernetes.io/component=webhook").await?;
            Ok(left.is_empty().then_some(()))
        })
        .await?;

        let app = case.pod(&App::new("shop").inject("storefront").restricted()).await?;
        app.text("/first").await?;
        // The API server refuses settings that the pods' volumes do not support.
        for delivery in [json!({"as": "Secret"}), json!({"overridesSlots": 9}), json!({"coreParts": 1})] {
            let patch = Patch::Merge(json!({"spec": {"delivery": delivery}}));
            let refused = case.environments().patch("storefront", &PatchParams::default(), &patch).await.err();
            let words = refused.map(|error| error.to_string()).unwrap_or_default();
            anyhow::ensure!(words.contains("injected by an admission policy"), "{delivery}: {words}");
        }
        for (key, value) in [("overrides", r#"{"banner": {"enabled": true}}"#), ("override-key", "tests")] {
            let asks = App::new(key).inject("storefront").annotate(&format!("remora.dev/{key}"), value);
            let words = case.create_pod(&asks).await.err().map(|error| format!("{error:#}")).unwrap_or_default();
            let expected = "but must be left out where an admission policy injects the sidecar";
            anyhow::ensure!(words.contains(expected), "{key}: {words}");
        }
        case.flip("storefront", "checkout", &json!({"enabled": true, "value": "express"})).await?;
        for pod in [&before, &app] {
            case.answer(pod, "checkout is express", |answer| answer["value"] == "express").await?;
        }
        release.install().await
    })
    .await
}
