//! Port for webhooks of sources: `POST /flagsmith/NAMESPACE/ENVIRONMENT`, and `POST /flagsmith/NAMESPACE` for a webhook of a
//! whole organisation.

use std::{io, net::SocketAddr};

use axum::{
    Extension, Router,
    body::Bytes,
    extract::{DefaultBodyLimit, Path, State},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
    routing::post,
};
use tokio::sync::watch;

use crate::{
    listener::{self, Limits, Transport, Useful},
    source::receiver::{Verdict, WebhookReceiver},
};

/// Header with the signature of the body.
const SIGNATURE: &str = "x-flagsmith-signature";

/// Serves the port until `shutdown` is true. Plain HTTP: an Ingress or a gateway before it ends TLS.
///
/// # Errors
/// If the port cannot be bound.
pub(super) async fn serve(
    address: SocketAddr,
    receiver: WebhookReceiver,
    shutdown: watch::Receiver<bool>,
) -> io::Result<()> {
    let listener = listener::bind(address)?;
    tracing::info!(%address, "the receiver of webhooks listens");
    listener::serve(listener, router(receiver), Transport::Plain, Limits::receiver(), shutdown).await;
    Ok(())
}

/// Returns the router of the port.
fn router(receiver: WebhookReceiver) -> Router {
    Router::new()
        .route("/flagsmith/{namespace}", post(of_namespace))
        .route("/flagsmith/{namespace}/{environment}", post(of_environment))
        .layer(DefaultBodyLimit::max(Limits::receiver().largest_body))
        .with_state(receiver)
}

async fn of_namespace(
    State(receiver): State<WebhookReceiver>,
    Path(namespace): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    answer(receiver.receive(&namespace, None, signature(&headers), &body))
}

async fn of_environment(
    State(receiver): State<WebhookReceiver>,
    Path((namespace, environment)): Path<(String, String)>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    answer(receiver.receive(&namespace, Some(&environment), signature(&headers), &body))
}

fn signature(headers: &HeaderMap) -> Option<&str> {
    headers.get(SIGNATURE)?.to_str().ok()
}

fn answer(verdict: Verdict) -> Response {
    match verdict {
        Verdict::Accepted => (StatusCode::ACCEPTED, Extension(Useful), "a fetch follows\n").into_response(),
        Verdict::Refused => {
            let text = "no environment of this path has a secret that signs the body: check the path, the webhook's secret in \
                        Flagsmith and spec.source.flagsmith.webhook\n";
            (StatusCode::UNAUTHORIZED, text).into_response()
        }
        Verdict::NotLeading => {
            (StatusCode::SERVICE_UNAVAILABLE, "another replica reconciles: try again\n").into_response()
        }
        Verdict::Starting => {
            let text = "this replica has just started and does not know all secrets yet: try again\n";
            (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::{body::Body, http::Request};
    use ring::hmac;
    use tower::ServiceExt;

    use super::*;
    use crate::{
        api::NamespacedName,
        source::{receiver::SigningSecret, trigger::TriggerSender},
    };

    const SECRET: &[u8] = b"a secret of the shop";

    async fn post(path: &str, signed: &[u8], body: &[u8]) -> StatusCode {
        let (sender, _requests) = TriggerSender::new();
        let receiver = WebhookReceiver::default();
        receiver.set_leading(true);
        receiver.set_target(
            &NamespacedName::new("shop", "storefront"),
            &"uid".into(),
            SigningSecret::new(SECRET),
            &sender,
        );
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, SECRET), signed);
        let signature: String = tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        let request = Request::post(path).header("X-Flagsmith-Signature", signature);
        let request = request.body(Body::from(body.to_vec())).unwrap();
        router(receiver).oneshot(request).await.unwrap().status()
    }

    #[tokio::test]
    async fn signature_covers_the_whole_body() {
        assert_eq!(post("/flagsmith/shop/storefront", b"{}", b"{}").await, StatusCode::ACCEPTED);
        assert_eq!(post("/flagsmith/shop", b"{}", b"{}").await, StatusCode::ACCEPTED);
        assert_eq!(post("/flagsmith/shop/storefront", b"{}", b"{ }").await, StatusCode::UNAUTHORIZED);
        assert_eq!(post("/flagsmith/shop/gone", b"{}", b"{}").await, StatusCode::UNAUTHORIZED);
        assert_eq!(post("/other", b"{}", b"{}").await, StatusCode::NOT_FOUND);
        let large = vec![b' '; Limits::receiver().largest_body + 1];
        assert_eq!(post("/flagsmith/shop", &large, &large).await, StatusCode::PAYLOAD_TOO_LARGE);
        assert_eq!(post("/flagsmith/shop", &large[1..], &large[1..]).await, StatusCode::ACCEPTED);
    }
}
