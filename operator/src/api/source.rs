//! `spec.source`: the place of the environment document.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use super::names::OBJECT_NAME;

/// Source of the environment document. Exactly one member is set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.flagsmith) != has(self.document)")
    .message("set exactly one of source.flagsmith and source.document"))]
pub struct Source {
    /// Flagsmith server that the operator polls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flagsmith: Option<Flagsmith>,
    /// Document in a ConfigMap or Secret of the same namespace; no server is needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub document: Option<Document>,
}

/// A Flagsmith server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Flagsmith {
    /// Base URL of the server's SDK API. The administrator of the operator must have allowed its origin (scheme, host and port)
    /// in the chart value `allowedOrigins`. Default: https://edge.api.flagsmith.com/api/v1/.
    #[serde(default = "default_api_url")]
    #[schemars(length(max = 2000))]
    #[x_kube(validation = Rule::new("isURL(self) && url(self).getScheme() in ['http', 'https'] && url(self).getHost() != ''")
        .message("write the API's base URL, as in https://edge.api.flagsmith.com/api/v1/"))]
    #[x_kube(validation = Rule::new("!self.contains('?') && !self.contains('#') && !self.contains('@')")
        .message("write the URL without user, query and fragment; the key belongs into a Secret (environmentKeySecretRef)"))]
    pub api_url: String,
    /// Secret that holds the server-side environment key (`ser.…`). The Secret must carry the label
    /// `remora.dev/environment-key: "true"`, by which its owner lets the operator read it.
    pub environment_key_secret_ref: SecretKeyRef,
    /// ConfigMap that holds certificates (PEM) of certificate authorities to trust in addition to the public ones: at most
    /// 262,144 bytes, a larger bundle is refused (`ConfigMapInvalid`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_bundle_ref: Option<CaBundleRef>,
    /// Follows the server's stream of changes: the operator fetches the document as soon as the stream reports a change. It
    /// goes on polling, because streams do not report every change, for example those of identity overrides. Needs realtime
    /// updates in Flagsmith. Default: not set, the operator only polls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub realtime: Option<Realtime>,
    /// Accepts signed webhooks of Flagsmith: the operator fetches the document as soon as one arrives. It goes on polling,
    /// because webhooks do not report every change. The administrator must have set the chart value `receiver.enabled`.
    /// The URL ends in `/flagsmith/NAMESPACE/NAME` for a webhook of the environment, and in
    /// `/flagsmith/NAMESPACE` for a webhook of the organisation. Default: not set, no webhook is accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<Webhook>,
    /// Sends the server how often applications used each flag, as Flagsmith's SDKs do (`POST analytics/flags/`), once a
    /// minute, summed over all pods. `status.analytics` says if it works. Default: false, the counts are only in the metrics
    /// of the sidecars.
    #[serde(default)]
    pub send_analytics: bool,
}

/// Webhooks of a Flagsmith server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Webhook {
    /// Secret that holds the webhook's secret, as written in Flagsmith: 16 to 1,024 characters. The Secret must carry the
    /// label `remora.dev/environment-key: "true"`, by which its owner lets the operator read it. The operator reads it again
    /// within a minute or so after a change.
    pub secret_key_ref: SigningSecretRef,
}

/// Key of a Secret in the same namespace that signs webhooks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct SigningSecretRef {
    /// Name of the Secret.
    #[schemars(length(min = 1, max = 253), regex(pattern = OBJECT_NAME))]
    pub name: String,
    /// Key whose value is the webhook's secret. Default: webhook-secret.
    #[serde(default = "default_webhook_key")]
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

fn default_webhook_key() -> String {
    "webhook-secret".to_owned()
}

