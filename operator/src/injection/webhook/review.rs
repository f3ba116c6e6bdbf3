//! The AdmissionReview of the API server and the answer to it, limited to the fields that the webhook uses.
//!
//! The object stays text until its weight is known, and untyped JSON after that: see [`crate::injection`].

use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use json_patch::Patch;
use k8s_openapi::api::core::v1::Pod;
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

use crate::{
    api::names::{EnvironmentName, annotation, is_object_name},
    injection::{annotations::environment_names, quote},
    watched::{partial::PartialObject, selection::Selection},
};

/// The only version in the registration, and the only one that exists.
const API_VERSION: &str = "admission.k8s.io/v1";

/// Largest length of a request's UID in bytes. The API server uses UUIDs. A request with a longer UID is refused.
const LONGEST_UID: usize = 64;

/// Largest length of a namespace's name in bytes. A request with a longer name is refused.
const LONGEST_NAMESPACE: usize = 63;

/// Largest length of a warning in characters. Longer warnings are cut, because the API server may cut them too.
const LONGEST_WARNING: usize = 256;

/// Largest length in bytes of an annotation that names environments. The API server allows no object more annotations.
const LONGEST_INJECT: usize = 256 << 10;

/// Metadata of a pod that says which environments the pod requests.
struct Inject;

impl Selection for Inject {
    fn annotation(key: &str) -> usize {
        if key == annotation::INJECT { LONGEST_INJECT } else { 0 }
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review<'a> {
    api_version: String,
    kind: String,
    #[serde(borrow)]
    request: Request<'a>,
}

/// A request to admit one object.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Request<'a> {
    pub(super) uid: String,
    pub(super) kind: Kind,
    pub(super) operation: String,
    /// Namespace of the request; empty for cluster-scoped objects. It replaces the pod's `metadata.namespace`, which
    /// controllers omit.
    #[serde(default)]
    pub(super) namespace: String,
    #[serde(default)]
    pub(super) dry_run: Option<bool>,
    #[serde(borrow, default)]
    object: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Kind {
    group: String,
    version: String,
    kind: String,
}

/// Error: the body is not a valid AdmissionReview.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unreadable {
    #[error("the body is not an AdmissionReview: {:?} error at line {}, column {}", .0.classify(), .0.line(), .0.column())]
    Json(#[from] serde_json::Error),
    #[error("the body is {kind} of {api_version}, but must be AdmissionReview of {API_VERSION}")]
    Version { kind: String, api_version: String },
    #[error("request.{field} has {bytes} bytes, but may have {most}")]
    Long { field: &'static str, bytes: usize, most: usize },
    #[error("request.namespace is {0}, which no namespace can have as its name")]
    Namespace(String),
}

impl Request<'_> {
    pub(super) fn read(body: &[u8]) -> Result<Request<'_>, Unreadable> {
        let Review { api_version, kind, request } = serde_json::from_slice(body)?;
        if api_version != API_VERSION || kind != "AdmissionReview" {
            return Err(Unreadable::Version { kind: quote(&kind), api_version: quote(&api_version) });
        }
        let long = |field, text: &str, most| {
            (text.len() > most).then_some(Unreadable::Long { field, bytes: text.len(), most })
        };
        let long = long("uid", &request.uid, LONGEST_UID).or(long("namespace", &request.namespace, LONGEST_NAMESPACE));
        // The name becomes a part of the URL of a request to the API server.
        let is_name = request.namespace.is_empty() || is_object_name(&request.namespace);
        let invalid = (!is_name).then(|| Unreadable::Namespace(quote(&request.namespace)));
        long.or(invalid).map_or(Ok(request), Err)
    }

    /// Returns the text of the object, unchanged.
    pub(super) fn object(&self) -> &str {
        self.object.map_or("null", RawValue::get)
    }

    /// Lists the environments that the pod requests, without parsing the rest of the pod. Empty if it names none, or not
    /// validly.
    pub(super) fn environments(&self) -> Vec<EnvironmentName> {
        let pod = serde_json::from_str::<PartialObject<Pod, Inject>>(self.object());
        let annotations = pod.ok().and_then(|pod| pod.metadata.annotations).unwrap_or_default();
        let list = annotations.get(annotation::INJECT);
        list.and_then(|list| environment_names(list).ok()).unwrap_or_default()
    }

    /// True if the request creates a pod. The registration sends no other requests.
    pub(super) fn creates_pod(&self) -> bool {
        let Kind { group, version, kind } = &self.kind;
        self.operation == "CREATE" && (group.as_str(), version.as_str(), kind.as_str()) == ("", "v1", "Pod")
    }
}

/// Builds an answer that admits the object, with a patch if there is one.
pub(super) fn allow(uid: &str, patch: Option<&Patch>, warnings: &[String]) -> Result<Value, serde_json::Error> {
    let mut response = json!({"uid": uid, "allowed": true});
    if let Some(patch) = patch {
        response["patchType"] = json!("JSONPatch");
        response["patch"] = json!(BASE64.encode(serde_json::to_vec(patch)?));
    }
    if !warnings.is_empty() {
        let short = |warning: &String| warning.chars().take(LONGEST_WARNING).collect::<String>();
        response["warnings"] = warnings.iter().map(short).collect();
    }
    Ok(review(&response))
}

/// Builds an answer that denies the object with this message.
pub(super) fn deny(uid: &str, message: &str) -> Value {
    review(&json!({
        "uid": uid,
        "allowed": false,
        "status": {"code": 403, "reason": "Forbidden", "message": message},
    }))
}

fn review(response: &Value) -> Value {
    json!({"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environments(object: &str) -> Vec<String> {
        let request = json!({"uid": "u", "kind": {"group": "", "version": "v1", "kind": "Pod"}, "operation": "CREATE"});
        let mut review = json!({"apiVersion": API_VERSION, "kind": "AdmissionReview", "request": request});
        review["request"]["object"] = json!("OBJECT");
        let body = review.to_string().replace("\"OBJECT\"", object);
        let request = Request::read(body.as_bytes()).unwrap();
        request.environments().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn environments_are_those_of_inject_annotation() {
        let pod = |annotations: &Value| {
            let metadata = json!({"generateName": "web-", "creationTimestamp": null, "annotations": annotations});
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [{"name": "web"}]}})
        };
        let named = |annotations: &Value| environments(&pod(annotations).to_string());
        assert_eq!(named(&json!({"remora.dev/inject": "a, b", "remora.dev/port": "x", "team": {}})), ["a", "b"]);
        let spaced = format!("a,{}b", " ".repeat(100_000));
        assert_eq!(named(&json!({"remora.dev/inject": spaced})), ["a", "b"]);
        for annotations in [
            json!(null),
            json!({}),
            json!({"remora.dev/inject": "false"}),
            json!({"remora.dev/inject": 7}),
            json!({"remora.dev/inject": "A"}),
        ] {
            assert!(named(&annotations).is_empty(), "{annotations}");
        }
        for object in ["null", "[]", "{}", r#"{"metadata": null}"#] {
            assert!(environments(object).is_empty(), "{object}");
        }
    }
}
