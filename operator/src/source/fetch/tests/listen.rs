//! The stream of change events is parsed, bounded and confined like documents.

use std::{convert::Infallible, time::Duration};

use futures::{StreamExt, stream};

use super::*;
use crate::{
    api::{PlannedSource, Realtime},
    source::fetch::{Change, Listening},
};

const CHANGED: &str = ": hello\n\nevent: environment_updated\ndata: {\"updated_at\": 1763683284.5}\n\n";

/// Creates an answer that stays open for ever after these pieces.
fn events(pieces: &'static [&'static str]) -> Response<Body> {
    let told = stream::iter(pieces).map(|piece| Ok::<_, Infallible>(piece.as_bytes()));
    let body = Body::from_stream(told.chain(stream::pending()));
    Response::builder().header("content-type", "text/event-stream; charset=utf-8").body(body).unwrap()
}

async fn listen(scene: &Scene, url: &str) -> Result<Listening, Error> {
    listen_with(&scene.fetcher().with_idle(Duration::from_secs(60)), scene, url).await
}

async fn listen_with(fetcher: &Fetcher, scene: &Scene, url: &str) -> Result<Listening, Error> {
    let spec = scene.spec();
    let Some(PlannedSource::Flagsmith(flagsmith)) = spec.source.planned() else { panic!("no server") };
    fetcher.listen("shop", flagsmith, &Realtime { url: url.to_owned() }, "client/../key").await
}

fn base(upstream: &Upstream) -> String {
    format!("http://upstream.test:{}/", upstream.port)
}

#[tokio::test]
async fn stream_reports_change_and_sends_no_server_side_key() {
    let upstream = Upstream::http(|_, _| events(&[CHANGED])).await;
    let mut stream = listen(&Scene::at(&upstream), &base(&upstream)).await.unwrap();
    let expected = Change { updated_at: Some("2025-11-21T00:01:24.5Z".parse().unwrap()) };
    assert_eq!(stream.next().await.unwrap(), expected);
    let path = "/sse/environments/client%2F..%2Fkey/stream".to_owned();
    assert_eq!(upstream.asked(), [Asked { path, key: None, since: None, tag: None }]);
}

#[tokio::test]
async fn silent_stream_is_an_error() {
    let upstream = Upstream::http(|_, _| events(&[CHANGED])).await;
    let scene = Scene::at(&upstream);
    let fetcher = scene.fetcher().with_idle(Duration::from_secs(3));
    let mut stream = listen_with(&fetcher, &scene, &base(&upstream)).await.unwrap();
    stream.next().await.unwrap();
    let error = stream.next().await.unwrap_err().to_string();
    assert!(error.contains("sent nothing"), "{error}");
}

#[tokio::test]
async fn stream_that_sends_without_end_is_an_error() {
    let upstream = Upstream::http(|_, _| {
        let comments = stream::iter(std::iter::repeat_with(|| Ok::<_, Infallible>(":\n".repeat(512))));
        Response::builder().header("content-type", "text/event-stream").body(Body::from_stream(comments)).unwrap()
    })
    .await;
    let mut stream = listen(&Scene::at(&upstream), &base(&upstream)).await.unwrap();
    let error = stream.next().await.unwrap_err().to_string();
    assert!(error.contains("more than 65536 bytes in a minute"), "{error}");
}

#[tokio::test]
async fn end_of_stream_is_reported() {
    let upstream = Upstream::http(|_, _| {
        Response::builder().header("content-type", "text/event-stream").body(Body::from(CHANGED)).unwrap()
    })
    .await;
    let mut stream = listen(&Scene::at(&upstream), &base(&upstream)).await.unwrap();
    stream.next().await.unwrap();
    let error = stream.next().await.unwrap_err().to_string();
    assert!(error.contains("ended"), "{error}");
}

