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
    assert!(matches!(again, Fetched::Unchanged));
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
    let hints = FetchHints { refused: Some(key), ..FetchHints::default() };
    let again = scene.fetcher().fetch("shop", &scene.spec(), &hints).await.unwrap();
    assert!(matches!(again, Fetched::StillRefused));
    assert_eq!(upstream.asked().len(), 1);
    scene.cluster.secret("flagsmith", "environment-key", "ser.good");
    let mended = scene.fetcher().fetch("shop", &scene.spec(), &hints).await.unwrap();
    assert!(matches!(mended, Fetched::Document(_)));
}
