use super::super::{Comparison, FullRead};
use super::*;

/// Starts a server whose document last changed at [`SETTLED`].
async fn settled() -> Upstream {
    Upstream::http(
        |_, asked| if asked.since.is_some() { status(304) } else { json_answer(&environment(SETTLED, &["a"])) },
    )
    .await
}

#[tokio::test]
async fn cached_document_is_requested_with_its_own_time() {
    let upstream = settled().await;
    let scene = Scene::at(&upstream);
    let hints = FetchHints { cached: Some(cached_version(scene.fetch().await.unwrap())), ..FetchHints::default() };
    let again = scene.fetcher().fetch("shop", &scene.spec(), &hints).await.unwrap();
    assert!(matches!(again, Fetched::Unchanged { read: None }));
    assert_eq!(upstream.asked()[1].since.as_deref(), Some("Fri, 20 Nov 2026 00:00:00 GMT"));
}

#[tokio::test]
async fn document_changed_within_this_second_is_fetched_again() {
    let upstream = Upstream::http(|_, _| json_answer(&environment(&jiff::Timestamp::now().to_string(), &[]))).await;
    let scene = Scene::at(&upstream);
    let hints = FetchHints { cached: Some(cached_version(scene.fetch().await.unwrap())), ..FetchHints::default() };
    scene.fetcher().fetch("shop", &scene.spec(), &hints).await.unwrap();
    assert_eq!(upstream.asked()[1].since, None);
}

/// Starts a server whose document has this entity tag.
async fn tagged(link: Option<&'static str>) -> Upstream {
    Upstream::http(move |_, asked| {
        if asked.tag.as_deref() == Some("\"7\"") {
            return status(304);
        }
        let mut answer = json_answer(&environment(SETTLED, &["a"]));
        answer.headers_mut().insert("etag", "\"7\"".parse().unwrap());
        if let Some(link) = link.filter(|_| !asked.path.contains("page")) {
            answer.headers_mut().insert("link", link.parse().unwrap());
        }
        answer
    })
    .await
}

#[tokio::test]
async fn content_is_compared_by_entity_tag_of_server() {
    let upstream = tagged(None).await;
    let scene = Scene::at(&upstream);
    let cached = Some(cached_version(scene.fetch().await.unwrap()));
    let hints = FetchHints { cached: cached.clone(), comparison: Comparison::Content, ..FetchHints::default() };
    let again = scene.fetcher().fetch("shop", &scene.spec(), &hints).await.unwrap();
    assert!(matches!(again, Fetched::Unchanged { read: Some(FullRead { bytes: 0, .. }) }), "{again:?}");
    assert_eq!(upstream.asked()[1].since, None, "the tag is the only condition");
    let hints = FetchHints { cached, ..FetchHints::default() };
    scene.fetcher().fetch("shop", &scene.spec(), &hints).await.unwrap();
    assert!(upstream.asked()[2].since.is_some() && upstream.asked()[2].tag.is_none());
}

#[tokio::test]
async fn content_is_read_whole_from_server_without_usable_entity_tag() {
    for upstream in [settled().await, tagged(Some("<?page=2>; rel=next")).await] {
        let scene = Scene::at(&upstream);
        let hints = FetchHints {
            cached: Some(cached_version(scene.fetch().await.unwrap())),
            comparison: Comparison::Content,
            ..FetchHints::default()
        };
        let again = scene.fetcher().fetch("shop", &scene.spec(), &hints).await.unwrap();
        let Fetched::Document(arrived) = &again else { panic!("{again:?}") };
        assert!(arrived.read.as_ref().is_some_and(|read| read.bytes > 0));
        assert!(upstream.asked().iter().all(|asked| asked.since.is_none() && asked.tag.is_none()));
    }
}

#[tokio::test]
async fn unconditional_request_answered_with_304_is_an_error() {
    let upstream = Upstream::http(|_, _| status(304)).await;
    let error = Scene::at(&upstream).failure().await;
    assert!(error.to_string().contains("304"), "{error}");
}

#[tokio::test]
async fn other_key_is_fetched_without_condition() {
    let upstream = settled().await;
    let scene = Scene::at(&upstream);
    let hints = FetchHints { cached: Some(cached_version(scene.fetch().await.unwrap())), ..FetchHints::default() };
    scene.cluster.secret("flagsmith", "environment-key", "ser.other");
    let fetched = scene.fetcher().fetch("shop", &scene.spec(), &hints).await.unwrap();
    assert!(matches!(fetched, Fetched::Document(_)));
    assert_eq!(upstream.asked()[1].since, None);
}

#[tokio::test]
async fn refused_key_is_not_retried_until_it_changes() {
    let upstream = Upstream::http(|_, asked| {
        if asked.key.as_deref() == Some("ser.good") { json_answer(&environment(SETTLED, &[])) } else { status(403) }
    })
    .await;
    let scene = Scene::at(&upstream);
    let Error::AuthenticationFailed { key, .. } = scene.failure().await else { panic!("not refused") };
    let hints = FetchHints { rejected_key: Some(key), ..FetchHints::default() };
    let again = scene.fetcher().fetch("shop", &scene.spec(), &hints).await.unwrap();
    assert!(matches!(again, Fetched::StillRefused));
    assert_eq!(upstream.asked().len(), 1);
    scene.cluster.secret("flagsmith", "environment-key", "ser.good");
    let mended = scene.fetcher().fetch("shop", &scene.spec(), &hints).await.unwrap();
    assert!(matches!(mended, Fetched::Document(_)));
}
