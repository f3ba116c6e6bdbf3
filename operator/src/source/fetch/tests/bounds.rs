use std::{convert::Infallible, time::Duration};

use futures::{StreamExt, future::join_all, stream};

use super::*;

const LIMIT: usize = 64 << 10;

async fn too_large(upstream: Upstream) -> Error {
    Scene { limit: LIMIT, ..Scene::at(&upstream) }.failure().await
}

#[tokio::test]
async fn body_with_content_length_beyond_limit_is_not_read() {
    let upstream = Upstream::http(|_, _| Response::new(Body::from(vec![b' '; LIMIT + 1]))).await;
    assert!(matches!(too_large(upstream).await, Error::BodyTooLarge { limit: LIMIT, .. }));
}

#[tokio::test]
async fn endless_body_is_cut_at_limit() {
    let upstream = Upstream::http(|_, _| {
        let endless = stream::repeat_with(|| Ok::<_, Infallible>(vec![b' '; 4096]));
        Response::new(Body::from_stream(endless))
    })
    .await;
    assert!(matches!(too_large(upstream).await, Error::BodyTooLarge { limit: LIMIT, .. }));
}

#[tokio::test]
async fn compressed_body_is_bounded_by_its_inflated_size() {
    // To compress takes seconds, which the fetch does not wait for.
    let body = compressed(&vec![b' '; 32 << 20]);
    let upstream = Upstream::http(move |_, _| gzipped(body.clone())).await;
    assert!(matches!(too_large(upstream).await, Error::BodyTooLarge { limit: LIMIT, .. }));
}

#[tokio::test]
async fn size_limit_covers_all_pages_together() {
    let upstream = Upstream::http(|number, _| {
        let who = "x".repeat(LIMIT / 3);
        let mut response = json_answer(&environment(SETTLED, &[&who]));
        response.headers_mut().insert("link", format!("<?{number}>; rel=next").parse().unwrap());
        response
    })
    .await;
    let error = Scene { limit: LIMIT, ..Scene::at(&upstream) }.failure().await;
    assert!(matches!(error, Error::BodyTooLarge { .. }));
    assert!(upstream.asked().len() <= 4);
}

#[tokio::test]
async fn response_head_beyond_limit_is_refused() {
    let upstream = Upstream::http(|_, _| {
        let mut response = json_answer(&environment(SETTLED, &[]));
        response.headers_mut().insert("x-large", "x".repeat(40 << 10).parse().unwrap());
        response
    })
    .await;
    assert!(matches!(Scene::at(&upstream).failure().await, Error::BodyTooLarge { .. }));
}

#[tokio::test]
async fn broken_off_body_is_an_error() {
    let upstream = Upstream::http(|_, _| {
        let body = environment(SETTLED, &[]).to_string();
        let half = body.as_bytes()[..body.len() / 2].to_vec();
        Response::builder()
            .header("content-length", body.len())
            .body(Body::from_stream(stream::iter([Ok::<_, Infallible>(half)])))
            .unwrap()
    })
    .await;
    assert!(matches!(Scene::at(&upstream).failure().await, Error::UpstreamUnavailable { .. }));
}

#[tokio::test]
async fn broken_compression_is_an_error() {
    let upstream = Upstream::http(|_, _| {
        let response = gzipped(compressed(environment(SETTLED, &[]).to_string().as_bytes()));
        let (mut parts, body) = response.into_parts();
        parts.headers.remove("content-length");
        let cut = stream::once(async move {
            let bytes = axum::body::to_bytes(body, 1 << 20).await.unwrap();
            Ok::<_, Infallible>(bytes.slice(..bytes.len() - 6))
        });
        Response::from_parts(parts, Body::from_stream(cut))
    })
    .await;
    let error = Scene::at(&upstream).failure().await;
    assert!(matches!(error, Error::UpstreamUnavailable { .. }), "{error}");
    let unasked =
        Upstream::http(|_, _| Response::builder().header("content-encoding", "br").body(Body::from(CANARY)).unwrap())
            .await;
    assert!(matches!(Scene::at(&unasked).failure().await, Error::UpstreamUnavailable { .. }));
}

/// Creates a gzip member of this many empty blocks of DEFLATE.
fn empty_blocks(number: usize) -> Vec<u8> {
    let mut member: Vec<u8> = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    for _ in 0..number {
        member.extend([0, 0, 0, 0xff, 0xff]);
    }
    // The last block is empty, too. The checksum and the length of no content are zero.
    member.extend([1, 0, 0, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0]);
    member
}

