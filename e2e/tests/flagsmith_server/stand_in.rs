//! A stand-in for a Flagsmith server: takes the requests that make a project, builds the document from them, and has a
//! sidecar answer.

use std::sync::{Arc, Mutex};

use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use http::{HeaderMap, Method, StatusCode, Uri};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::admin::http as client;

#[derive(Default)]
struct Content {
    next: i64,
    features: Vec<Value>,
    segments: Vec<Value>,
    identities: Vec<Value>,
    deleted: bool,
    sidecar: Option<String>,
    lie: Option<String>,
}

/// The state of the stand-in, and the client that asks the sidecar.
type Shared = Arc<(Mutex<Content>, reqwest::Client)>;

pub(crate) struct StandIn {
    pub(crate) url: String,
    content: Shared,
}

impl StandIn {
    pub(crate) async fn start() -> StandIn {
        let content: Shared = Arc::new((Mutex::default(), client()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/api/v1/", listener.local_addr().unwrap());
        let router = Router::new().fallback(answer).with_state(Arc::clone(&content));
        tokio::spawn(async move { axum::serve(listener, router).await });
        StandIn { url, content }
    }

    /// Answers questions with those of this sidecar.
    pub(crate) fn answer_by(&self, sidecar: &str) {
        self.content.0.lock().unwrap().sidecar = Some(sidecar.to_owned());
    }

    /// Answers another value for this flag.
    pub(crate) fn lie_about(&self, flag: &str) {
        self.content.0.lock().unwrap().lie = Some(flag.to_owned());
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert!(self.content.0.lock().unwrap().deleted, "the project was not deleted");
        }
    }
}

async fn answer(State(content): State<Shared>, method: Method, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    let path = uri.path().strip_prefix("/api/v1/").unwrap_or_default().to_owned();
    if ["flags/", "identities/"].contains(&path.as_str()) {
        return by_sidecar(&content, method, &path, &headers, body).await;
    }
    let mut content = content.0.lock().unwrap();
    if path == "environment-document/" && headers["x-environment-key"] == "ser.stand-in" {
        return Json(content.document()).into_response();
    }
    assert_eq!(headers["authorization"], "Api-Key prefix.secret", "{path}");
    let body = if body.is_empty() { Value::Null } else { serde_json::from_slice(&body).unwrap() };
    content.administer(&method, &path, body)
}

async fn by_sidecar(content: &Shared, method: Method, path: &str, headers: &HeaderMap, body: Bytes) -> Response {
    let (sidecar, lie) = {
        let content = content.0.lock().unwrap();
        (content.sidecar.clone().expect("a sidecar"), content.lie.clone())
    };
    let request = content
        .1
        .request(method, format!("{sidecar}{path}"))
        .header("X-Environment-Key", &headers["x-environment-key"]);
    let mut answer: Value = request.body(body).send().await.unwrap().json().await.unwrap();
    let flags = if answer.is_array() { &mut answer } else { &mut answer["flags"] };
    for flag in flags.as_array_mut().unwrap() {
        if flag["feature"]["name"].as_str() == lie.as_deref() {
            flag["feature_state_value"] = json!("a lie");
        }
    }
    Json(answer).into_response()
}

impl Content {
    fn id(&mut self) -> i64 {
        self.next += 1;
        self.next
    }

