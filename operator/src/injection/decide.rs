//! Whether a pod is injected, and with what.

use std::collections::BTreeMap;

use serde_json::Value;

use super::config::Config;
use super::{
    annotations::{self, Invalid, Request, Wishes},
    layout::{Layout, Layouts},
    patch::patch,
    plan::{Plan, mount_path},
    pod::{Malformed, Pod, is_native_sidecar, name},
    quote::quote,
};
use crate::api::names::{EnvironmentName, annotation, sidecar};

/// Where a pod is to be created, and how much in earnest.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The namespace of the request: a controller's pod does not name its own.
    pub namespace: &'a str,
    /// That namespace's annotations, which say for all of its pods what they do not say themselves.
    pub defaults: Option<&'a BTreeMap<String, String>>,
    /// How the namespace's environments are delivered, as far as it is known.
    pub layouts: Option<&'a Layouts>,
    /// Nothing comes of it but an answer.
    pub dry_run: bool,
}

impl<'a> Place<'a> {
    /// A namespace that says nothing, in earnest.
    pub fn new(namespace: &'a str) -> Place<'a> {
        Place { namespace, defaults: None, layouts: None, dry_run: false }
    }
}

/// What is done about a pod.
#[derive(Debug)]
pub enum Decision {
    /// Nothing.
    Skip(Reason),
    /// It is refused.
    Deny(Refusal),
    /// It gets what the plan holds.
    Inject(Box<Plan>),
}

/// Why a pod is left as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It has no annotation of ours. The registration keeps such pods away; a changed one may not.
    NotRequested,
    /// Its annotation says `false`.
    OptedOut,
    /// Its namespace is one that the cluster, or we, cannot start without.
    SystemNamespace,
    /// It mirrors a file on a node, and cannot be changed here.
    MirrorPod,
    /// Its loopback is the node's: two such pods would fight for the port, and any process of the node could ask.
    HostNetwork,
    /// It runs on Windows, where volumes are not replaced atomically.
    Windows,
    /// Nothing is missing.
    AlreadyInjected,
}

impl Reason {
    /// The value of the metric's label.
    pub fn label(self) -> &'static str {
        match self {
            Reason::NotRequested => "not_requested",
            Reason::OptedOut => "opted_out",
            Reason::SystemNamespace => "system_namespace",
            Reason::MirrorPod => "mirror_pod",
            Reason::HostNetwork => "host_network",
            Reason::Windows => "windows",
            Reason::AlreadyInjected => "already_injected",
        }
    }

    /// What to tell an author who asked for a sidecar and gets none.
    pub fn warning(self) -> Option<&'static str> {
        match self {
            Reason::NotRequested | Reason::OptedOut | Reason::AlreadyInjected => None,
            Reason::SystemNamespace => Some("no Remora sidecar: pods of this namespace are never injected"),
            Reason::MirrorPod => Some("no Remora sidecar: a mirror pod cannot be changed"),
            Reason::HostNetwork => Some("no Remora sidecar: the pod has hostNetwork, its localhost is the node's"),
            Reason::Windows => Some("no Remora sidecar: pods on Windows are not supported"),
        }
    }
}

/// Why a pod cannot be admitted.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// An annotation is not what it must be.
    #[error(transparent)]
    InvalidAnnotation(#[from] Invalid),
    /// The pod is not shaped like a pod.
    #[error(transparent)]
    MalformedPod(#[from] Malformed),
    /// A container or volume has one of our names.
    #[error(
        "the pod has a {what} named {name} already, which Remora's sidecar would take: rename it, or remove it if the pod is a copy of an injected one"
    )]
    NameTaken {
        /// Container or volume.
        what: &'static str,
        /// Its name, quoted.
        name: String,
    },
    /// A container serves on one of our ports.
    #[error("container {container} declares port {taken}, which Remora's sidecar serves on: set annotation {key} to another port (flags are answered there, health and metrics on the next one)", key = annotation::PORT)]
    PortTaken {
        /// The other container's name, quoted.
        container: String,
        /// The port of both.
        taken: u16,
    },
}

impl Refusal {
    /// The value of the metric's label.
    pub fn label(&self) -> &'static str {
        match self {
            Refusal::InvalidAnnotation(_) => "invalid_annotation",
            Refusal::MalformedPod(_) => "malformed_pod",
            Refusal::NameTaken { .. } => "name_taken",
            Refusal::PortTaken { .. } => "port_taken",
        }
    }
}

/// The environments whose layouts are to be known before it is decided about the pod; none where it will get none.
pub fn asked_for(pod: &Value, place: &Place<'_>, own_namespace: &str) -> Vec<EnvironmentName> {
    match wanted(pod, place, own_namespace) {
        Ok(Ok((_, request))) => request.environments,
        Ok(Err(_)) | Err(_) => Vec::new(),
    }
}

/// Decides about a pod as it came.
pub fn decide(pod: &Value, place: &Place<'_>, config: &Config) -> Decision {
    match consider(pod, place, config) {
        Ok(Ok(plan)) => Decision::Inject(Box::new(plan)),
        Ok(Err(reason)) => Decision::Skip(reason),
        Err(refusal) => Decision::Deny(refusal),
    }
}

