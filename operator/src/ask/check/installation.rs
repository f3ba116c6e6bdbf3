//! Findings about Remora's own objects. Pure.

use std::time::Duration;

use jiff::Timestamp;
use remora_tools::counted;

use super::{
    certificates,
    facts::{Deployed, DryRun, Installation, LeaseState, Registration, Rights},
    finding::{Finding, Level},
};
use crate::controller::leader::LEASE_DURATION;

/// Oldest version of Kubernetes that the chart supports: major and minor.
const OLDEST: (u32, u32) = (1, 34);
/// Numbers of replicas that the chart's values give.
const CONTROLLER_REPLICAS: u32 = 1;
const WEBHOOK_REPLICAS: u32 = 2;
/// Version of this plugin.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Derives the findings.
pub(super) fn findings(installation: &Installation, now: Timestamp) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(installation.api_server.as_deref().map(api_server));
    if let Some(deployments) = &installation.deployments {
        findings.extend(deployed(&installation.namespace, deployments));
    }
    findings.extend(installation.leases.iter().flatten().map(|found| lease(&installation.namespace, found, now)));
    if let Some(registrations) = &installation.admission {
        findings.extend(admission(registrations, now));
        let serving = installation.serving.as_ref();
        findings.extend(serving.into_iter().flat_map(|serving| certificates::findings(serving, registrations, now)));
    }
    findings.extend(installation.rights.iter().flat_map(rights));
    findings.extend(installation.dry_run.as_ref().map(dry_run));
    findings
}

/// Derives one finding for each namespace in which the controller lacks rights.
fn rights(rights: &Rights) -> Vec<Finding> {
    let Rights { account, namespaces, denied } = rights;
    let subject = format!("ServiceAccount {account}");
    if denied.is_empty() {
        let message =
            format!("the controller has its rights in {} with FeatureEnvironments", counted(*namespaces, "namespace"));
        return vec![Finding::ok(subject, message)];
    }
    let remedy =
        "install the chart again with helm upgrade; if the value controller.namespaces lists namespaces, add this one";
    let lacking = denied.chunk_by(|one, next| one.namespace == next.namespace).filter_map(|of_namespace| {
        let namespace = &of_namespace.first()?.namespace;
        let rights: Vec<String> =
            of_namespace.iter().map(|right| format!("{} {}", right.verb, right.resource)).collect();
        let message = format!("in namespace {namespace} the controller may not {}", rights.join(", "));
        Some(Finding::new(Level::Error, &subject, message, remedy))
    });
    lacking.collect()
}

fn api_server(version: &str) -> Finding {
    let mut numbers = version.trim_start_matches('v').split('.').map(|part| part.parse::<u32>().ok());
    let found = numbers.next().flatten().zip(numbers.next().flatten());
    let message = format!("version {version}");
    match found {
        Some(found) if found < OLDEST => Finding::new(
            Level::Error,
            "API server",
            message,
            format!("Remora needs Kubernetes {}.{} or later: upgrade the cluster", OLDEST.0, OLDEST.1),
        ),
        _ => Finding::ok("API server", message),
    }
}

fn deployed(namespace: &str, deployments: &[Deployed]) -> Vec<Finding> {
    if !deployments.iter().any(|deployment| deployment.component == "controller") {
        return vec![Finding::new(
            Level::Error,
            format!("namespace {namespace}"),
            "it has no Deployment of Remora's controller",
            "install the chart, or name the namespace of the installation with --system-namespace",
        )];
    }
    deployments.iter().map(|found| deployment(namespace, found)).collect()
}

fn deployment(namespace: &str, deployment: &Deployed) -> Finding {
    let Deployed { name, component, version, wanted, ready, .. } = deployment;
    let subject = format!("Deployment {name}");
    let message = format!("version {version}, {ready} of {wanted} replicas are ready");
    if *wanted == 0 {
        let replicas = if component == "webhook" { WEBHOOK_REPLICAS } else { CONTROLLER_REPLICAS };
        let remedy =
            format!("give it replicas again: kubectl scale deployment {name} -n {namespace} --replicas {replicas}");
        Finding::new(Level::Error, subject, format!("version {version}, it is scaled to 0 replicas"), remedy)
    } else if *ready == 0 {
        let remedy = format!("see its pods: kubectl describe deployment {name} -n {namespace}, and their logs");
        Finding::new(Level::Error, subject, message, remedy)
    } else if ready < wanted {
        let remedy = format!("see its pods: kubectl describe deployment {name} -n {namespace}");
        Finding::new(Level::Warning, subject, message, remedy)
    } else if version != VERSION {
        let remedy = format!("this plugin has version {VERSION}: use the plugin of the installed version");
        Finding::new(Level::Note, subject, message, remedy)
    } else {
        Finding::ok(subject, message)
    }
}

