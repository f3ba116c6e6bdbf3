//! The additions to an injected pod.

use serde_json::{Value, json};

use super::layout::READABLE;
use super::{
    annotations::ParsedOptions, config::Config, layout::Layout, pod::Pod, resources::resources,
    startup_timeout::StartupTimeout,
};
use crate::api::names::{self, EnvironmentName, sidecar};

/// Everything that injection adds to a pod.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) sidecar: Value,
    pub(super) volumes: Vec<Value>,
    pub(super) variables: Vec<(&'static str, String)>,
    /// Mounts of every container that starts after the sidecar.
    pub(super) mounts: Vec<Value>,
    pub(super) record: String,
    /// Warnings for the pod's author. They do not prevent the injection.
    pub(super) warnings: Vec<String>,
}

impl Plan {
    pub(super) fn new(
        pod: &Pod<'_>,
        request: &ParsedOptions,
        config: &Config,
        layout: impl Fn(&EnvironmentName) -> Layout,
        mut warnings: Vec<String>,
    ) -> Plan {
        let payload =
            request.environments.iter().map(|environment| layout(environment).bytes).max().unwrap_or_default();
        let (resources, more) = resources(pod, request, &config.defaults, payload);
        warnings.extend(more);
        let origin = format!("http://127.0.0.1:{}", request.port);
        let variables = request
            .variables
            .iter()
            .map(|name| match *name {
                sidecar::FLAGSMITH_API_URL => (*name, format!("{origin}/api/v1/")),
                _ => (*name, origin.clone()),
            })
            .collect();
        let snapshots = request.environments.iter().map(|environment| layout(environment).volume(environment));
        let mut volumes: Vec<_> = snapshots.chain([no_token()]).collect();
        volumes.extend(request.socket.then(socket_volume));
        volumes.extend(request.override_key.as_deref().map(override_key_volume));
        let record = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "format": names::FORMAT.to_string(),
            "container": sidecar::CONTAINER,
            "environments": request.environments.iter().map(EnvironmentName::as_str).collect::<Vec<_>>(),
        });
        Plan {
            sidecar: container(pod, request, config, &resources),
            volumes,
            variables,
            mounts: request.socket.then(socket_mount).into_iter().collect(),
            record: record.to_string(),
            warnings,
        }
    }
}

/// Returns the path where the sidecar reads an environment's files.
pub(super) fn mount_path(environment: &EnvironmentName) -> String {
    format!("{}/{environment}", sidecar::SNAPSHOTS)
}

/// Builds the native sidecar container. Kubelet starts it before the containers that follow it and stops it after all
/// of them.
fn container(pod: &Pod<'_>, request: &ParsedOptions, config: &Config, resources: &Value) -> Value {
    let (admin, defaults) = (request.admin_port(), &config.defaults);
    let wait = request.wait.unwrap_or(defaults.wait);
    let mut args = vec![
        "--snapshots".to_owned(),
        sidecar::SNAPSHOTS.to_owned(),
        "--listen".to_owned(),
        format!("127.0.0.1:{}", request.port),
        // All addresses of both families: metrics are scraped from outside the pod.
        "--admin".to_owned(),
        format!("[::]:{admin}"),
        "--await".to_owned(),
        wait.to_string(),
        "--log-level".to_owned(),
        request.log_level.unwrap_or(defaults.log_level).to_owned(),
    ];
    if request.log_json.unwrap_or(defaults.log_json) {
        // Only where it is wanted: a sidecar of an older version does not know the option.
        args.push("--log-json".to_owned());
    }
    if request.socket {
        args.extend(["--listen-unix".to_owned(), sidecar::SOCKET.to_owned()]);
    }
    if let Some(overrides) = &request.flag_overrides {
        args.extend([sidecar::OVERRIDES_OPTION.to_owned(), overrides.argument()]);
    }
    if request.override_key.is_some() {
        let file = format!("{}/{}", sidecar::OVERRIDE_KEY_DIRECTORY, sidecar::OVERRIDE_KEY);
        args.extend([sidecar::OVERRIDE_KEY_OPTION.to_owned(), file]);
    }
    for environment in &request.environments {
        args.extend(["--environment".to_owned(), environment.to_string()]);
    }
    let mut mounts: Vec<_> = request
        .environments
        .iter()
        .map(
            |environment| json!({"name": environment.volume(), "mountPath": mount_path(environment), "readOnly": true}),
        )
        .collect();
    mounts.push(json!({"name": sidecar::NO_TOKEN_VOLUME, "mountPath": TOKEN_PATH, "readOnly": true}));
    mounts.extend(request.socket.then(socket_mount));
    mounts.extend(request.override_key.is_some().then(override_key_mount));
    json!({
        "name": sidecar::CONTAINER,
        "image": config.sidecar_image,
        "imagePullPolicy": config.sidecar_pull_policy,
        "restartPolicy": "Always",
        "args": args,
        "ports": [{"name": sidecar::ADMIN_PORT, "containerPort": admin, "protocol": "TCP"}],
        "resources": resources,
        "startupProbe": startup_probe(admin, wait),
        "securityContext": security_context(pod),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": mounts,
    })
}