fn consider(pod: &Value, place: &Place<'_>, config: &Config) -> Result<Result<Plan, Reason>, Refusal> {
    let (parts, request) = match wanted(pod, place, &config.own_namespace)? {
        Ok(wanted) => wanted,
        Err(reason) => return Ok(Err(reason)),
    };
    let warnings = annotations::unknown(parts.annotations).map(unknown).collect();
    let layout = |environment: &EnvironmentName| -> Layout {
        place.layouts.and_then(|known| known.get(environment)).copied().unwrap_or_default()
    };
    let plan = Plan::new(&parts, &request, config, layout, warnings);
    if patch(pod, &plan).0.is_empty() {
        return Ok(Err(Reason::AlreadyInjected));
    }
    Ok(Ok(plan))
}

/// Said of an annotation that is most likely misspelt.
pub(super) fn unknown(key: &str) -> String {
    format!("annotation {} is none of Remora's: nothing was done about it", quote(key))
}

/// What a pod asks for, if it can have it.
pub(super) fn wanted<'a>(
    pod: &'a Value,
    place: &Place<'_>,
    own_namespace: &str,
) -> Result<Result<(Pod<'a>, Request), Reason>, Refusal> {
    let Some(annotations) = pod.pointer("/metadata/annotations").and_then(Value::as_object) else {
        return Ok(Err(Reason::NotRequested));
    };
    if !annotations.contains_key(annotation::INJECT) {
        return Ok(Err(Reason::NotRequested));
    }
    if annotations::opted_out(annotations) {
        return Ok(Err(Reason::OptedOut));
    }
    let parts = Pod::read(pod)?;
    if let Some(reason) = impossible(&parts, place, own_namespace) {
        return Ok(Err(reason));
    }
    let wishes = Wishes { pod: annotations, namespace: place.namespace, defaults: place.defaults };
    let request = annotations::read(&wishes)?;
    names_are_free(&parts, &request)?;
    ports_are_free(&parts, &request)?;
    Ok(Ok((parts, request)))
}

/// Namespaces that the registration excludes too; a selector can be edited away, and some platforms do.
const SYSTEM_NAMESPACES: [&str; 2] = ["kube-system", "kube-node-lease"];

/// Set by kubelet on the pods that it runs from files.
pub(super) const MIRROR: &str = "kubernetes.io/config.mirror";

/// Whether pods of this namespace are never injected, as the cluster or the operator could not start without us otherwise.
pub(super) fn is_system(namespace: &str, own_namespace: &str) -> bool {
    SYSTEM_NAMESPACES.contains(&namespace) || namespace == own_namespace
}

fn impossible(pod: &Pod<'_>, place: &Place<'_>, own_namespace: &str) -> Option<Reason> {
    // Nothing starts from a dry run: it is how the operator asks whether pods get their sidecar.
    let asks_only = place.dry_run && place.namespace == own_namespace;
    let member = |object: &str, key: &str| pod.spec.get(object).and_then(|object| object.get(key));
    let is_windows = |value: Option<&Value>| value.and_then(Value::as_str) == Some("windows");
    if is_system(place.namespace, own_namespace) && !asks_only {
        Some(Reason::SystemNamespace)
    } else if pod.annotations.contains_key(MIRROR) {
        Some(Reason::MirrorPod)
    } else if is_windows(member("os", "name")) || is_windows(member("nodeSelector", "kubernetes.io/os")) {
        Some(Reason::Windows)
    } else if pod.spec.get("hostNetwork") == Some(&Value::Bool(true)) {
        Some(Reason::HostNetwork)
    } else {
        None
    }
}

/// Our names are either unused, or used by what we added before.
fn names_are_free(pod: &Pod<'_>, request: &Request) -> Result<(), Refusal> {
    let taken = |what, taken: &str| Refusal::NameTaken { what, name: quote(taken) };
    let namesakes = pod.all_containers().filter(|container| name(container) == Some(sidecar::CONTAINER)).count();
    let position = pod.init_position(sidecar::CONTAINER);
    let ours =
        position.and_then(|position| pod.init?.get(position)).is_some_and(|container| is_ours(container, request));
    match (namesakes, ours) {
        // What is there is ours, down to the volumes: whichever is missing comes back.
        (1, true) => Ok(()),
        (0, _) => {
            let volumes = || pod.volumes.into_iter().flatten().filter_map(name);
            let mut wanted = request
                .environments
                .iter()
                .map(|environment| environment.volume())
                .chain([sidecar::NO_TOKEN_VOLUME.to_owned()])
                .chain(request.socket.then(|| sidecar::SOCKET_VOLUME.to_owned()));
            wanted
                .find(|wanted| volumes().any(|volume| volume == wanted))
                .map_or(Ok(()), |volume| Err(taken("volume", &volume)))
        }
        _ => Err(taken("container", sidecar::CONTAINER)),
    }
}

/// Whether an init container with our name is our sidecar, and serves what the annotation asks for. Its image says
/// nothing: others rewrite images to those of a mirror.
fn is_ours(container: &Value, request: &Request) -> bool {
    let mounts = |path: &str| {
        let mounts = container.get("volumeMounts").and_then(Value::as_array);
        mounts.into_iter().flatten().any(|mount| mount.get("mountPath").and_then(Value::as_str) == Some(path))
    };
    is_native_sidecar(container)
        && request.environments.iter().all(|environment| mounts(&mount_path(environment)))
        && (!request.socket || mounts(sidecar::SOCKET_DIRECTORY))
}

/// No other container declares that it serves where the sidecar does. One that does not declare it is found by the
/// sidecar's failure to bind.
fn ports_are_free(pod: &Pod<'_>, request: &Request) -> Result<(), Refusal> {
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
