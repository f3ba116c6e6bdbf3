//! The CAs that the API server trusts: `caBundle` of the registration, and no other field.

use json_patch::{AddOperation, Patch, PatchOperation, TestOperation, jsonptr::PointerBuf};
use k8s_openapi::{
    ByteString,
    api::admissionregistration::v1::{MutatingWebhook, MutatingWebhookConfiguration},
};
use serde_json::{Value, to_value};

use super::ca::Certificate;

/// State of `caBundle` in the registration.
#[derive(Debug, PartialEq)]
pub enum Registered {
    /// Every webhook's `caBundle` equals the CAs to trust.
    Current,
    /// At least one webhook's `caBundle` differs; the operations correct it.
    Outdated(Patch),
}

/// Compares `caBundle` of every webhook with the CAs to trust.
///
/// The operations test the name and the `caBundle` of each webhook before they change it: if the webhooks were reordered
/// or another replica registered its CAs meanwhile, the API server refuses the patch.
///
/// # Errors
///
/// Fails if `caBundle` cannot be serialized.
pub fn update(
    configuration: &MutatingWebhookConfiguration,
    trusted: &[&Certificate],
) -> Result<Registered, serde_json::Error> {
    let bundle: String = trusted.iter().map(|certificate| certificate.pem()).collect();
    let bundle = ByteString(bundle.into_bytes());
    let mut operations = Vec::new();
    for (index, webhook) in configuration.webhooks.iter().flatten().enumerate() {
        let MutatingWebhook { name, client_config, .. } = webhook;
        if client_config.ca_bundle.as_ref() == Some(&bundle) {
            continue;
        }
        operations.push(PatchOperation::Test(TestOperation {
            path: path(index, &["name"]),
            value: Value::from(name.as_str()),
        }));
        let path = path(index, &["clientConfig", "caBundle"]);
        operations.push(PatchOperation::Test(TestOperation {
            path: path.clone(),
            value: to_value(&client_config.ca_bundle)?,
        }));
        operations.push(PatchOperation::Add(AddOperation { path, value: to_value(&bundle)? }));
    }
    Ok(if operations.is_empty() { Registered::Current } else { Registered::Outdated(Patch(operations)) })
}

/// Returns the CAs that the API server trusts now.
pub(super) fn registered(configuration: &MutatingWebhookConfiguration) -> Vec<Certificate> {
    let webhooks = configuration.webhooks.iter().flatten();
    let bundles = webhooks.filter_map(|webhook| webhook.client_config.ca_bundle.as_ref());
    bundles.flat_map(|bundle| Certificate::read_all(&bundle.0)).collect()
}

fn path(index: usize, rest: &[&str]) -> PointerBuf {
    let index = index.to_string();
    PointerBuf::from_tokens(["webhooks", &index].into_iter().chain(rest.iter().copied()))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::injection::certificates::{Ca, Lifetimes};

    #[test]
    fn update_changes_only_outdated_bundles() {
        let now = Timestamp::now();
        let cas = [(); 2].map(|()| Ca::create(now, &Lifetimes::default()).unwrap());
        let trusted = [cas[0].certificate(), cas[1].certificate()];
        let webhook = |name: &str, bundle: &str| {
            json!({
                "name": name,
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "namespaceSelector": {"matchLabels": {"written-by": "the platform"}},
                "clientConfig": {"service": {"name": "remora-webhook", "namespace": "remora-system"}, "caBundle": bundle},
            })
        };
        let before = json!({"metadata": {"name": "remora"}, "webhooks": [webhook("a", ""), webhook("b", "eA==")]});
        let configuration: MutatingWebhookConfiguration = serde_json::from_value(before.clone()).unwrap();
        let Registered::Outdated(patch) = update(&configuration, &trusted).unwrap() else { panic!("not outdated") };

        let mut after = before.clone();
        json_patch::patch(&mut after, &patch).unwrap();
        let configuration: MutatingWebhookConfiguration = serde_json::from_value(after.clone()).unwrap();
        let bundle = configuration.webhooks.as_ref().unwrap()[1].client_config.ca_bundle.clone().unwrap();
        assert_eq!(String::from_utf8(bundle.0).unwrap(), format!("{}{}", trusted[0].pem(), trusted[1].pem()));
        assert_eq!(update(&configuration, &trusted).unwrap(), Registered::Current);
        for webhook in after["webhooks"].as_array_mut().unwrap() {
            webhook["clientConfig"]["caBundle"] = json!("");
        }
        assert_eq!(after["webhooks"][0], before["webhooks"][0], "nothing else changed");

        let mut registered = before.clone();
        registered["webhooks"][1]["clientConfig"]["caBundle"] = json!("eB==");
        assert!(json_patch::patch(&mut registered, &patch).is_err(), "what another replica registered stays");

        let mut reordered = before;
        reordered["webhooks"].as_array_mut().unwrap().reverse();
        assert!(json_patch::patch(&mut reordered, &patch).is_err(), "the wrong webhook is not touched");
    }
}
