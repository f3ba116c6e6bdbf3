use std::time::Duration;

use super::{super::Retry, *};

async fn answered(response: impl Fn() -> Response<Body> + Send + Sync + 'static) -> Error {
    let upstream = Upstream::http(move |_, _| response()).await;
    Scene::at(&upstream).failure().await
}

#[tokio::test]
async fn each_http_status_has_its_reason() {
    for (code, reason, retry) in [
        (401, "AuthenticationFailed", Retry::Slow),
        (403, "AuthenticationFailed", Retry::Slow),
        (404, "EnvironmentNotFound", Retry::Backoff),
        (429, "RateLimited", Retry::Backoff),
        (400, "UpstreamUnavailable", Retry::Backoff),
        (500, "UpstreamUnavailable", Retry::Backoff),
        (503, "UpstreamUnavailable", Retry::Backoff),
        (204, "UpstreamUnavailable", Retry::Backoff),
    ] {
        let error = answered(move || status(code)).await;
        assert_eq!((error.reason(), error.retry()), (reason, retry), "{code}");
    }
}

#[tokio::test]
async fn retry_after_of_server_is_honoured() {
    for code in [429, 503] {
        let error = answered(move || {
            let mut response = status(code);
            response.headers_mut().insert("retry-after", "120".parse().unwrap());
            response
        })
        .await;
        assert_eq!(error.retry(), Retry::After(Duration::from_secs(120)), "{code}");
    }
}

#[tokio::test]
async fn refused_connection_is_reported_as_unavailable() {
    let upstream = Upstream::http(|_, _| status(200)).await;
    let scene = Scene::at(&upstream);
    drop(upstream);
    let refused = scene.failure().await;
    assert_eq!(refused.reason(), "UpstreamUnavailable");
    let unknown = Scene { lookup: Leading::to(&[]), ..scene }.failure().await;
    assert!(unknown.to_string().contains("does not resolve"), "{unknown}");
}
