//! Reads what `check` needs. A part that the caller may not read becomes a fact, and the other parts are read all the
//! same.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::{
    ByteString,
    api::{
        admissionregistration::v1::MutatingWebhookConfiguration,
        apps::v1::Deployment,
        coordination::v1::Lease,
        core::v1::{Container, ContainerStatus, Namespace, Pod, ResourceQuota},
        networking::v1::NetworkPolicy,
    },
    apimachinery::pkg::api::resource::Quantity as Amount,
};
use kube::ResourceExt;
use serde_json::json;
use x509_parser::pem::Pem;

use super::{
    Check,
    facts::{
        Deployed, DryRun, Facts, Holder, Installation, LeaseState, Quota, Registration, Requesting, Unread, Workloads,
    },
    rights, serving,
};
use crate::{
    api::{
        FeatureEnvironment, NamespacedName,
        names::{LEASE, annotation, label, sidecar},
    },
    ask::{cluster::Cluster, failure::Failure},
    injection::{PodContext, is_candidate, missing_sidecar, quantity::Quantity},
};

/// Labels of the chart's objects.
const CHART: &str = "app.kubernetes.io/name=remora";
/// Name of the volume with the webhook's certificate, if another program writes it.
const CERTIFICATE_VOLUME: &str = "certificate";
/// Option of a controller that names its Lease.
const LEASE_OPTION: &str = "--lease=";
/// Option of a webhook that names the image of the sidecar.
const IMAGE_OPTION: &str = "--sidecar-image=";
/// Label of a Deployment's pods: the last part of their ReplicaSet's name.
const TEMPLATE_HASH: &str = "pod-template-hash";

/// Reads everything.
///
/// # Errors
/// If the cluster cannot be reached, or does not know FeatureEnvironments, or the caller may not list them.
pub(super) async fn facts(cluster: &Cluster, asked: &Check, now: Timestamp) -> Result<Facts, Failure> {
    let scope = asked.only_namespace.then(|| cluster.namespace());
    let environments: Vec<FeatureEnvironment> = cluster.list(scope, "").await?;
    let mut unread = Vec::new();
    let mut installation = Installation { namespace: asked.system_namespace.clone(), ..Installation::default() };
    installation.api_server = note("API server", cluster.version().await, &mut unread);
    installation.deployments = note("Deployments", deployments(cluster, asked).await, &mut unread);
    let names = lease_names(installation.deployments.as_deref().unwrap_or_default());
    installation.leases = note("Lease", leases(cluster, asked, names).await, &mut unread);
    installation.admission = note("admission", admission(cluster, &asked.system_namespace).await, &mut unread);
    if let (Some(deployments), Some(registrations)) = (&installation.deployments, &installation.admission) {
        let read = serving::read(cluster, &asked.system_namespace, deployments, registrations, now).await;
        installation.serving = note("certificates of the webhook", read, &mut unread).flatten();
    }
    if let Some(deployments) = &installation.deployments {
        let read = rights::read(cluster, &asked.system_namespace, deployments, &environments).await;
        installation.rights = note("rights of the controller", read, &mut unread).flatten();
    }
    if let Some(namespace) = example(&environments, asked) {
        let dry_run = dry_run(cluster, &namespace).await;
        installation.dry_run = note("admission of a pod (dry run)", dry_run, &mut unread).flatten();
    }
    let workloads = workloads(cluster, asked, &environments, scope, &mut unread).await;
    Ok(Facts { installation, environments, workloads, unread })
}

/// Takes what was read, or notes why it was not.
fn note<T>(part: &'static str, read: Result<T, Failure>, unread: &mut Vec<Unread>) -> Option<T> {
    read.map_err(|failure| unread.push(Unread { part, failure })).ok()
}

async fn deployments(cluster: &Cluster, asked: &Check) -> Result<Vec<Deployed>, Failure> {
    let found: Vec<Deployment> = cluster.list(Some(&asked.system_namespace), CHART).await?;
    Ok(found.iter().map(deployed).collect())
}

