//! The API server's question and our answer, as far as they matter here.
//!
//! The object stays untyped: see [`crate::inject`].

use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use json_patch::Patch;
use serde::Deserialize;
use serde_json::{Value, json};

/// The only version that is registered, and that there is.
const API_VERSION: &str = "admission.k8s.io/v1";

/// A warning that is longer may be cut by the API server.
const LONGEST_WARNING: usize = 256;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Review {
    api_version: String,
    kind: String,
    request: Request,
}

/// One object that somebody wants to create.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Request {
    pub(super) uid: String,
    pub(super) kind: Kind,
    pub(super) operation: String,
    /// Empty for objects without one. Never the object's own, which a controller leaves out.
    #[serde(default)]
    pub(super) namespace: String,
    #[serde(default)]
    pub(super) dry_run: Option<bool>,
    #[serde(default)]
    pub(super) object: Value,
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
    #[error("the body is not an AdmissionReview: {0}")]
    Json(#[from] serde_json::Error),
    #[error("the body is {kind} of {api_version}, but must be AdmissionReview of {API_VERSION}")]
    Version { kind: String, api_version: String },
}

impl Request {
    pub(super) fn read(body: &[u8]) -> Result<Request, Unreadable> {
        let Review { api_version, kind, request } = serde_json::from_slice(body)?;
        if api_version != API_VERSION || kind != "AdmissionReview" {
            let short = |text: String| text.chars().filter(|c| !c.is_control()).take(64).collect();
            return Err(Unreadable::Version { kind: short(kind), api_version: short(api_version) });
        }
        Ok(request)
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
