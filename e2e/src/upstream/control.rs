//! The control side: how a test controls the stub.
//!
//! | request | body | effect |
//! |---|---|---|
//! | `GET /healthz` | | 200 when the stub serves |
//! | `GET /ca.pem` | | the CA of the TLS side's certificate |
//! | `PUT /environments/{server key}` | a document | serves it |
//! | `DELETE /environments/{server key}` | | removes the key |
//! | `PUT`, `PATCH /environments/{server key}/flags/{feature}` | `{"enabled":…,"value":…}` | changes a flag |
//! | `PUT /environments/{server key}/silent-change` | `{"kind":…}` | applies a change that does not move `updated_at` |
//! | `PUT /environments/{server key}/settings` | `{"pageSize":…,"blocked":…,"usesFault":…}` | sets all; an absent member gets its default |
//! | `PUT /environments/{server key}/faults` | `[{"fault":{"kind":…},"times":…}]` | scripts faults; `[]` ends them |
//! | `GET /environments/{server key}/uses` | | the uses of flags that clients sent, by name |
//! | `GET /requests?key={server key}` | | the log of requests |
//!
//! A flag can be changed by `PUT` because `kubectl replace --raw` can send a `PUT` through the API server, but not a
//! `PATCH`.

use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, put};
use axum::{Json, Router};
use http::StatusCode;
use serde::Deserialize;
use serde_json::json;

use super::document::FlagChange;
use super::fault::Scripted;
use super::silent_change::SilentChange;
use super::store::{LoggedRequest, ScenarioStore, Settings};

const LARGEST_DOCUMENT: usize = 256 << 20;

struct Refused(anyhow::Error);

impl From<anyhow::Error> for Refused {
    fn from(error: anyhow::Error) -> Self {
        Self(error)
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        (StatusCode::BAD_REQUEST, format!("{:#}\n", self.0)).into_response()
    }
}

type Outcome = Result<Json<serde_json::Value>, Refused>;

// `kubectl replace --raw` prints only JSON, so a success is an empty object.
fn done(result: anyhow::Result<()>) -> Outcome {
    Ok(result.map(|()| Json(json!({})))?)
}

pub(super) fn router(store: Arc<ScenarioStore>, ca: String) -> Router {
    Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/ca.pem", get(async move || ca))
        .route("/environments/{key}", put(put_document).delete(remove))
        .route("/environments/{key}/flags/{feature}", put(change_flag).patch(change_flag))
        .route("/environments/{key}/silent-change", put(change_silently))
        .route("/environments/{key}/settings", put(set))
        .route("/environments/{key}/faults", put(script))
        .route("/environments/{key}/uses", get(uses))
        .route("/requests", get(log))
        .layer(DefaultBodyLimit::max(LARGEST_DOCUMENT))
        .with_state(store)
}

async fn put_document(State(store): State<Arc<ScenarioStore>>, Path(key): Path<String>, text: String) -> Outcome {
    done(store.put(&key, &text))
}

async fn remove(State(store): State<Arc<ScenarioStore>>, Path(key): Path<String>) -> Outcome {
    store.remove(&key);
    done(Ok(()))
}

async fn change_flag(
    State(store): State<Arc<ScenarioStore>>,
    Path((key, feature)): Path<(String, String)>,
    text: String,
) -> Outcome {
    let change: FlagChange = serde_json::from_str(&text).map_err(anyhow::Error::from)?;
    done(store.change_flag(&key, &feature, &change))
}

async fn change_silently(State(store): State<Arc<ScenarioStore>>, Path(key): Path<String>, text: String) -> Outcome {
    let change: SilentChange = serde_json::from_str(&text).map_err(anyhow::Error::from)?;
    done(store.change_silently(&key, &change))
}

async fn set(State(store): State<Arc<ScenarioStore>>, Path(key): Path<String>, text: String) -> Outcome {
    let settings: Settings = serde_json::from_str(&text).map_err(anyhow::Error::from)?;
    done(store.set(&key, settings))
}

async fn script(State(store): State<Arc<ScenarioStore>>, Path(key): Path<String>, text: String) -> Outcome {
    let faults: Vec<Scripted> = serde_json::from_str(&text).map_err(anyhow::Error::from)?;
    done(store.script(&key, faults))
}

async fn uses(State(store): State<Arc<ScenarioStore>>, Path(key): Path<String>) -> Outcome {
    Ok(Json(json!(store.uses(&key)?)))
}

#[derive(Deserialize)]
struct Of {
    key: Option<String>,
}

async fn log(State(store): State<Arc<ScenarioStore>>, Query(of): Query<Of>) -> Json<Vec<LoggedRequest>> {
    Json(store.log(of.key.as_deref()))
}