#[tokio::test]
async fn compressed_data_without_content_is_refused() {
    let body = environment(SETTLED, &[]).to_string();
    for (data, expected) in [
        (compressed(b"").repeat(10), "data after the end of its compression"),
        ([compressed(body.as_bytes()), compressed(b"")].concat(), "data after the end of its compression"),
        (empty_blocks(100_000), "much larger compressed than decompressed"),
    ] {
        let upstream = Upstream::http(move |_, _| gzipped(data.clone())).await;
        let error = Scene::at(&upstream).failure().await;
        assert!(matches!(error, Error::UpstreamUnavailable { .. }), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[tokio::test]
async fn body_that_compression_does_not_shorten_is_read() {
    let mut chance = fastrand::Rng::with_seed(7);
    let who: String = std::iter::repeat_with(|| chance.alphanumeric()).take(400_000).collect();
    let body = environment(SETTLED, &[&who]).to_string();
    let mut encoder = GzEncoder::new(Vec::new(), Compression::none());
    encoder.write_all(body.as_bytes()).unwrap();
    let data = encoder.finish().unwrap();
    assert!(data.len() > body.len());
    let upstream = Upstream::http(move |_, _| gzipped(data.clone())).await;
    assert_eq!(identities(Scene::at(&upstream).fetch().await.unwrap()), [who]);
}

#[tokio::test]
async fn slow_body_ends_with_timeout() {
    let upstream = Upstream::http(|_, _| {
        let drip = stream::iter(0..).then(|_| async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            Ok::<_, Infallible>(vec![b' '])
        });
        Response::new(Body::from_stream(drip))
    })
    .await;
    let error = Scene { timeout: "1s", ..Scene::at(&upstream) }.failure().await;
    assert!(error.to_string().contains("within 1s"), "{error}");
}

/// A large document leaves the rest of the budget to others. A fetch that finds no budget learns the size to reserve, and
/// waits for it.
#[tokio::test]
async fn documents_beyond_memory_budget_wait() {
    let upstream = Upstream::http(|_, _| json_answer(&environment(SETTLED, &[&"x".repeat(LIMIT / 4 * 3)]))).await;
    let small = Upstream::http(|_, _| json_answer(&environment(SETTLED, &["y"]))).await;
    let mut scene = Scene { limit: LIMIT, ..Scene::at(&upstream) };
    scene.origins.push(format!("http://upstream.test:{}", small.port).parse().unwrap());
    let fetcher = scene.fetcher();
    let spec = scene.spec();
    let fetch = async |hints: FetchHints| fetcher.fetch("shop", &spec, &hints).await.unwrap();
    // The default reservation exceeds the whole budget here, so the expected size is given.
    let hint = |bytes: usize| FetchHints { expected: Some(bytes), ..FetchHints::default() };
    let first = fetch(hint(1)).await;
    let Fetched::OverBudget { expected } = fetch(hint(1)).await else { panic!("there is no room for two") };
    assert!(expected > LIMIT / 4 * 3, "{expected}");
    let mut other = scene.spec();
    other.source.flagsmith.as_mut().unwrap().api_url = format!("http://upstream.test:{}/api/v1", small.port);
    assert!(matches!(fetcher.fetch("shop", &other, &hint(1)).await.unwrap(), Fetched::Document(_)));

    let mut waiting = Box::pin(fetch(hint(expected)));
    let asked = upstream.asked().len();
    let early = tokio::time::timeout(Duration::from_millis(300), &mut waiting).await;
    assert!(early.is_err() && upstream.asked().len() == asked, "it asks when there is budget, not before");
    drop(first);
    assert!(matches!(waiting.await, Fetched::Document(_)));
}

/// The server declares the largest document to each of very many fetches, and sends no byte of it.
#[tokio::test]
async fn server_that_sends_too_slowly_delays_no_fetch_of_another_namespace() {
    let slow = Upstream::http(|_, _| {
        let nothing = stream::pending::<Result<Vec<u8>, Infallible>>();
        Response::builder().header("content-length", LIMIT).body(Body::from_stream(nothing)).unwrap()
    })
    .await;
    let fast = Upstream::http(|_, _| json_answer(&environment(SETTLED, &["a"]))).await;
    let mut scene = Scene { limit: LIMIT, timeout: "10m", ..Scene::at(&slow) };
    scene.origins.push(format!("http://upstream.test:{}", fast.port).parse().unwrap());
    scene.cluster.copy_to("noisy");
    let (fetcher, spec, mut other) = (scene.fetcher(), scene.spec(), scene.spec());
    other.source.flagsmith.as_mut().unwrap().api_url = format!("http://upstream.test:{}/api/v1", fast.port);
    let hints = FetchHints { expected: Some(1), ..FetchHints::default() };
    let many = (0..100).map(async |_| {
        while let Ok(Fetched::Busy | Fetched::OverBudget { .. }) = fetcher.fetch("noisy", &spec, &hints).await {}
    });
    let ours = async {
        while slow.asked().is_empty() || fetcher.budget.is_free() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        fetcher.fetch("shop", &other, &hints).await.unwrap()
    };
    let fetched = tokio::select! {
        _ = join_all(many) => panic!("a slow answer has ended"),
        fetched = tokio::time::timeout(Duration::from_secs(30), ours) => fetched,
    };
    assert_eq!(identities(fetched.expect("it waits for the slow server")), ["a"]);
}
