use std::time::Duration;

use super::*;
use crate::{api::Reason, source::back_off::Retry};

async fn answered(response: impl Fn() -> Response<Body> + Send + Sync + 'static) -> Error {
    let upstream = Upstream::http(move |_, _| response()).await;
    Scene::at(&upstream).failure().await
}

#[tokio::test]
async fn each_http_status_has_its_reason() {
    for (code, reason, retry) in [
        (401, Reason::AuthenticationFailed, Retry::Reference),
        (403, Reason::AuthenticationFailed, Retry::Reference),
        (404, Reason::EnvironmentNotFound, Retry::Backoff),
        (429, Reason::RateLimited, Retry::Backoff),
        (400, Reason::UpstreamUnavailable, Retry::Backoff),
        (500, Reason::UpstreamUnavailable, Retry::Backoff),
        (503, Reason::UpstreamUnavailable, Retry::Backoff),
        (204, Reason::UpstreamUnavailable, Retry::Backoff),
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
    assert_eq!(refused.reason(), Reason::UpstreamUnavailable);
    let unknown = Scene { lookup: Leading::to(&[]), ..scene }.failure().await;
    assert!(unknown.to_string().contains("does not resolve"), "{unknown}");
}

/// Counts of used flags are sent while no document is due, so they may be the first to reach a server that is up again.
#[tokio::test]
async fn counts_that_a_server_takes_close_its_circuit() {
    let upstream = Upstream::http(|_, _| status(200)).await;
    let scene = Scene::at(&upstream);
    let (fetcher, spec) = (scene.fetcher(), scene.spec());
    let flagsmith = spec.source.flagsmith.as_ref().unwrap();
    let origin = &scene.origins[0];
    fetcher.limiter.record_unreachable(origin, "connection refused");
    while fetcher.limiter.rejection(origin, "shop").is_some() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    fetcher.send_uses("shop", flagsmith, None, &[("banner".into(), 1)].into()).await.unwrap();
    assert!(fetcher.limiter.acquire(origin, "other").await.is_ok(), "the server is known to be up");
}
