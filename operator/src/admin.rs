//! The admin port: `/healthz`, `/readyz` and `/metrics`.

use std::{io, net::SocketAddr};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use tokio::{net::TcpListener, sync::watch};

use crate::metrics::Metrics;

/// What must be true before this replica is ready, by name.
pub type Gates = Vec<(&'static str, watch::Receiver<bool>)>;

/// Serves until `shutdown` is true.
pub async fn serve(
    address: SocketAddr,
    metrics: Metrics,
    gates: Gates,
    mut shutdown: watch::Receiver<bool>,
) -> io::Result<()> {
    let listener = TcpListener::bind(address).await?;
    let stopped = async move {
        // A sender that is gone has nothing more to serve for.
        let _ = shutdown.wait_for(|stop| *stop).await;
    };
    axum::serve(listener, router(metrics, gates)).with_graceful_shutdown(stopped).await
}

fn router(metrics: Metrics, gates: Gates) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready).with_state(gates))
        .route("/metrics", get(text).with_state(metrics))
}

async fn ready(State(gates): State<Gates>) -> Response {
    let closed: Vec<&str> = gates.iter().filter(|(_, gate)| !*gate.borrow()).map(|(name, _)| *name).collect();
    if closed.is_empty() {
        "ok\n".into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {}\n", closed.join(", "))).into_response()
    }
}

async fn text(State(metrics): State<Metrics>) -> Response {
    match metrics.text() {
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
    async fn readiness_waits_for_every_gate() {
        let (webhook, gate) = watch::channel(false);
        let router = router(Metrics::default(), vec![("webhook", gate)]);
        assert_eq!(get(&router, "/healthz").await.0, StatusCode::OK);
        let (status, body) = get(&router, "/readyz").await;
        assert_eq!((status, body.as_str()), (StatusCode::SERVICE_UNAVAILABLE, "not ready: webhook\n"));
        webhook.send_replace(true);
        assert_eq!(get(&router, "/readyz").await.0, StatusCode::OK);
    }

    #[tokio::test]
    async fn metrics_end_as_openmetrics_wants() {
        let (status, body) = get(&router(Metrics::default(), Vec::new()), "/metrics").await;
        assert_eq!(status, StatusCode::OK);
        assert!(body.ends_with("# EOF\n"));
    }
}