fn deployed(deployment: &Deployment) -> Deployed {
    let label = |key: &str| deployment.labels().get(key).cloned().unwrap_or_default();
    let component = deployment.spec.selector.match_labels.as_ref();
    let component = component.and_then(|labels| labels.get("app.kubernetes.io/component").cloned());
    let pod = deployment.spec.template.spec.as_ref();
    let mut volumes = pod.iter().flat_map(|pod| pod.volumes.iter().flatten());
    let certificate = volumes.find(|volume| volume.name == CERTIFICATE_VOLUME);
    let containers = || pod.iter().flat_map(|pod| &pod.containers);
    let option = |name: &str| {
        let mut options = containers().flat_map(|container| container.args.iter().flatten());
        options.find_map(|option| option.strip_prefix(name)).map(str::to_owned)
    };
    Deployed {
        account: pod.and_then(|pod| pod.service_account_name.clone()),
        certificate_secret: certificate.and_then(|volume| volume.secret.as_ref()?.secret_name.clone()),
        lease: option(LEASE_OPTION),
        sidecar_image: option(IMAGE_OPTION),
        name: deployment.name_any(),
        component: component.unwrap_or_default(),
        version: label("app.kubernetes.io/version"),
        wanted: deployment.spec.replicas.unwrap_or(1),
        ready: deployment.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or_default(),
    }
}

/// Returns the names of the controllers' Leases. Controllers of earlier versions have no option for it.
fn lease_names(deployments: &[Deployed]) -> BTreeSet<String> {
    let controllers = deployments.iter().filter(|deployment| deployment.component == "controller");
    let names: BTreeSet<String> =
        controllers.map(|controller| controller.lease.clone().unwrap_or_else(|| LEASE.to_owned())).collect();
    if names.is_empty() { BTreeSet::from([LEASE.to_owned()]) } else { names }
}

async fn leases(cluster: &Cluster, asked: &Check, names: BTreeSet<String>) -> Result<Vec<LeaseState>, Failure> {
    let mut leases = Vec::new();
    for name in names {
        let found: Option<Lease> = cluster.get(&asked.system_namespace, &name).await?;
        let holder = found.map(|lease| {
            let spec = lease.spec.unwrap_or_default();
            Holder { name: spec.holder_identity, renewed: spec.renew_time.map(|at| at.0) }
        });
        leases.push(LeaseState { name, holder });
    }
    Ok(leases)
}

/// Reads the webhook's registration. The API of policies is not on in every cluster, so a cluster that has none of
/// them is asked for them last.
async fn admission(cluster: &Cluster, namespace: &str) -> Result<Vec<Registration>, Failure> {
    let webhooks: Vec<MutatingWebhookConfiguration> = cluster.list_of_cluster(CHART).await?;
    if !webhooks.is_empty() {
        return Ok(of_release(webhooks.iter().map(webhook).collect(), namespace));
    }
    Ok(cluster.policies(CHART).await?.iter().map(|name| policy(name)).collect())
}

/// Keeps the registrations whose Service is in the release's namespace, because the others belong to other releases.
/// Keeps all if none is.
fn of_release(registrations: Vec<Registration>, namespace: &str) -> Vec<Registration> {
    let suffix = format!(".{namespace}.svc");
    let is_own = |one: &Registration| one.server.as_ref().is_some_and(|server| server.ends_with(&suffix));
    if registrations.iter().any(is_own) { registrations.into_iter().filter(is_own).collect() } else { registrations }
}

fn policy(name: &str) -> Registration {
    Registration {
        object: format!("MutatingAdmissionPolicy {name}"),
        certificates: Vec::new(),
        is_webhook: false,
        fails_closed: true,
        bundle: Vec::new(),
        server: None,
    }
}

fn webhook(configuration: &MutatingWebhookConfiguration) -> Registration {
    let webhooks = || configuration.webhooks.iter().flatten();
    let bundles = webhooks().filter_map(|webhook| webhook.client_config.ca_bundle.as_ref());
    let certificates = bundles.flat_map(|bundle| Pem::iter_from_buffer(&bundle.0).flatten().collect::<Vec<_>>());
    let expiries = certificates.filter_map(|pem| {
        let expiry = pem.parse_x509().ok()?.validity().not_after.timestamp();
        Timestamp::from_second(expiry).ok()
    });
    Registration {
        object: format!("MutatingWebhookConfiguration {}", configuration.name_any()),
        certificates: expiries.collect(),
        bundle: webhooks().filter_map(|webhook| webhook.client_config.ca_bundle.as_ref()).fold(Vec::new(), joined),
        server: webhooks().find_map(|webhook| {
            let service = webhook.client_config.service.as_ref()?;
            Some(format!("{}.{}.svc", service.name, service.namespace))
        }),
        is_webhook: true,
        fails_closed: webhooks().any(|webhook| webhook.failure_policy.as_deref() == Some("Fail")),
    }
}

/// Appends a bundle in PEM to others.
fn joined(mut bundle: Vec<u8>, more: &ByteString) -> Vec<u8> {
    bundle.extend_from_slice(&more.0);
    bundle.push(b'\n');
    bundle
}

