//! The application's own HTTP port, and its shutdown.

use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use axum::{Json, Router};
use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use serde::Deserialize;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use super::ask::{Reply, ask_by, listen};
use super::first::{First, Question};
use super::process;
use super::watch::{History, Watch};

/// Options of the `serve` mode.
#[derive(Clone, Debug, clap::Args)]
pub struct Serve {
    #[command(flatten)]
    pub(super) question: Question,
    /// Address of the application's own port.
    #[arg(long, default_value = "0.0.0.0:8080")]
    listen: SocketAddr,
    /// Time in milliseconds for which polling continues after the termination signal.
    #[arg(long, default_value_t = 0)]
    linger: u64,
    /// File that receives the history's counts at exit; the kubelet copies it into the pod's status.
    #[arg(long, default_value = "/dev/termination-log")]
    last_words: std::path::PathBuf,
}

struct Known {
    first: First,
    question: Question,
    watch: Watch,
}

struct Failed(anyhow::Error);

impl From<anyhow::Error> for Failed {
    fn from(error: anyhow::Error) -> Self {
        Self(error)
    }
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        (StatusCode::BAD_GATEWAY, format!("{:#}\n", self.0)).into_response()
    }
}

impl Serve {
    /// Serves and polls until the termination signal, then polls for the time of `linger`.
    pub(super) async fn run(&self, first: First) -> anyhow::Result<()> {
        let listener =
            TcpListener::bind(self.listen).await.with_context(|| format!("cannot listen on {}", self.listen))?;
        let watch = Watch::default();
        let known = Arc::new(Known { first, question: self.question.clone(), watch: watch.clone() });
        let mut told = signal(SignalKind::terminate())?;
        let end = async {
            told.recv().await;
            tokio::time::sleep(Duration::from_millis(self.linger)).await;
        };
        tokio::select! {
            () = end => {}
            () = watch.follow(&self.question) => {}
            served = axum::serve(listener, router(known)) => served?,
        }
        self.conclude(&watch.history())
    }

    fn conclude(&self, history: &History) -> anyhow::Result<()> {
        let words =
            serde_json::json!({"asked": history.asked, "failed": history.failed, "first": history.failures.first()});
        fs::write(&self.last_words, words.to_string())
            .with_context(|| format!("cannot write {}", self.last_words.display()))?;
        ensure!(history.failed == 0, "requests to localhost failed: {words}");
        Ok(())
    }
}

fn router(known: Arc<Known>) -> Router {
    Router::new()
        .route("/first", get(async |State(known): State<Arc<Known>>| Json(known.first.clone())))
        .route("/watch", get(async |State(known): State<Arc<Known>>| Json(known.watch.history())))
        .route("/ask", any(forward))
        .route("/hear", get(hear))
        .route("/kill", get(kill))
        .route("/memory", get(memory))
        .with_state(known)
}

#[derive(Deserialize)]
struct Target {
    path: String,
    #[serde(default)]
    method: Option<String>,
    /// Path of a Unix domain socket to use instead of the host and port.
    #[serde(default)]
    socket: Option<String>,
    /// ID of the last event received, for event streams.
    #[serde(default)]
    last: Option<String>,
}

/// Headers that are sent on.
const FORWARDED: [&str; 6] =
    ["x-environment-key", "x-api-key", "x-remora-override", "content-type", "if-none-match", "if-modified-since"];

async fn forward(
    State(known): State<Arc<Known>>,
    Query(target): Query<Target>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Json<Reply>, Failed> {
    let request = || {
        let url = format!("{}{}", known.question.ofrep.trim_end_matches('/'), target.path);
        let mut request = Request::builder().method(target.method.as_deref().unwrap_or("GET")).uri(url);
        for name in FORWARDED {
            if let Some(value) = headers.get(name) {
                request = request.header(name, value);
            }
        }
        request.body(body).context("no request can be made of this")
    };
    Ok(Json(ask_by(target.socket.as_deref(), request()?).await?))
}

/// Returns the next event of a stream.
async fn hear(State(known): State<Arc<Known>>, Query(target): Query<Target>) -> Result<String, Failed> {
    let url = format!("{}{}", known.question.ofrep.trim_end_matches('/'), target.path);
    let mut request = Request::get(url);
    if let Some(last) = target.last {
        request = request.header("Last-Event-ID", last);
    }
    Ok(listen(request.body(Bytes::new()).context("no request can be made of this")?).await?)
}

#[derive(Deserialize)]
struct Named {
    process: String,
}

async fn kill(Query(named): Query<Named>) -> Result<&'static str, Failed> {
    process::kill(&named.process)?;
    Ok("killed\n")
}

async fn memory(Query(named): Query<Named>) -> Result<String, Failed> {
    Ok(process::memory(&named.process)?)
}
