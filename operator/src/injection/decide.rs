//! Decides if a pod is injected, and plans the injection.

use std::collections::BTreeMap;

use json_patch::Patch;
use serde_json::{Map, Value};

use super::config::Config;
use super::{
    annotations::{self, Invalid, ParsedOptions, PodOptions},
    layout::{Layout, Layouts},
    patch::patch,
    plan::{Plan, mount_path},
    pod::{Malformed, Pod, is_native_sidecar, name},
    quote::quote,
};
use crate::api::names::{EnvironmentName, annotation, label, sidecar};

/// Largest number of unknown annotations that warnings name. A pod may have more than a hundred thousand of them.
const UNKNOWN_MAX: usize = 8;

/// Context of a pod: its namespace, the layouts of the environments, and if the request is a dry run.
#[derive(Clone, Copy, Debug)]
pub struct PodContext<'a> {
    /// Namespace of the request. The pod itself may not name one, for example if a controller creates it.
    pub namespace: &'a str,
    /// Annotations of the namespace: defaults for all of its pods.
    pub defaults: Option<&'a BTreeMap<String, String>>,
    /// Known layouts of the namespace's environments.
    pub layouts: Option<&'a Layouts>,
    /// True if the request is a dry run, which creates nothing.
    pub dry_run: bool,
    /// True if the namespace has the label that lets its pods override flags.
    pub allows_overrides: bool,
}

impl<'a> PodContext<'a> {
    /// Creates the context of a real request in a namespace without defaults or known layouts.
    pub fn new(namespace: &'a str) -> PodContext<'a> {
        PodContext { namespace, defaults: None, layouts: None, dry_run: false, allows_overrides: false }
    }
}

/// Decision about a pod.
#[derive(Debug)]
pub enum Decision {
    /// The pod is admitted unchanged.
    Skip(SkipReason),
    /// The pod is denied.
    Deny(Refusal),
    /// The pod is injected.
    Inject(Injection),
}

/// Injection of a pod.
#[derive(Debug)]
pub struct Injection {
    /// Operations that add everything that the pod lacks.
    pub patch: Patch,
    /// Warnings for the pod's author. They do not prevent the injection.
    pub warnings: Vec<String>,
}

/// Why a pod is not injected.
#[derive(Debug)]
pub(super) enum NotInjected {
    /// The pod is admitted unchanged.
    Skip(SkipReason),
    /// The pod is denied.
    Deny(Refusal),
}

impl<T: Into<Refusal>> From<T> for NotInjected {
    fn from(refusal: T) -> Self {
        Self::Deny(refusal.into())
    }
}

/// Reason for admitting a pod unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SkipReason {
    /// The pod has no inject annotation. The registration excludes such pods, unless somebody changed it.
    NotRequested,
    /// The pod's annotation is `false`.
    OptedOut,
    /// The pod's namespace is one that the cluster or the operator needs for its start.
    SystemNamespace,
    /// The pod mirrors a manifest file on a node, and the API server cannot change it.
    MirrorPod,
    /// The pod uses the node's loopback: two such pods would need the same port, and any process of the node could send
    /// requests.
    HostNetwork,
    /// The pod runs on Windows, where volumes are not replaced atomically.
    Windows,
    /// The pod has everything that the plan adds.
    AlreadyInjected,
}

impl SkipReason {
    /// Returns the value of the metric's label.
    pub fn label(self) -> &'static str {
        match self {
            SkipReason::NotRequested => "not_requested",
            SkipReason::OptedOut => "opted_out",
            SkipReason::SystemNamespace => "system_namespace",
            SkipReason::MirrorPod => "mirror_pod",
            SkipReason::HostNetwork => "host_network",
            SkipReason::Windows => "windows",
            SkipReason::AlreadyInjected => "already_injected",
        }
    }

    /// Returns the warning for an author who requested a sidecar and gets none.
    pub fn warning(self) -> Option<&'static str> {
        match self {
            SkipReason::NotRequested | SkipReason::OptedOut | SkipReason::AlreadyInjected => None,
            SkipReason::SystemNamespace => Some(
                "the pod gets no Remora sidecar: pods of this namespace are never injected; create it in another one",
            ),
            SkipReason::MirrorPod => Some(
                "the pod gets no Remora sidecar: the API server cannot change a mirror pod; create it as a Pod object",
            ),
            SkipReason::HostNetwork => Some(
                "the pod gets no Remora sidecar: with hostNetwork, its localhost is the node's; remove hostNetwork",
            ),
            SkipReason::Windows => {
                Some("the pod gets no Remora sidecar: Windows is not supported; run the pod on Linux")
            }
        }
    }
}

