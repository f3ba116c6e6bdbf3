//! Servers that send a document slowly: the minimum rate ends the fetch, and slow links that keep it are served.

use std::{cell::Cell, convert::Infallible, time::Duration};

use futures::{StreamExt, stream};
use tokio::time::Instant;

use super::*;
use crate::api::Reason;

/// Timeout of a fetch, long after every deadline of the minimum rate.
const TIMEOUT: &str = "10m";

/// Returns an answer whose body is one piece after another, with a pause of a second before each.
fn dripped(pieces: Vec<Vec<u8>>) -> Response<Body> {
    let drip = stream::iter(pieces).then(|piece| async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        Ok::<_, Infallible>(piece)
    });
    Response::new(Body::from_stream(drip))
}

fn pieces(bytes: &[u8], size: usize) -> Vec<Vec<u8>> {
    bytes.chunks(size).map(<[u8]>::to_vec).collect()
}

/// Fetches while the clock runs a hundred times as fast. Returns the outcome, and the time that it took on this clock.
async fn fetch(upstream: &Upstream) -> (Result<Fetched, Error>, Duration) {
    let scene = Scene { timeout: TIMEOUT, ..Scene::at(upstream) };
    let (began, is_done) = (Instant::now(), Cell::new(false));
    let fetched = async {
        let fetched = scene.fetch().await;
        is_done.set(true);
        (fetched, began.elapsed())
    };
    let clock = async {
        while !is_done.get() {
            tokio::time::sleep(Duration::from_millis(5)).await;
            tokio::time::pause();
            tokio::time::advance(Duration::from_millis(500)).await;
            tokio::time::resume();
        }
    };
    tokio::join!(fetched, clock).0
}

/// The server declares the largest document, or does not declare the length, or has compressed the document.
#[tokio::test]
async fn dripped_body_ends_long_before_timeout() {
    for (name, value) in [("content-length", "65536"), ("x-length", "unknown"), ("content-encoding", "gzip")] {
        let upstream = Upstream::http(move |_, _| {
            let body = environment(SETTLED, &[&CANARY.repeat(100)]).to_string();
            let mut response = dripped(pieces(&compressed(body.as_bytes()), 1));
            response.headers_mut().insert(name, value.parse().unwrap());
            response
        })
        .await;
        let (fetched, took) = fetch(&upstream).await;
        let error = fetched.unwrap_err();
        assert_eq!(error.reason(), Reason::AnswerTooSlow, "{error}");
        assert!(error.to_string().contains("less than 8 KiB a second for 15 s"), "{error}");
        assert!(!format!("{error} {error:?}").contains("canary"), "{error:?}");
        assert!(took < Duration::from_secs(40), "{took:?}");
    }
}

/// Each page arrives fast, but there is no end of pages.
#[tokio::test]
async fn dripped_pages_end_long_before_timeout() {
    let upstream = Upstream::http(|number, _| {
        let mut response = dripped(vec![environment(SETTLED, &["a"]).to_string().into_bytes()]);
        response.headers_mut().insert("link", format!("<?{number}>; rel=next").parse().unwrap());
        response
    })
    .await;
    let (fetched, took) = fetch(&upstream).await;
    let error = fetched.unwrap_err();
    assert_eq!(error.reason(), Reason::AnswerTooSlow, "{error}");
    assert!(error.to_string().contains("less than 256 KiB a second for 60 s"), "{error}");
    assert!(took < Duration::from_secs(90), "{took:?}");
}

/// 10 KiB a second, or 600 bytes a second of a compressed document.
#[tokio::test]
async fn body_of_slow_honest_link_is_read() {
    let who: Vec<String> = (0..5_000).map(|number| format!("customer number {number}")).collect();
    let who: Vec<&str> = who.iter().map(String::as_str).collect();
    let body = environment(SETTLED, &who).to_string().into_bytes();
    let packed = compressed(&body);
    for (pieces, encoding) in [(pieces(&body, 10 << 10), "identity"), (pieces(&packed, 600), "gzip")] {
        assert!(pieces.len() >= 18, "{} pieces of {encoding}", pieces.len());
        let upstream = Upstream::http(move |_, _| {
            let mut response = dripped(pieces.clone());
            response.headers_mut().insert("content-encoding", encoding.parse().unwrap());
            response
        })
        .await;
        let (fetched, _) = fetch(&upstream).await;
        assert_eq!(identities(fetched.unwrap()).len(), who.len(), "{encoding}");
    }
}