/// Builds the startup probe. It delays the application until `/startupz` reports that all of its flags are loaded or
/// that the startup timeout (`--await`) has passed.
///
/// The probe is a command in the container, not an HTTP request from kubelet. If the network plugin of a service mesh
/// redirects a pod's traffic from the start, a request gets no answer before the mesh's proxy runs, and that proxy may
/// wait for the sidecar. The command also repeats its request every few milliseconds, while kubelet would wait a
/// second.
///
/// The sidecar has no readiness probe and no liveness probe: stale flags are no reason to remove the application from
/// its Service, and a restart does not bring missing flags.
fn startup_probe(admin: u16, wait: StartupTimeout) -> Value {
    /// Seconds that the probe allows beyond `--await`. The sidecar answers at the end of `--await` in any case, so only
    /// a sidecar that does not run reaches this limit.
    const MARGIN: u64 = 30;
    json!({
        "exec": {"command": [ENTRYPOINT, "--probe", format!("127.0.0.1:{admin}")]},
        "periodSeconds": 1,
        // The command ends by itself within a second, but starting it can take a moment on a busy node.
        "timeoutSeconds": 5,
        "failureThreshold": wait.seconds() + MARGIN,
    })
}

/// The program in the sidecar's image.
const ENTRYPOINT: &str = "/remora-sidecar";

/// Returns the security context that the `restricted` Pod Security Standard requires. The standard is checked after the
/// webhook, and a violation would refuse the whole pod.
fn security_context(pod: &Pod<'_>) -> Value {
    let mut context = json!({
        "allowPrivilegeEscalation": false,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": true,
        "runAsNonRoot": true,
        "seccompProfile": {"type": "RuntimeDefault"},
    });
    // The image defines its own user. The sidecar does not set `runAsUser`, because some platforms assign users by
    // namespace. In a pod that runs as root, however, the sidecar would run as root too, and `runAsNonRoot` would keep
    // it from starting.
    let pods_user = pod.spec.get("securityContext").and_then(|context| context.get("runAsUser"));
    if pods_user.and_then(Value::as_u64) == Some(0) {
        context["runAsUser"] = json!(IMAGE_USER);
    }
    context
}

/// User ID in the sidecar's image.
const IMAGE_USER: u64 = 65532;

/// Mount path of the service account's token. The API server mounts the token into every container without a mount at
/// this path, including containers that webhooks add.
const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Returns an empty volume that keeps the token out of the sidecar. It is no `emptyDir`, because the cluster autoscaler
/// does not move pods with local storage.
fn no_token() -> Value {
    json!({"name": sidecar::NO_TOKEN_VOLUME, "downwardAPI": {"defaultMode": READABLE}})
}

/// Returns the volume of the Unix socket. It is in memory, because the cluster autoscaler moves such pods; the socket
/// uses no space.
fn socket_volume() -> Value {
    json!({"name": sidecar::SOCKET_VOLUME, "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}})
}

fn socket_mount() -> Value {
    json!({"name": sidecar::SOCKET_VOLUME, "mountPath": sidecar::SOCKET_DIRECTORY})
}

/// Returns the volume of the key that signs overrides. Optional, so that a pod starts before somebody has created the
/// Secret.
fn override_key_volume(secret: &str) -> Value {
    let items = json!([{"key": sidecar::OVERRIDE_KEY, "path": sidecar::OVERRIDE_KEY}]);
    let source = json!({"secretName": secret, "optional": true, "defaultMode": READABLE, "items": items});
    json!({"name": sidecar::OVERRIDE_KEY_VOLUME, "secret": source})
}

fn override_key_mount() -> Value {
    json!({"name": sidecar::OVERRIDE_KEY_VOLUME, "mountPath": sidecar::OVERRIDE_KEY_DIRECTORY, "readOnly": true})
}