/// Returns the namespace for the dry run: the first one with an environment.
fn example(environments: &[FeatureEnvironment], asked: &Check) -> Option<String> {
    if asked.no_dry_run { None } else { environments.iter().find_map(ResourceExt::namespace) }
}

async fn dry_run(cluster: &Cluster, namespace: &str) -> Result<Option<DryRun>, Failure> {
    let Some(pod) = probe() else { return Ok(None) };
    let namespace = namespace.to_owned();
    match cluster.dry_run(&namespace, &pod).await {
        Ok(created) => {
            let init = created.spec.and_then(|spec| spec.init_containers).unwrap_or_default();
            let own = init.into_iter().find(|container| container.name == sidecar::CONTAINER);
            Ok(Some(match own {
                Some(own) => DryRun::Injected { namespace, image: own.image },
                None => DryRun::NotInjected { namespace },
            }))
        }
        // The API server answers 403 to a missing right, to a full quota and to a pod that a policy refuses.
        Err(Failure::Forbidden { right, message }) if message.contains("cannot create resource") => {
            Err(Failure::Forbidden { right, message })
        }
        Err(Failure::Forbidden { message, .. } | Failure::Unanswered { message, .. }) => {
            Ok(Some(DryRun::Refused { namespace, message }))
        }
        Err(failure) => Err(failure),
    }
}

/// Builds a pod that every namespace admits, and that needs almost nothing of a quota.
fn probe() -> Option<Pod> {
    let container = json!({
        "name": "nothing", "image": "nothing",
        "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}, "limits": {"cpu": "1m", "memory": "1Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": true,
            "runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"},
        },
    });
    let pod = json!({
        "metadata": {"generateName": "remora-check-", "annotations": {annotation::INJECT: "check"}},
        "spec": {"automountServiceAccountToken": false, "containers": [container]},
    });
    serde_json::from_value(pod).ok()
}

async fn workloads(
    cluster: &Cluster,
    asked: &Check,
    environments: &[FeatureEnvironment],
    scope: Option<&str>,
    unread: &mut Vec<Unread>,
) -> Workloads {
    let names = environments.iter().map(NamespacedName::of).collect();
    let mut workloads = Workloads { environments: names, ..Workloads::default() };
    let keep = |pod: Pod| requesting(&pod, &asked.system_namespace);
    workloads.pods = note("pods", cluster.select(scope, "", keep).await, unread).unwrap_or_default();
    for namespace in excluded(cluster, &workloads.pods).await {
        workloads.pods.retain(|pod| pod.has_sidecar || pod.namespace != namespace);
    }
    let namespaces: BTreeSet<&String> = workloads.environments.iter().map(|name| &name.namespace).collect();
    let quotas: Option<Vec<ResourceQuota>> = note("quotas", cluster.list(scope, "").await, unread);
    let is_ours = |quota: &&ResourceQuota| quota.namespace().is_some_and(|namespace| namespaces.contains(&namespace));
    workloads.quotas = quotas.iter().flatten().filter(is_ours).flat_map(uses).collect();
    for namespace in silent(environments) {
        let found: Result<Vec<NetworkPolicy>, Failure> = cluster.list(Some(&namespace), "").await;
        let found = note("NetworkPolicies", found, unread).unwrap_or_default();
        let closing = found.iter().filter(|policy| restricts_ingress(policy));
        workloads.policies.extend(closing.map(NamespacedName::of));
    }
    workloads
}

/// Returns the namespaces of pods without a sidecar whose owners have excluded them from injection. A namespace that cannot
/// be read counts as not excluded.
async fn excluded(cluster: &Cluster, pods: &[Requesting]) -> Vec<String> {
    let names: BTreeSet<&String> = pods.iter().filter(|pod| !pod.has_sidecar).map(|pod| &pod.namespace).collect();
    let mut excluded = Vec::new();
    for name in names {
        if let Ok(Some(namespace)) = cluster.get_of_cluster::<Namespace>(name).await
            && namespace.labels().get(label::ADMISSION).is_some_and(|value| value == label::DISABLED)
        {
            excluded.push(name.clone());
        }
    }
    excluded
}

/// Returns the namespaces with pods that do not answer the controller.
fn silent(environments: &[FeatureEnvironment]) -> BTreeSet<String> {
    let is_silent = |found: &&FeatureEnvironment| {
        found.status.as_ref().and_then(|status| status.pods.as_ref()).is_some_and(|pods| pods.silent > 0)
    };
    environments.iter().filter(is_silent).filter_map(ResourceExt::namespace).collect()
}