    /// Returns the entry with this id, in its text form.
    fn entry<'a>(entries: &'a mut [Value], id: &str) -> &'a mut Value {
        let id: i64 = id.parse().expect("an id");
        entries.iter_mut().find(|entry| entry["id"] == id).unwrap_or_else(|| panic!("no entry {id}"))
    }

    fn administer(&mut self, method: &Method, path: &str, mut body: Value) -> Response {
        let id = self.id();
        let parts: Vec<&str> = path.trim_end_matches('/').split('/').collect();
        let answer = match (method.as_str(), parts.as_slice()) {
            ("GET", ["organisations"]) => json!({"results": [{"id": id}]}),
            ("POST", ["projects"]) => json!({"id": id}),
            ("POST", ["environments"]) => json!({"id": id, "api_key": "stand-in"}),
            ("PUT", ["environments", "stand-in"]) => json!({"id": id}),
            ("POST", ["environments", "stand-in", "api-keys"]) => json!({"id": id, "key": "ser.stand-in"}),
            ("POST", ["projects", _, "features"]) => {
                body["id"] = json!(id);
                body["options"] = json!([]);
                self.features.push(body.clone());
                body
            }
            ("POST", ["projects", _, "features", feature, "mv-options"]) => {
                body["id"] = json!(id);
                let options = Self::entry(&mut self.features, feature)["options"].as_array_mut().unwrap();
                options.push(body.clone());
                body
            }
            ("POST", ["projects", _, "segments"]) => {
                body["id"] = json!(id);
                body["feature_states"] = json!([]);
                self.segments.push(body.clone());
                body
            }
            ("POST", ["environments", "stand-in", "features", feature, "create-segment-override"]) => {
                let segment = body["feature_segment"]["segment"].to_string();
                let value = &body["feature_state_value"]["string_value"];
                let mut state = self.state(feature, &body["enabled"], value, id);
                state["multivariate_feature_state_values"] = self.chosen(feature, &body);
                let segment = Self::entry(&mut self.segments, &segment);
                state["feature_segment"] = json!({"priority": 0});
                segment["feature_states"].as_array_mut().unwrap().push(state);
                json!({"id": id})
            }
            ("POST", ["environments", "stand-in", "identities"]) => {
                body["id"] = json!(id);
                body["identity_features"] = json!([]);
                self.identities.push(body.clone());
                body
            }
            ("POST", ["environments", "stand-in", "identities", identity, "featurestates"]) => {
                let feature = body["feature"].to_string();
                let mut state = self.state(&feature, &body["enabled"], &body["feature_state_value"], id);
                state["multivariate_feature_state_values"] = self.chosen(&feature, &body);
                Self::entry(&mut self.identities, identity)["identity_features"].as_array_mut().unwrap().push(state);
                json!({"id": id})
            }
            ("DELETE", ["projects", _]) => {
                self.deleted = true;
                return StatusCode::NO_CONTENT.into_response();
            }
            other => panic!("nobody asks for {other:?}"),
        };
        Json(answer).into_response()
    }

    /// Returns a state of a feature, as documents hold it.
    fn state(&mut self, feature: &str, enabled: &Value, value: &Value, id: i64) -> Value {
        let feature = Self::entry(&mut self.features, feature);
        json!({"feature": {"id": feature["id"], "name": feature["name"], "type": feature["type"]}, "enabled": enabled,
            "feature_state_value": value, "django_id": id, "multivariate_feature_state_values": []})
    }

    /// Returns the variants that an override of a feature chooses, as documents hold them.
    fn chosen(&mut self, feature: &str, body: &Value) -> Value {
        let variants = body["multivariate_feature_state_values"].as_array().cloned().unwrap_or_default();
        let options = Self::entry(&mut self.features, feature)["options"].as_array().unwrap();
        let variants = variants.iter().map(|variant| {
            let chosen = &variant["multivariate_feature_option"];
            let option = options.iter().find(|option| option["id"] == *chosen).expect("a known option");
            variant_of(option, &variant["percentage_allocation"])
        });
        variants.collect()
    }

    fn document(&mut self) -> Value {
        let mut states = Vec::new();
        for feature in self.features.clone() {
            let id = feature["id"].as_i64().unwrap();
            let mut state = self.state(&id.to_string(), &feature["default_enabled"], &feature["initial_value"], id);
            let options = feature["options"].as_array().unwrap();
            let variants = options.iter().map(|option| variant_of(option, &option["default_percentage_allocation"]));
            state["multivariate_feature_state_values"] = variants.collect();
            states.push(state);
        }
        let mut segments = self.segments.clone();
        for condition in segments.iter_mut().flat_map(conditions) {
            condition["property_"] = condition["property"].take();
        }
        json!({"id": 1, "api_key": "stand-in", "name": "remora", "updated_at": "2026-11-20T00:00:00+00:00",
            "project": {"id": 1, "hide_disabled_flags": false, "segments": segments}, "feature_states": states,
            "identity_overrides": self.identities})
    }
}

fn conditions(segment: &mut Value) -> impl Iterator<Item = &mut Value> {
    segment["rules"][0]["rules"][0]["conditions"].as_array_mut().into_iter().flatten()
}

fn variant_of(option: &Value, share: &Value) -> Value {
    json!({"id": option["id"], "percentage_allocation": share,
        "multivariate_feature_option": {"id": option["id"], "value": option["string_value"]}})
}
