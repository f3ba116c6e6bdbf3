//! Diagnostics of a failed case: all objects of its namespace, and the last log lines of the operator.

use std::fmt::{Display, Write as _};

use k8s_openapi::api::core::v1::{ConfigMap, ContainerState, Event, Pod};
use kube::api::{Api, DynamicObject, ListParams, LogParams};
use kube::core::{ApiResource, GroupVersionKind};

use super::cluster::{Cluster, SYSTEM, say};

/// Prints the diagnostics. If a part cannot be read, the dump says so: the case's own failure matters more.
pub(super) async fn dump(cluster: &Cluster, namespace: &str) {
    let mut text = String::new();
    environments(cluster, namespace, &mut text).await;
    config_maps(cluster, namespace, &mut text).await;
    events(cluster, namespace, &mut text).await;
    pods(cluster, namespace, 60, &mut text).await;
    pods(cluster, SYSTEM, 120, &mut text).await;
    say(&format!("state of namespace {namespace} and of {SYSTEM}:\n{text}"));
}

/// Appends a line; writing to a `String` cannot fail.
fn line(text: &mut String, line: impl Display) {
    let _ = writeln!(text, "{line}");
}

async fn environments(cluster: &Cluster, namespace: &str, text: &mut String) {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("remora.dev", "v1alpha1", "FeatureEnvironment"));
    let api: Api<DynamicObject> = Api::namespaced_with(cluster.client.clone(), namespace, &resource);
    match api.list(&ListParams::default()).await {
        Ok(found) => {
            for environment in found {
                let name = environment.metadata.name.unwrap_or_default();
                line(
                    text,
                    format_args!(
                        "--- FeatureEnvironment {name}: {}",
                        serde_yaml::to_string(&environment.data).unwrap_or_default()
                    ),
                );
            }
        }
        Err(error) => line(text, format_args!("--- no FeatureEnvironments to be had: {error}")),
    }
}

async fn config_maps(cluster: &Cluster, namespace: &str, text: &mut String) {
    let api: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), namespace);
    let Ok(found) = api.list(&ListParams::default()).await else { return };
    for map in found.items.iter().filter(|map| map.metadata.name.as_deref() != Some("kube-root-ca.crt")) {
        let sizes: Vec<_> =
            map.binary_data.iter().flatten().map(|(key, value)| format!("{key}: {} bytes", value.0.len())).collect();
        let metadata = &map.metadata;
        line(
            text,
            format_args!(
                "--- ConfigMap {} {:?} {:?}",
                metadata.name.as_deref().unwrap_or_default(),
                sizes,
                metadata.annotations
            ),
        );
    }
}

async fn events(cluster: &Cluster, namespace: &str, text: &mut String) {
    let api: Api<Event> = Api::namespaced(cluster.client.clone(), namespace);
    let Ok(mut found) = api.list(&ListParams::default()).await else { return };
    found.items.sort_by_key(|event| event.metadata.creation_timestamp.clone());
    for event in found {
        let about = format!(
            "{} {}",
            event.involved_object.kind.unwrap_or_default(),
            event.involved_object.name.unwrap_or_default()
        );
        line(
            text,
            format_args!(
                "--- Event {about}: {}: {}",
                event.reason.unwrap_or_default(),
                event.message.unwrap_or_default()
            ),
        );
    }
}

async fn pods(cluster: &Cluster, namespace: &str, lines: i64, text: &mut String) {
    let api: Api<Pod> = Api::namespaced(cluster.client.clone(), namespace);
    let found = match api.list(&ListParams::default()).await {
        Ok(found) => found,
        Err(error) => return line(text, format_args!("--- no pods of {namespace} to be had: {error}")),
    };
    for pod in found {
        let name = pod.metadata.name.unwrap_or_default();
        let status = pod.status.unwrap_or_default();
        line(
            text,
            format_args!(
                "--- Pod {namespace}/{name}: {} {}",
                status.phase.unwrap_or_default(),
                status.message.unwrap_or_default()
            ),
        );
        let initial = status.init_container_statuses.unwrap_or_default();
        for container in initial.into_iter().chain(status.container_statuses.unwrap_or_default()) {
            line(
                text,
                format_args!(
                    "    {}: {}, restarts {}",
                    container.name,
                    state(container.state),
                    container.restart_count
                ),
            );
            for previous in [true, false] {
                if previous && container.restart_count == 0 {
                    continue;
                }
                let parameters = LogParams {
                    container: Some(container.name.clone()),
                    tail_lines: Some(lines),
                    previous,
                    ..LogParams::default()
                };
                for logged in
                    api.logs(&name, &parameters).await.unwrap_or_else(|error| format!("no log: {error}")).lines()
                {
                    line(text, format_args!("      {}| {logged}", if previous { "before " } else { "" }));
                }
            }
        }
    }
}

fn state(state: Option<ContainerState>) -> String {
    let state = state.unwrap_or_default();
    if let Some(waiting) = state.waiting {
        return format!("waiting, {} {}", waiting.reason.unwrap_or_default(), waiting.message.unwrap_or_default());
    }
    if let Some(ended) = state.terminated {
        return format!(
            "ended with {}, {} {}",
            ended.exit_code,
            ended.reason.unwrap_or_default(),
            ended.message.unwrap_or_default()
        );
    }
    "running".to_owned()
}
