//! Objects that the source refers to in its namespace.

use super::*;

async fn unasked() -> Upstream {
    Upstream::http(|_, _| panic!("nobody may be asked")).await
}

#[tokio::test]
async fn secret_without_consent_label_is_refused() {
    let upstream = unasked().await;
    let scene = Scene::at(&upstream);
    for labels in [json!({}), json!({"remora.dev/environment-key": "false"}), json!({"remora.dev/environment-key": ""})]
    {
        scene.cluster.secret_with("flagsmith", "environment-key", KEY, &labels);
        assert!(matches!(scene.failure().await, Error::SecretNotConsented(_)), "{labels}");
    }
    assert!(upstream.asked().is_empty());
}

#[tokio::test]
async fn secret_without_server_key_gets_no_request() {
    let upstream = unasked().await;
    let scene = Scene::at(&upstream);
    for (key, value) in [("environment-key", CANARY), ("environment-key", ""), ("other", KEY)] {
        scene.cluster.secret("flagsmith", key, value);
        assert!(matches!(scene.failure().await, Error::SecretInvalid { .. }), "{key}");
    }
    assert!(upstream.asked().is_empty());
}

#[tokio::test]
async fn missing_object_or_key_is_named_in_error() {
    let upstream = unasked().await;
    let scene = Scene { cluster: Cluster::default(), ..Scene::at(&upstream) };
    assert!(matches!(scene.failure().await, Error::SecretNotFound(name) if name == "flagsmith"));
    let scene = Scene { bundle: true, ..Scene::at(&upstream) };
    assert!(matches!(scene.failure().await, Error::ConfigMapNotFound(name) if name == "corp-ca"));
    let scene = Scene::at(&upstream).trusting(CANARY);
    assert!(matches!(scene.failure().await, Error::ConfigMapInvalid { .. }));
}

#[tokio::test]
async fn secrets_are_read_by_name_in_own_namespace() {
    let upstream = Upstream::http(|_, _| json_answer(&environment(SETTLED, &[]))).await;
    let scene = Scene::at(&upstream);
    scene.fetch().await.unwrap();
    let asked = scene.cluster.asked.lock().clone();
    assert_eq!(asked, ["GET /api/v1/namespaces/shop/secrets/flagsmith"]);
}

fn from(kind: &str) -> FeatureEnvironmentSpec {
    serde_json::from_value(json!({"source": {"document": {kind: {"name": "flags", "key": "environment.json"}}}}))
        .unwrap()
}

#[tokio::test]
async fn document_in_config_map_is_read_without_server() {
    let scene = Scene::url("http://upstream.test");
    scene.cluster.config_map("flags", "7", "environment.json", &environment(SETTLED, &["a"]).to_string());
    let fetcher = scene.fetcher();
    let spec = from("configMapKeyRef");
    let first = fetcher.fetch("shop", &spec, &FetchHints::default()).await.unwrap();
    let hints = FetchHints { cached: Some(cached_version(first)), ..FetchHints::default() };
    assert!(matches!(fetcher.fetch("shop", &spec, &hints).await.unwrap(), Fetched::Unchanged { read: None }));
    scene.cluster.config_map("flags", "8", "environment.json", &environment(SETTLED, &["b"]).to_string());
    assert_eq!(identities(fetcher.fetch("shop", &spec, &hints).await.unwrap()), ["b"]);
}

#[tokio::test]
async fn document_in_secret_without_consent_is_refused() {
    let scene = Scene::url("http://upstream.test");
    let body = environment(SETTLED, &["a"]).to_string();
    scene.cluster.secret_with("flags", "environment.json", &body, &json!({}));
    let refused = scene.fetcher().fetch("shop", &from("secretKeyRef"), &FetchHints::default()).await;
    assert!(matches!(refused, Err(Error::SecretNotConsented(_))));
    scene.cluster.secret("flags", "environment.json", &body);
    let fetched = scene.fetcher().fetch("shop", &from("secretKeyRef"), &FetchHints::default()).await.unwrap();
    assert_eq!(identities(fetched), ["a"]);
}

#[tokio::test]
async fn document_in_cluster_beyond_size_limit_is_refused() {
    let scene = Scene { limit: 100, ..Scene::url("http://upstream.test") };
    scene.cluster.config_map("flags", "7", "environment.json", &environment(SETTLED, &["a"]).to_string());
    let refused = scene.fetcher().fetch("shop", &from("configMapKeyRef"), &FetchHints::default()).await;
    assert!(matches!(refused, Err(Error::BodyTooLarge { limit: 100, .. })), "{refused:?}");
}

/// Regression: six ConfigMaps of 1 MiB each were read, parsed and compiled at one time, whatever the memory limit.
#[tokio::test]
async fn documents_in_cluster_reserve_memory_before_they_are_read() {
    let scene = Scene { limit: 2 << 20, ..Scene::url("http://upstream.test") };
    let large = environment(SETTLED, &[&"x".repeat(900 << 10)]).to_string();
    scene.cluster.config_map("flags", "7", "environment.json", &large);
    let fetcher = scene.fetcher();
    ["store", "market"].iter().for_each(|namespace| scene.cluster.copy_to(namespace));
    // A namespace has one document of this part of the budget at one time.
    let fetch = async |namespace: &'static str| {
        fetcher.fetch(namespace, &from("configMapKeyRef"), &FetchHints::default()).await.unwrap()
    };
    let (first, second) = (fetch("shop").await, fetch("store").await);
    assert!(matches!((&first, &second), (Fetched::Document(_), Fetched::Document(_))));
    let read = scene.cluster.asked.lock().len();
    let mut third = std::pin::pin!(fetch("market"));
    let early = tokio::time::timeout(std::time::Duration::from_millis(300), &mut third).await;
    assert!(early.is_err(), "there is room for two");
    assert_eq!(scene.cluster.asked.lock().len(), read, "it was read before there was budget");
    drop(first);
    assert!(matches!(third.await, Fetched::Document(_)));
    drop(second);
}

/// Regression: the name became a part of the request's URL, so that this one listed all ConfigMaps of the namespace.
#[tokio::test]
async fn name_that_no_object_can_have_is_not_asked_for() {
    let scene = Scene::url("http://upstream.test");
    let fetcher = scene.fetcher();
    for name in ["?watch=1", "../secrets/flagsmith", "a#b"] {
        let mut spec = from("configMapKeyRef");
        spec.source.document.as_mut().unwrap().config_map_key_ref.as_mut().unwrap().name = name.to_owned();
        let refused = fetcher.fetch("shop", &spec, &FetchHints::default()).await.unwrap_err();
        assert!(refused.to_string().contains("that no object can have"), "{refused}");
    }
    assert!(scene.cluster.asked.lock().is_empty(), "{:?}", scene.cluster.asked.lock());
}