fn lease(namespace: &str, lease: &LeaseState, now: Timestamp) -> Finding {
    let subject = format!("Lease {namespace}/{}", lease.name);
    let nobody = "no controller reconciles: see the log of the controller's pods";
    let Some(holder) = &lease.holder else {
        return Finding::new(Level::Error, subject, "it does not exist", nobody);
    };
    let age = holder.renewed.map(|renewed| Duration::try_from(now.duration_since(renewed)).unwrap_or_default());
    match (&holder.name, age) {
        (Some(name), Some(age)) if age <= LEASE_DURATION => {
            Finding::ok(subject, format!("{name} holds it, renewed {} s ago", age.as_secs()))
        }
        (Some(name), Some(age)) => {
            let message = format!("{name} holds it and has not renewed it for {} s", age.as_secs());
            Finding::new(Level::Error, subject, message, nobody)
        }
        _ => Finding::new(Level::Error, subject, "no replica holds it", nobody),
    }
}

fn admission(registrations: &[Registration], now: Timestamp) -> Vec<Finding> {
    if registrations.is_empty() {
        return vec![Finding::new(
            Level::Error,
            "admission",
            "neither a MutatingWebhookConfiguration nor a MutatingAdmissionPolicy of Remora exists",
            "install the chart again with helm upgrade: no new pod gets a sidecar",
        )];
    }
    registrations.iter().map(|registration| registered(registration, now)).collect()
}

fn registered(registration: &Registration, now: Timestamp) -> Finding {
    let Registration { object, certificates: trusted, is_webhook, fails_closed, .. } = registration;
    if !is_webhook {
        return Finding::ok(object.clone(), "registered");
    }
    let policy = if *fails_closed {
        "a pod that asks for flags is refused while the webhook is down"
    } else {
        "a pod that asks for flags starts without them while the webhook is down"
    };
    let Some(last) = trusted.iter().max() else {
        let remedy = "see the log of the webhook's pods, which write it, or cert-manager's injector";
        return Finding::new(Level::Error, object.clone(), "it has no CA certificate", remedy);
    };
    let left = last.duration_since(now);
    let message = format!("{policy}; its CA certificate expires at {last}");
    if left.is_negative() {
        let remedy = "delete the Secret remora-webhook-authority to create a new CA, or renew the given certificate";
        Finding::new(Level::Error, object.clone(), message, remedy)
    } else if certificates::expires_soon(*last, now) {
        let remedy = "see the log of the webhook's pods: it should have renewed the certificate long ago";
        Finding::new(Level::Warning, object.clone(), message, remedy)
    } else {
        Finding::ok(object.clone(), message)
    }
}

