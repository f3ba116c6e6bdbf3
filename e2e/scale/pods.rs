//! Pods as their owner writes them, and with what the webhook adds.

use remora_operator::injection::{Config, Decision, Defaults, PodContext, decide};
use serde_json::{Value, json};

/// Returns a pod that asks for the flags of an environment, as its owner writes it.
pub(crate) fn application(namespace: &str, name: &str, environment: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": namespace, "labels": {"app": environment},
            "annotations": {"remora.dev/inject": environment},
        },
        "spec": {"containers": [{
            "name": "app", "image": "registry.example.org/team/app:1.0.0",
            "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
            "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
            "readinessProbe": {"httpGet": {"path": "/healthz", "port": 8080}},
        }]},
    })
}

/// Adds the sidecar to a pod, as the webhook does.
pub(crate) fn injected(pod: &Value) -> anyhow::Result<Value> {
    let config = Config {
        sidecar_image: "registry.example.org/remora-sidecar:1.0.0".to_owned(),
        sidecar_pull_policy: "IfNotPresent".to_owned(),
        own_namespace: "remora-system".to_owned(),
        defaults: Defaults::default(),
    };
    let Decision::Inject(injection) =
        decide(pod, &PodContext::new(pod["metadata"]["namespace"].as_str().unwrap_or_default()), &config)
    else {
        anyhow::bail!("the pod gets no sidecar: {pod}");
    };
    let mut patched = pod.clone();
    json_patch::patch(&mut patched, &injection.patch)?;
    Ok(patched)
}