/// Reason for denying a pod.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// An annotation has an invalid value.
    #[error(transparent)]
    InvalidAnnotation(#[from] Invalid),
    /// A part of the pod has the wrong type.
    #[error(transparent)]
    MalformedPod(#[from] Malformed),
    /// A container or volume has a name that injection uses.
    #[error(
        "the pod has a {what} named {name}, which is a name of the Remora sidecar: rename it, or remove it if the pod is a copy of an injected one"
    )]
    NameTaken {
        /// Kind of the object: `container` or `volume`.
        what: &'static str,
        /// Name of the object, quoted.
        name: String,
    },
    /// The pod overrides flags or lets requests override them, and its namespace does not allow it.
    #[error("annotation {key} overrides flags, which namespace {namespace} does not allow: remove the annotation, or set label {label}: \"true\" on the namespace if its pods are for tests", label = label::ALLOW_OVERRIDES)]
    OverridesNotAllowed {
        /// Key of the annotation.
        key: &'static str,
        /// Name of the namespace, quoted.
        namespace: String,
    },
    /// A container declares a port that the sidecar uses.
    #[error("container {container} declares port {taken}, which the Remora sidecar listens on: set annotation {key} to another port (the sidecar serves flags there, and health and metrics on the next port)", key = annotation::PORT)]
    PortTaken {
        /// Name of that container, quoted.
        container: String,
        /// The port.
        taken: u16,
    },
}

impl Refusal {
    /// Returns the value of the metric's label.
    pub fn label(&self) -> &'static str {
        match self {
            Refusal::InvalidAnnotation(_) => "invalid_annotation",
            Refusal::MalformedPod(_) => "malformed_pod",
            Refusal::NameTaken { .. } => "name_taken",
            Refusal::OverridesNotAllowed { .. } => "overrides_not_allowed",
            Refusal::PortTaken { .. } => "port_taken",
        }
    }
}

/// Decides about the pod of a request.
pub fn decide(pod: &Value, context: &PodContext<'_>, config: &Config) -> Decision {
    match inject(pod, context, config) {
        Ok(injection) => Decision::Inject(injection),
        Err(NotInjected::Skip(reason)) => Decision::Skip(reason),
        Err(NotInjected::Deny(refusal)) => Decision::Deny(refusal),
    }
}

/// Plans the injection, and turns the plan into a patch.
///
/// # Errors
///
/// The pod is admitted unchanged, or denied.
fn inject(pod: &Value, context: &PodContext<'_>, config: &Config) -> Result<Injection, NotInjected> {
    let (parts, request) = parse_request(pod, context, &config.own_namespace)?;
    let warnings = unknown_annotations(parts.annotations);
    let layout = |environment: &EnvironmentName| -> Layout {
        context.layouts.and_then(|known| known.get(environment)).copied().unwrap_or_default()
    };
    let plan = Plan::new(&parts, &request, config, layout, warnings);
    let patch = patch(&parts, &plan);
    if patch.0.is_empty() {
        return Err(NotInjected::Skip(SkipReason::AlreadyInjected));
    }
    Ok(Injection { patch, warnings: plan.warnings })
}

/// Renders warnings about the first [`UNKNOWN_MAX`] unknown annotations, and one about how many others there are.
fn unknown_annotations(all: &Map<String, Value>) -> Vec<String> {
    let mut unknown = annotations::unknown(all);
    let mut warnings: Vec<String> = unknown.by_ref().take(UNKNOWN_MAX).map(unknown_annotation).collect();
    let others = unknown.count();
    if others > 0 {
        warnings.push(format!("{others} more annotations are unknown to Remora and have no effect"));
    }
    warnings
}

/// Renders the warning about an annotation that is most likely misspelt.
pub(super) fn unknown_annotation(key: &str) -> String {
    format!("annotation {} is unknown to Remora and has no effect: correct its name, or remove it", quote(key))
}

/// Parses a pod and its options if it requests a sidecar and can have one.
///
/// # Errors
///
/// The pod is admitted unchanged, or denied.
pub(super) fn parse_request<'a>(
    pod: &'a Value,
    context: &PodContext<'_>,
    own_namespace: &str,
) -> Result<(Pod<'a>, ParsedOptions), NotInjected> {
    let Some(annotations) = pod.pointer("/metadata/annotations").and_then(Value::as_object) else {
        return Err(NotInjected::Skip(SkipReason::NotRequested));
    };
    if !annotations.contains_key(annotation::INJECT) {
        return Err(NotInjected::Skip(SkipReason::NotRequested));
    }
    if annotations::opted_out(annotations) {
        return Err(NotInjected::Skip(SkipReason::OptedOut));
    }
    let parts = Pod::read(pod)?;
    if let Some(reason) = skip_reason(&parts, context, own_namespace) {
        return Err(NotInjected::Skip(reason));
    }
    let options = PodOptions { pod: annotations, namespace: context.namespace, defaults: context.defaults };
    let request = annotations::read(&options)?;
    let overriding = request.flag_overrides.as_ref().map(|_| annotation::OVERRIDES);
    let overriding = overriding.or(request.override_key.as_ref().map(|_| annotation::OVERRIDE_KEY));
    if let Some(key) = overriding.filter(|_| !context.allows_overrides) {
        return Err(Refusal::OverridesNotAllowed { key, namespace: quote(context.namespace) }.into());
    }
    check_names(&parts, &request)?;
    check_ports(&parts, &request)?;
    Ok((parts, request))
}