fn dry_run(outcome: &DryRun) -> Finding {
    let subject = "admission of a pod that asks for flags (dry run)";
    match outcome {
        DryRun::Injected { namespace, .. } => {
            Finding::ok(subject, format!("a new pod in namespace {namespace} gets its sidecar"))
        }
        DryRun::NotInjected { namespace } => Finding::new(
            Level::Error,
            subject,
            format!("a new pod in namespace {namespace} is admitted without a sidecar"),
            "check that the webhook's pods are ready, that their Service has endpoints, and that the namespace has no \
             label remora.dev/admission: disabled",
        ),
        // Names of the webhook, of the policies and of their objects contain the word.
        DryRun::Refused { namespace, message } if message.contains("remora") => Finding::new(
            Level::Error,
            subject,
            format!("a new pod in namespace {namespace} is refused: {message}"),
            "if the message names the webhook, see its pods and NetworkPolicies; else repair what the message names",
        ),
        DryRun::Refused { namespace, message } => Finding::new(
            Level::Unknown,
            subject,
            format!("not checked, because namespace {namespace} does not admit the pod of the check: {message}"),
            "see that your own pods there get their sidecar: the pod of the check has an image without a registry, no labels, and almost no resources",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    #[test]
    fn old_cluster_is_error() {
        for (version, level) in [
            ("v1.33.9", Level::Error),
            ("v1.34.0", Level::Ok),
            ("v1.34.1+k3s1", Level::Ok),
            ("v2.0.0", Level::Ok),
            ("odd", Level::Ok),
        ] {
            assert_eq!(api_server(version).level, level, "{version}");
        }
    }

    #[test]
    fn deployment_is_judged_by_ready_replicas() {
        let scaled = |wanted, ready, version: &str| Deployed {
            name: "remora-controller".to_owned(),
            component: "controller".to_owned(),
            version: version.to_owned(),
            wanted,
            ready,
            account: None,
            certificate_secret: None,
            lease: None,
            sidecar_image: None,
        };
        let level = |ready, version| deployment("system", &scaled(2, ready, version)).level;
        assert_eq!(level(2, VERSION), Level::Ok);
        assert_eq!(level(1, VERSION), Level::Warning);
        assert_eq!(level(0, VERSION), Level::Error);
        assert_eq!(level(2, "0.0.1"), Level::Note);
        let none = deployment("system", &scaled(0, 0, VERSION));
        assert!(
            none.level == Level::Error && none.remedy.ends_with("deployment remora-controller -n system --replicas 1")
        );
        let webhook = Deployed { component: "webhook".to_owned(), ..scaled(0, 0, VERSION) };
        assert!(deployment("system", &webhook).remedy.ends_with("--replicas 2"));
        let values: serde_json::Value =
            serde_yaml::from_str(include_str!("../../../../charts/remora/values.yaml")).unwrap();
        assert_eq!(values["controller"]["replicas"], CONTROLLER_REPLICAS);
        assert_eq!(values["webhook"]["replicas"], WEBHOOK_REPLICAS);
        let missing = super::deployed("remora-system", &[]);
        assert!(missing[0].level == Level::Error && missing[0].remedy.contains("--system-namespace"));
    }

    #[test]
    fn lease_without_renewal_is_error() {
        use crate::ask::check::facts::Holder;
        let holder = |name: Option<&str>, renewed| Holder { name: name.map(str::to_owned), renewed };
        let judge = |holder: Option<&Holder>| {
            let found = LeaseState { name: "remora-controller".to_owned(), holder: holder.cloned() };
            lease("remora-system", &found, at(100)).level
        };
        assert_eq!(judge(Some(&holder(Some("a"), Some(at(95))))), Level::Ok);
        assert_eq!(judge(Some(&holder(Some("a"), Some(at(69))))), Level::Error);
        assert_eq!(judge(Some(&holder(None, Some(at(95))))), Level::Error);
        assert_eq!(judge(Some(&holder(Some("a"), None))), Level::Error);
        assert_eq!(judge(None), Level::Error);
        // Clocks of two machines may differ.
        assert_eq!(judge(Some(&holder(Some("a"), Some(at(160))))), Level::Ok);
    }

    #[test]
    fn registration_is_judged_by_its_certificates() {
        let registration = |certificates: &[Timestamp]| Registration {
            object: "MutatingWebhookConfiguration remora".to_owned(),
            certificates: certificates.to_vec(),
            is_webhook: true,
            fails_closed: false,
            bundle: Vec::new(),
            server: None,
        };
        let level = |certificates: &[Timestamp]| registered(&registration(certificates), at(0)).level;
        assert_eq!(level(&[at(1_000_000)]), Level::Ok);
        assert_eq!(level(&[at(-1), at(1_000_000)]), Level::Ok, "one of two CAs is enough");
        assert_eq!(level(&[at(3600)]), Level::Warning);
        assert_eq!(level(&[at(-1)]), Level::Error);
        assert_eq!(level(&[]), Level::Error);
        let policy = Registration { is_webhook: false, ..registration(&[]) };
        assert_eq!(registered(&policy, at(0)).level, Level::Ok);
        assert_eq!(admission(&[], at(0))[0].level, Level::Error);
    }

    #[test]
    fn every_fault_has_remedy() {
        let namespace = "shop".to_owned();
        let refused = |message: &str| DryRun::Refused { namespace: namespace.clone(), message: message.to_owned() };
        for (outcome, level) in [
            (refused("failed calling webhook \"pods.remora.dev\": no endpoints"), Level::Error),
            (refused("admission webhook \"images.example.org\" denied the request"), Level::Unknown),
            (DryRun::NotInjected { namespace: namespace.clone() }, Level::Error),
        ] {
            let finding = dry_run(&outcome);
            assert!(finding.level == level && !finding.remedy.is_empty(), "{finding:?}");
        }
        assert_eq!(dry_run(&DryRun::Injected { namespace, image: None }).level, Level::Ok);
    }
}
