//! The admin port: `/healthz`, `/readyz` and `/metrics`.

use std::{
    fmt, io,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Extension, Router,
    body::Bytes,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use tokio::sync::{Mutex, watch};

use crate::{
    controller::metrics::Metrics,
    listener::{self, Limits, Transport, Useful},
};

/// Time for which the rendered metrics are reused. Slow readers share one text, so at most one text per second is in
/// memory for them.
const TEXT_REUSE: Duration = Duration::from_secs(1);

/// Readiness conditions of this replica, by name. The replica is ready if all are true.
pub type Gates = Vec<(&'static str, watch::Receiver<bool>)>;

/// Serves the admin port until `shutdown` is true.
///
/// # Errors
/// If the port cannot be bound.
pub async fn serve(
    address: SocketAddr,
    metrics: Metrics,
    gates: Gates,
    shutdown: watch::Receiver<bool>,
) -> io::Result<()> {
    let listener = listener::bind(address)?;
    listener::serve(listener, router(metrics, gates), Transport::Plain, Limits::admin(), shutdown).await;
    Ok(())
}

fn router(metrics: Metrics, gates: Gates) -> Router {
    Router::new()
        // Health requests most likely come from a kubelet, so their connections keep their places.
        .route("/healthz", get(|| async { (Extension(Useful), "ok\n") }))
        .route("/readyz", get(ready).with_state(gates))
        .route("/metrics", get(text).with_state(Arc::new(RenderedMetrics { metrics, latest: Mutex::default() })))
}

async fn ready(State(gates): State<Gates>) -> Response {
    let closed: Vec<&str> = gates.iter().filter(|(_, gate)| !*gate.borrow()).map(|(name, _)| *name).collect();
    if closed.is_empty() {
        (Extension(Useful), "ok\n").into_response()
    } else {
        let text = format!("not ready: {}\n", closed.join(", "));
        (StatusCode::SERVICE_UNAVAILABLE, Extension(Useful), text).into_response()
    }
}

/// Rendered metrics, shared by all requests within [`TEXT_REUSE`].
struct RenderedMetrics {
    metrics: Metrics,
    latest: Mutex<Option<(Instant, Bytes)>>,
}

impl RenderedMetrics {
    async fn latest(&self) -> Result<Bytes, fmt::Error> {
        let mut latest = self.latest.lock().await;
        if let Some((_, text)) = latest.as_ref().filter(|(rendered_at, _)| rendered_at.elapsed() < TEXT_REUSE) {
            return Ok(text.clone());
        }
        let text = Bytes::from(self.metrics.text()?);
        *latest = Some((Instant::now(), text.clone()));
        Ok(text)
    }
}

async fn text(State(rendered): State<Arc<RenderedMetrics>>) -> Response {
    match rendered.latest().await {
        Ok(text) => ([(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text)
            .into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use axum::{body::Body, http::Request};
    use http_body_util::BodyExt;
    use tower::ServiceExt;

    use super::*;

    async fn get(router: &Router, path: &str) -> (StatusCode, String) {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = router.clone().oneshot(request).await.unwrap();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn readiness_requires_every_gate() {
        let (webhook, gate) = watch::channel(false);
        let router = router(Metrics::default(), vec![("webhook", gate)]);
        assert_eq!(get(&router, "/healthz").await.0, StatusCode::OK);
        let (status, body) = get(&router, "/readyz").await;
        assert_eq!((status, body.as_str()), (StatusCode::SERVICE_UNAVAILABLE, "not ready: webhook\n"));
        webhook.send_replace(true);
        assert_eq!(get(&router, "/readyz").await.0, StatusCode::OK);
    }

    #[tokio::test]
    async fn metrics_end_with_openmetrics_terminator() {
        let (status, body) = get(&router(Metrics::default(), Vec::new()), "/metrics").await;
        assert_eq!(status, StatusCode::OK);
        assert!(body.ends_with("# EOF\n"));
    }
}