/// Stream of changes of a Flagsmith server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Realtime {
    /// Base URL of the streams, without `sse/environments/…`. Its origin must be in the chart value `allowedOrigins`, too.
    /// Default: https://realtime.flagsmith.com/.
    #[serde(default = "default_realtime_url")]
    #[schemars(length(max = 2000))]
    #[x_kube(validation = Rule::new("isURL(self) && url(self).getScheme() in ['http', 'https'] && url(self).getHost() != ''")
        .message("write the base URL of the streams, as in https://realtime.flagsmith.com/"))]
    #[x_kube(validation = Rule::new("!self.contains('?') && !self.contains('#') && !self.contains('@')")
        .message("write the URL without user, query and fragment"))]
    pub url: String,
}

fn default_realtime_url() -> String {
    "https://realtime.flagsmith.com/".to_owned()
}

fn default_api_url() -> String {
    "https://edge.api.flagsmith.com/api/v1/".to_owned()
}

/// An environment document as Flagsmith's `environment-document/` serves it, in an object of the same namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.configMapKeyRef) != has(self.secretKeyRef)")
    .message("set exactly one of document.configMapKeyRef and document.secretKeyRef"))]
pub struct Document {
    /// Key of a ConfigMap, in its `data` or `binaryData`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_key_ref: Option<ObjectKeyRef>,
    /// Key of a Secret. The Secret must carry the label `remora.dev/environment-key: "true"`, by which its owner lets the
    /// operator read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_key_ref: Option<ObjectKeyRef>,
}

/// Key of an object in the same namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectKeyRef {
    /// Name of the object.
    #[schemars(length(min = 1, max = 253), regex(pattern = OBJECT_NAME))]
    pub name: String,
    /// Key whose value is the document, for example `environment.json`.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

/// Key of a Secret in the same namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretKeyRef {
    /// Name of the Secret.
    #[schemars(length(min = 1, max = 253), regex(pattern = OBJECT_NAME))]
    pub name: String,
    /// Key whose value is the environment key. Default: environment-key.
    #[serde(default = "default_secret_key")]
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

fn default_secret_key() -> String {
    "environment-key".to_owned()
}

/// Key of a ConfigMap in the same namespace that holds certificates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct CaBundleRef {
    /// Name of the ConfigMap.
    #[schemars(length(min = 1, max = 253), regex(pattern = OBJECT_NAME))]
    pub config_map_name: String,
    /// Key whose value is the certificates. Default: ca.crt.
    #[serde(default = "default_ca_key")]
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

fn default_ca_key() -> String {
    "ca.crt".to_owned()
}

/// The member of a valid [`Source`] that is set.
#[derive(Clone, Copy, Debug)]
pub enum PlannedSource<'a> {
    /// Poll a server.
    Flagsmith(&'a Flagsmith),
    /// Read a ConfigMap.
    ConfigMap(&'a ObjectKeyRef),
    /// Read a Secret.
    Secret(&'a ObjectKeyRef),
}

impl Source {
    /// The member that is set. `None` if not exactly one is, which the schema does not let pass.
    pub fn planned(&self) -> Option<PlannedSource<'_>> {
        match (&self.flagsmith, &self.document) {
            (Some(flagsmith), None) => Some(PlannedSource::Flagsmith(flagsmith)),
            (None, Some(document)) => match (&document.config_map_key_ref, &document.secret_key_ref) {
                (Some(config_map), None) => Some(PlannedSource::ConfigMap(config_map)),
                (None, Some(secret)) => Some(PlannedSource::Secret(secret)),
                _ => None,
            },
            _ => None,
        }
    }

    /// Names of the ConfigMaps that this source reads.
    pub fn config_maps(&self) -> impl Iterator<Item = &str> {
        let document = match self.planned() {
            Some(PlannedSource::ConfigMap(config_map)) => Some(config_map.name.as_str()),
            _ => None,
        };
        let bundle = self.flagsmith.as_ref().and_then(|flagsmith| flagsmith.ca_bundle_ref.as_ref());
        document.into_iter().chain(bundle.map(|bundle| bundle.config_map_name.as_str()))
    }
}
