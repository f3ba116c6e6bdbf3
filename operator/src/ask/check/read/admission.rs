//! Reads the registrations with the API server's admission.

use jiff::Timestamp;
use k8s_openapi::{ByteString, api::admissionregistration::v1::MutatingWebhookConfiguration};
use kube::ResourceExt;
use x509_parser::pem::Pem;

use super::CHART;
use crate::ask::{check::facts::Registration, cluster::Cluster, failure::Failure};

/// Reads the webhook's registration. The API of policies is not on in every cluster, so a cluster that has none of
/// them is asked for them last.
pub(super) async fn admission(cluster: &Cluster, namespace: &str) -> Result<Vec<Registration>, Failure> {
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