fn restricts_ingress(policy: &NetworkPolicy) -> bool {
    let types = policy.spec.as_ref().and_then(|spec| spec.policy_types.as_ref());
    types.is_none_or(|types| types.iter().any(|kind| kind == "Ingress"))
}

/// Largest number of environments that are looked at of one pod. The webhook admits fewer.
const NAMES_MAX: usize = 16;
/// Number of characters of such a name that findings show. No FeatureEnvironment has a longer name.
const NAME_MAX: usize = 64;

/// Describes a pod that requests flags. `None` if it does not, or never gets a sidecar, or has ended.
fn requesting(pod: &Pod, system_namespace: &str) -> Option<Requesting> {
    let namespace = pod.namespace()?;
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let has_ended = pod.metadata.deletion_timestamp.is_some() || matches!(phase, Some("Succeeded" | "Failed"));
    if has_ended || !is_candidate(pod.annotations(), &namespace, system_namespace) {
        return None;
    }
    let sidecar = sidecar_of(pod);
    let has_sidecar = sidecar.is_some();
    if !has_sidecar {
        let value = serde_json::to_value(pod).ok()?;
        // A pod that would not be injected today either, such as one on the host's network, is no fault.
        missing_sidecar(&value, &PodContext::new(&namespace), system_namespace)?;
    }
    let statuses = pod.status.iter().flat_map(|status| status.init_container_statuses.iter().flatten());
    let own = statuses.into_iter().find(|status| status.name == sidecar::CONTAINER);
    let names = pod.annotations().get(annotation::INJECT)?.split(',');
    Some(Requesting {
        name: pod.name_any(),
        environments: names.take(NAMES_MAX).map(|name| name.trim().chars().take(NAME_MAX).collect()).collect(),
        has_sidecar,
        image: sidecar.and_then(|own| own.image.clone()),
        workload: workload(pod, &namespace),
        waits: own.and_then(waits),
        restarts: own.map(|own| own.restart_count).unwrap_or_default(),
        namespace,
    })
}

fn sidecar_of(pod: &Pod) -> Option<&Container> {
    let mut init = pod.spec.iter().flat_map(|spec| spec.init_containers.iter().flatten());
    init.find(|own| own.name == sidecar::CONTAINER && own.restart_policy.as_deref() == Some("Always"))
}

/// Returns kind, namespace and name of the object that creates the pod, or of the pod itself. A Deployment creates pods by
/// a ReplicaSet, whose name begins with the Deployment's.
fn workload(pod: &Pod, namespace: &str) -> String {
    let Some(owner) = pod.owner_references().iter().find(|owner| owner.controller == Some(true)) else {
        return format!("pod {namespace}/{}", pod.name_any());
    };
    let hash = pod.labels().get(TEMPLATE_HASH).filter(|_| owner.kind == "ReplicaSet");
    let deployment = hash.and_then(|hash| owner.name.strip_suffix(hash.as_str())?.strip_suffix('-'));
    match deployment {
        Some(name) => format!("Deployment {namespace}/{name}"),
        None => format!("{} {namespace}/{}", owner.kind, owner.name),
    }
}

/// Returns why a sidecar does not run. A container that is being created is no fault yet.
fn waits(own: &ContainerStatus) -> Option<String> {
    let waiting = own.state.as_ref()?.waiting.as_ref()?;
    let reason =
        waiting.reason.clone().filter(|reason| reason != "PodInitializing" && reason != "ContainerCreating")?;
    let message = waiting.message.as_ref().map(|message| format!(": {message}")).unwrap_or_default();
    Some(format!("{reason}{message}"))
}

/// Lists how a quota's room for ConfigMaps and Secrets is used.
fn uses(quota: &ResourceQuota) -> Vec<Quota> {
    let status = quota.status.clone().unwrap_or_default();
    let (used, hard) = (status.used.unwrap_or_default(), status.hard.unwrap_or_default());
    let count = |amounts: &BTreeMap<String, Amount>, resource: &str| {
        let quantity: Quantity = amounts.get(resource)?.0.parse().ok()?;
        i64::try_from(quantity.milli() / 1000).ok()
    };
    ["configmaps", "count/configmaps", "secrets", "count/secrets"]
        .into_iter()
        .filter_map(|resource| {
            Some(Quota {
                namespace: quota.namespace().unwrap_or_default(),
                name: quota.name_any(),
                resource: resource.to_owned(),
                used: count(&used, resource)?,
                hard: count(&hard, resource)?,
            })
        })
        .collect()
}
