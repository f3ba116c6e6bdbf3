//! The API server's question and our answer, as far as they matter here.
//!
//! The object stays text until somebody has weighed it, and untyped after that: see [`crate::injection`].

use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use json_patch::Patch;
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

use crate::injection::quote;

/// The only version that is registered, and that there is.
const API_VERSION: &str = "admission.k8s.io/v1";

/// Bytes of a request's uid: the API server's are UUIDs.
const LONGEST_UID: usize = 64;

/// Bytes of a namespace's name.
const LONGEST_NAMESPACE: usize = 63;

/// A warning that is longer may be cut by the API server.
const LONGEST_WARNING: usize = 256;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review<'a> {
    api_version: String,
    kind: String,
    #[serde(borrow)]
    request: Request<'a>,
}

/// One object that somebody wants to create.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Request<'a> {
    pub(super) uid: String,
    pub(super) kind: Kind,
    pub(super) operation: String,
    /// Empty for objects without one. Never the object's own, which a controller leaves out.
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

/// A body that is no question.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unreadable {
    #[error("the body is not an AdmissionReview: {:?} error at line {}, column {}", .0.classify(), .0.line(), .0.column())]
    Json(#[from] serde_json::Error),
    #[error("the body is {kind} of {api_version}, but must be AdmissionReview of {API_VERSION}")]
    Version { kind: String, api_version: String },
    #[error("request.{field} has {bytes} bytes, but may have {most}")]
    Long { field: &'static str, bytes: usize, most: usize },
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
        long.map_or(Ok(request), Err)
    }

    /// The object as it came.
    pub(super) fn object(&self) -> &str {
        self.object.map_or("null", RawValue::get)
    }

    /// Whether it is about a new pod, the only thing that the registration asks about.
    pub(super) fn creates_pod(&self) -> bool {
        let Kind { group, version, kind } = &self.kind;
        self.operation == "CREATE" && (group.as_str(), version.as_str(), kind.as_str()) == ("", "v1", "Pod")
    }
}

/// Yes, with changes or without.
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

/// No, and why.
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