#[tokio::test]
async fn response_that_is_no_event_stream_is_refused() {
    let endless = Box::leak("x".repeat(5000).into_boxed_str());
    let long: &'static [&'static str] = Box::leak(Box::new([&*endless]));
    let upstream = Upstream::http(move |_, asked| match asked.path.as_str() {
        path if path.starts_with("/json/") => json_answer(&json!({"canary": CANARY})),
        path if path.starts_with("/missing/") => status(404),
        path if path.starts_with("/heads/") => {
            let mut response = events(&[]);
            response.headers_mut().insert("x-canary", "y".repeat(40_000).parse().unwrap());
            response
        }
        _ => events(long),
    })
    .await;
    let scene = Scene::at(&upstream);
    for (path, expected) in
        [("json", "is not a stream of events"), ("missing", "HTTP 404"), ("heads", "header"), ("long", "not an event")]
    {
        let opened = listen(&scene, &format!("{}{path}/", base(&upstream))).await;
        let error = match opened {
            Ok(mut stream) => stream.next().await.unwrap_err(),
            Err(error) => error,
        };
        assert!(error.to_string().contains(expected), "{path}: {error}");
        assert!(!format!("{error:?}").contains("canary"), "{error:?}");
    }
}

/// The path contains a key, so a redirect to the same server is refused, too.
#[tokio::test]
async fn redirect_of_stream_is_refused() {
    let other = Upstream::http(|_, _| events(&[CHANGED])).await;
    let away = base(&other);
    let upstream = Upstream::http(move |_, asked| {
        let mut response = status(307);
        let target = if asked.path.starts_with("/here/") { "/elsewhere/".to_owned() } else { away.clone() };
        response.headers_mut().insert("location", target.parse().unwrap());
        response
    })
    .await;
    for path in ["here/", "away/"] {
        let error = listen(&Scene::at(&upstream), &format!("{}{path}", base(&upstream))).await.unwrap_err();
        assert!(error.to_string().contains("redirects"), "{error}");
    }
    assert_eq!(upstream.asked().len(), 2);
    assert!(other.asked().is_empty());
}

#[tokio::test]
async fn stream_on_origin_that_is_not_allowed_is_refused() {
    let upstream = Upstream::http(|_, _| events(&[CHANGED])).await;
    let scene = Scene::at(&upstream);
    let elsewhere = format!("http://other.test:{}/", upstream.port);
    assert!(matches!(listen(&scene, &elsewhere).await, Err(Error::OriginNotAllowed(_))));
    let link_local = Scene { lookup: Leading::to(&["169.254.169.254"]), ..Scene::at(&upstream) };
    assert!(matches!(listen(&link_local, &base(&upstream)).await, Err(Error::AddressBlocked(_))));
    // Flagsmith's own service needs no permission, and is never at a private address.
    let public = Scene { origins: Vec::new(), ..Scene::at(&upstream) };
    let refused = listen(&public, "https://realtime.flagsmith.com/").await;
    assert!(matches!(refused, Err(Error::AddressBlocked(_))), "{refused:?}");
    assert!(upstream.asked().is_empty());
    for url in ["ftp://upstream.test/", "upstream.test", "http://a@upstream.test/", "http://upstream.test/?x"] {
        assert!(matches!(listen(&scene, url).await, Err(Error::InvalidSource(_))), "{url}");
    }
}

/// A stream at a forbidden origin is an error of the spec, reported before anything is read, even the Secret.
#[tokio::test]
async fn stream_that_is_not_allowed_is_an_error_before_any_request() {
    let upstream = Upstream::http(|_, _| json_answer(&environment(SETTLED, &[]))).await;
    let scene = Scene::at(&upstream);
    let mut spec = scene.spec();
    spec.source.flagsmith.as_mut().unwrap().realtime = Some(Realtime { url: "https://evil.test/".to_owned() });
    let fetched = scene.fetcher().fetch("shop", &spec, &FetchHints::default()).await;
    assert!(matches!(fetched, Err(Error::OriginNotAllowed(_))), "{fetched:?}");
    assert!(upstream.asked().is_empty() && scene.cluster.asked.lock().is_empty());
}

#[tokio::test]
async fn certificate_of_stream_server_is_verified() {
    let certificate = Certificate::of("upstream.test");
    let upstream = Upstream::https(&certificate, |_, _| events(&[CHANGED])).await;
    let origin = format!("https://upstream.test:{}", upstream.port);
    let url = format!("{origin}/");
    assert!(matches!(listen(&Scene::url(&origin), &url).await, Err(Error::TlsFailure { .. })));
    let trusting = Scene::url(&origin).trusting(&certificate.authority());
    let mut stream = listen(&trusting, &url).await.unwrap();
    stream.next().await.unwrap();
}
