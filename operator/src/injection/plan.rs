//! What a pod gets.

use serde_json::{Value, json};

use super::layout::READABLE;
use super::{annotations::Request, config::Config, layout::Layout, pod::Pod, resources::resources};
use crate::api::names::{self, EnvironmentName, sidecar};

/// Everything that an injected pod has more than it came with.
#[derive(Debug)]
pub struct Plan {
    pub(super) sidecar: Value,
    pub(super) volumes: Vec<Value>,
    pub(super) variables: Vec<(&'static str, String)>,
    /// What the containers behind the sidecar mount.
    pub(super) mounts: Vec<Value>,
    pub(super) record: String,
    warnings: Vec<String>,
}

impl Plan {
    /// What the pod's author should know, though it prevents nothing.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    pub(super) fn new(
        pod: &Pod<'_>,
        request: &Request,
        config: &Config,
        layout: impl Fn(&EnvironmentName) -> Layout,
        mut warnings: Vec<String>,
    ) -> Plan {
        let payload =
            request.environments.iter().map(|environment| layout(environment).bytes).max().unwrap_or_default();
        let (resources, more) = resources(pod, request, payload);
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

/// Where the sidecar finds an environment's files.
pub(super) fn mount_path(environment: &EnvironmentName) -> String {
    format!("{}/{environment}", sidecar::SNAPSHOTS)
}

/// The native sidecar: kubelet starts it before the containers behind it and stops it after all of them.
fn container(pod: &Pod<'_>, request: &Request, config: &Config, resources: &Value) -> Value {
    let admin = request.admin_port();
    let mut args = vec![
        "--snapshots".to_owned(),
        sidecar::SNAPSHOTS.to_owned(),
        "--listen".to_owned(),
        format!("127.0.0.1:{}", request.port),
        // Not on loopback: whoever scrapes metrics comes from outside the pod.
        "--admin".to_owned(),
        format!("0.0.0.0:{admin}"),
        "--await".to_owned(),
        request.wait.to_string(),
        "--log-level".to_owned(),
        request.log_level.to_owned(),
    ];
    if request.socket {
        args.extend(["--listen-unix".to_owned(), sidecar::SOCKET.to_owned()]);
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
    json!({
        "name": sidecar::CONTAINER,
        "image": config.sidecar_image,
        "imagePullPolicy": config.sidecar_pull_policy,
        "restartPolicy": "Always",
        "args": args,
        "ports": [{"name": sidecar::ADMIN_PORT, "containerPort": admin, "protocol": "TCP"}],
        "resources": resources,
        "startupProbe": startup_probe(request),
        "securityContext": security_context(pod),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": mounts,
    })
}

/// Holds the application until `/startupz` says that all of its flags are here, or that they were waited for long enough.
///
/// A command in the container rather than a request from kubelet: where a service mesh's network plugin redirects a pod's
/// traffic from its first moment, a request gets no answer before the mesh's proxy is up, which may be waiting for us.
/// And the command asks again every few milliseconds, where kubelet would let a second pass.
/// There is neither a readiness nor a liveness probe: stale flags are no reason to take the application out of its
/// Service, and missing ones are not mended by a restart.
fn startup_probe(request: &Request) -> Value {
    /// Beyond `--await`, after which the sidecar answers in any case: only a sidecar that does not run gets this far.
    const MARGIN: u64 = 30;
    json!({
        "exec": {"command": [ENTRYPOINT, "--probe", format!("127.0.0.1:{}", request.admin_port())]},
        "periodSeconds": 1,
        // The command ends by itself within a second; starting it takes a moment on a busy node.
        "timeoutSeconds": 5,
        "failureThreshold": request.wait.seconds() + MARGIN,
    })
}

/// The program in the sidecar's image.
const ENTRYPOINT: &str = "/remora-sidecar";

/// What the `restricted` Pod Security Standard wants, which is judged after us and would refuse the whole pod.
fn security_context(pod: &Pod<'_>) -> Value {
    let mut context = json!({
        "allowPrivilegeEscalation": false,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": true,
        "runAsNonRoot": true,
        "seccompProfile": {"type": "RuntimeDefault"},
    });
    // The image has a user of its own, and where users are assigned by namespace that one must not be insisted on.
    // A pod that runs as root, however, would make a root of the sidecar, which then may not start.
    let pods_user = pod.spec.get("securityContext").and_then(|context| context.get("runAsUser"));
    if pods_user.and_then(Value::as_u64) == Some(0) {
        context["runAsUser"] = json!(IMAGE_USER);
    }
    context
}

/// The user of the sidecar's image.
const IMAGE_USER: u64 = 65532;

/// Where a container finds the service account's token. The API server adds the token to every container that has no
/// mount there, also to those that webhooks add.
const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// A volume with nothing in it. Not an `emptyDir`: the cluster autoscaler does not move pods with local storage.
fn no_token() -> Value {
    json!({"name": sidecar::NO_TOKEN_VOLUME, "downwardAPI": {"defaultMode": READABLE}})
}

/// Where the socket is made and found. In memory, because the cluster autoscaler moves such pods; it holds no bytes.
fn socket_volume() -> Value {
    json!({"name": sidecar::SOCKET_VOLUME, "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}})
}

fn socket_mount() -> Value {
    json!({"name": sidecar::SOCKET_VOLUME, "mountPath": sidecar::SOCKET_DIRECTORY})
}
