use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// Where the environment's document comes from: exactly one of the members.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.flagsmith) != has(self.document)")
    .message("set exactly one of source.flagsmith and source.document"))]
pub struct Source {
    /// A Flagsmith server, polled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flagsmith: Option<Flagsmith>,
    /// A document that is in the cluster already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub document: Option<Document>,
}

/// A Flagsmith server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Flagsmith {
    /// The base URL of the SDK API. Its origin (scheme, host and port) must be one that the operator's administrator allowed.
    #[serde(default = "default_api_url")]
    #[schemars(length(max = 2000))]
    #[x_kube(validation = Rule::new("isURL(self) && url(self).getScheme() in ['http', 'https'] && url(self).getHost() != ''")
        .message("write the API's base URL, as in https://edge.api.flagsmith.com/api/v1/"))]
    #[x_kube(validation = Rule::new("!self.contains('?') && !self.contains('#') && !self.contains('@')")
        .message("write the URL without user, query and fragment; the key belongs into a Secret (environmentKeySecretRef)"))]
    pub api_url: String,
    /// The Secret with the server-side environment key (`ser.…`). It needs the label `remora.dev/environment-key: "true"`.
    pub environment_key_secret_ref: SecretKeyRef,
    /// A ConfigMap with certificates (PEM) of authorities to trust besides the public ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_bundle_ref: Option<CaBundleRef>,
    /// Also follow the server's stream of changes, and fetch at once when it tells of one. Polling goes on beside it: it finds
    /// what streams do not tell, as changes of identity overrides. Needs realtime updates to be on in Flagsmith.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub realtime: Option<Realtime>,
}

/// A server's stream of changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Realtime {
    /// The base URL of the streams: what comes before `sse/environments/…`. Its origin must be an allowed one, too.
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
    /// A key of a ConfigMap, in `data` or `binaryData`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_key_ref: Option<ObjectKeyRef>,
    /// A key of a Secret that carries the label `remora.dev/environment-key: "true"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_key_ref: Option<ObjectKeyRef>,
}

/// A key of an object in the same namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectKeyRef {
    /// The object's name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The key in it.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

/// A key of a Secret in the same namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretKeyRef {
    /// The Secret's name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The key in it.
    #[serde(default = "default_secret_key")]
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

fn default_secret_key() -> String {
    "environment-key".to_owned()
}

/// A key of a ConfigMap in the same namespace that holds certificates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct CaBundleRef {
    /// The ConfigMap's name.
    #[schemars(length(min = 1, max = 253))]
    pub config_map_name: String,
    /// The key in it.
    #[serde(default = "default_ca_key")]
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

fn default_ca_key() -> String {
    "ca.crt".to_owned()
}

/// The one member that a valid [`Source`] has.
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
    /// The member that is set; none when the schema was bypassed and it is not exactly one.
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

    /// The ConfigMaps that this source reads.
    pub fn config_maps(&self) -> impl Iterator<Item = &str> {
        let document = match self.planned() {
            Some(PlannedSource::ConfigMap(config_map)) => Some(config_map.name.as_str()),
            _ => None,
        };
        let bundle = self.flagsmith.as_ref().and_then(|flagsmith| flagsmith.ca_bundle_ref.as_ref());
        document.into_iter().chain(bundle.map(|bundle| bundle.config_map_name.as_str()))
    }
}