/// System namespaces. The registration excludes them too, but its selector can be removed, and some platforms remove
/// it.
const SYSTEM_NAMESPACES: [&str; 2] = ["kube-system", "kube-node-lease"];

/// Annotation that kubelet sets on pods that it runs from files.
pub(super) const MIRROR: &str = "kubernetes.io/config.mirror";

/// True if pods of this namespace are never injected, because otherwise the cluster or the operator could not start
/// without the webhook.
pub(super) fn is_system(namespace: &str, own_namespace: &str) -> bool {
    SYSTEM_NAMESPACES.contains(&namespace) || namespace == own_namespace
}

fn skip_reason(pod: &Pod<'_>, context: &PodContext<'_>, own_namespace: &str) -> Option<SkipReason> {
    // Dry runs in the operator's own namespace are allowed: the self-check uses them, and they start no pod.
    let is_self_check = context.dry_run && context.namespace == own_namespace;
    let member = |object: &str, key: &str| pod.spec.get(object).and_then(|object| object.get(key));
    let is_windows = |value: Option<&Value>| value.and_then(Value::as_str) == Some("windows");
    if is_system(context.namespace, own_namespace) && !is_self_check {
        Some(SkipReason::SystemNamespace)
    } else if pod.annotations.contains_key(MIRROR) {
        Some(SkipReason::MirrorPod)
    } else if is_windows(member("os", "name")) || is_windows(member("nodeSelector", "kubernetes.io/os")) {
        Some(SkipReason::Windows)
    } else if pod.spec.get("hostNetwork") == Some(&Value::Bool(true)) {
        Some(SkipReason::HostNetwork)
    } else {
        None
    }
}

/// Checks that the names of the sidecar and of its volumes are unused, or used by an earlier injection.
fn check_names(pod: &Pod<'_>, request: &ParsedOptions) -> Result<(), Refusal> {
    let taken = |what, taken: &str| Refusal::NameTaken { what, name: quote(taken) };
    let namesakes = pod.all_containers().filter(|container| name(container) == Some(sidecar::CONTAINER)).count();
    let position = pod.init_position(sidecar::CONTAINER);
    let ours =
        position.and_then(|position| pod.init?.get(position)).is_some_and(|container| is_ours(container, request));
    match (namesakes, ours) {
        // The container is an earlier injection's, and so are its volumes: the patch adds any missing one.
        (1, true) => Ok(()),
        (0, _) => {
            let volumes = || pod.volumes.into_iter().flatten().filter_map(name);
            let mut names = request
                .environments
                .iter()
                .map(|environment| environment.volume())
                .chain([sidecar::NO_TOKEN_VOLUME.to_owned()])
                .chain(request.socket.then(|| sidecar::SOCKET_VOLUME.to_owned()))
                .chain(request.override_key.as_ref().map(|_| sidecar::OVERRIDE_KEY_VOLUME.to_owned()));
            names
                .find(|name| volumes().any(|volume| volume == name))
                .map_or(Ok(()), |volume| Err(taken("volume", &volume)))
        }
        _ => Err(taken("container", sidecar::CONTAINER)),
    }
}

/// True if an init container with the sidecar's name is the sidecar and serves all requested environments. The image is
/// not compared, because other webhooks rewrite images to those of a mirror.
fn is_ours(container: &Value, request: &ParsedOptions) -> bool {
    let mounts = |path: &str| {
        let mounts = container.get("volumeMounts").and_then(Value::as_array);
        mounts.into_iter().flatten().any(|mount| mount.get("mountPath").and_then(Value::as_str) == Some(path))
    };
    is_native_sidecar(container)
        && request.environments.iter().all(|environment| mounts(&mount_path(environment)))
        && (!request.socket || mounts(sidecar::SOCKET_DIRECTORY))
        && (request.override_key.is_none() || mounts(sidecar::OVERRIDE_KEY_DIRECTORY))
}

/// Checks that no other container declares one of the sidecar's ports. If a container uses such a port without a
/// declaration, the sidecar fails to bind it.
fn check_ports(pod: &Pod<'_>, request: &ParsedOptions) -> Result<(), Refusal> {
    let others = pod.all_containers().filter(|container| name(container) != Some(sidecar::CONTAINER));
    for container in others {
        for port in container.get("ports").and_then(Value::as_array).into_iter().flatten() {
            let tcp = matches!(port.get("protocol").and_then(Value::as_str), None | Some("TCP"));
            let number =
                port.get("containerPort").and_then(Value::as_u64).and_then(|number| u16::try_from(number).ok());
            if let Some(taken) = number.filter(|number| tcp && ([request.port, request.admin_port()].contains(number)))
            {
                return Err(Refusal::PortTaken { container: quote(name(container).unwrap_or_default()), taken });
            }
        }
    }
    Ok(())
}
