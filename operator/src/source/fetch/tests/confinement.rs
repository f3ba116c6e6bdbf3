//! The key is sent only to an allowed origin at an allowed address.

use super::*;

fn elsewhere(code: u16, location: &str) -> Response<Body> {
    let mut response = status(code);
    response.headers_mut().insert("location", location.parse().unwrap());
    response
}

#[tokio::test]
async fn redirect_within_origin_is_followed() {
    let upstream = Upstream::http(|_, asked| {
        if asked.path == "/moved/" { json_answer(&environment(SETTLED, &["a"])) } else { elsewhere(307, "/moved/") }
    })
    .await;
    assert_eq!(identities(Scene::at(&upstream).fetch().await.unwrap()), ["a"]);
    assert_eq!(upstream.asked()[1].key.as_deref(), Some(KEY));
}

#[tokio::test]
async fn redirect_to_other_origin_is_refused() {
    let other = Upstream::http(|_, _| json_answer(&environment(SETTLED, &["stolen"]))).await;
    for code in [301, 302, 303, 307, 308] {
        for target in [format!("http://upstream.test:{}/", other.port), format!("http://other.test:{}/", other.port)] {
            let upstream = Upstream::http(move |_, _| elsewhere(code, &target)).await;
            assert!(matches!(Scene::at(&upstream).failure().await, Error::RedirectRefused(_)), "{code}");
        }
    }
    assert!(other.asked().is_empty());
}

#[tokio::test]
async fn redirect_loop_is_an_error() {
    let upstream = Upstream::http(|_, _| elsewhere(302, "/again/")).await;
    assert!(matches!(Scene::at(&upstream).failure().await, Error::RedirectRefused(_)));
    assert!(upstream.asked().len() <= 5);
}

#[tokio::test]
async fn next_page_on_other_origin_is_refused() {
    let other = Upstream::http(|_, _| json_answer(&environment(SETTLED, &["stolen"]))).await;
    let target = format!("<http://upstream.test:{}/>; rel=next", other.port);
    let upstream = Upstream::http(move |_, _| {
        let mut response = json_answer(&environment(SETTLED, &["a"]));
        response.headers_mut().insert("link", target.parse().unwrap());
        response
    })
    .await;
    assert!(matches!(Scene::at(&upstream).failure().await, Error::UpstreamUnavailable { .. }));
    assert!(other.asked().is_empty());
}

#[tokio::test]
async fn origin_that_is_not_allowed_gets_no_request() {
    let upstream = Upstream::http(|_, _| json_answer(&environment(SETTLED, &[]))).await;
    for named in ["https://upstream.test".to_owned(), format!("https://upstream.test:{}", upstream.port)] {
        let scene = Scene { origins: vec![named.parse().unwrap()], ..Scene::at(&upstream) };
        assert!(matches!(scene.failure().await, Error::OriginNotAllowed(_)), "{named}");
        // The check precedes the read of the Secret.
        assert!(scene.cluster.asked.lock().is_empty());
    }
    assert!(upstream.asked().is_empty());
}

#[tokio::test]
async fn public_service_at_private_address_is_refused() {
    for address in ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "fd00::1", "::ffff:10.0.0.1"] {
        let scene = Scene {
            lookup: Leading::to(&[address]),
            api_url: "https://edge.api.flagsmith.com/api/v1/".to_owned(),
            origins: Vec::new(),
            ..Scene::url("https://edge.api.flagsmith.com")
        };
        assert!(matches!(scene.failure().await, Error::AddressBlocked(_)), "{address}");
    }
}

#[tokio::test]
async fn link_local_address_is_refused_for_listed_origin() {
    let upstream = Upstream::http(|_, _| json_answer(&environment(SETTLED, &[]))).await;
    let scene = Scene { lookup: Leading::to(&["169.254.169.254"]), ..Scene::at(&upstream) };
    assert!(matches!(scene.failure().await, Error::AddressBlocked(_)));
    assert!(matches!(Scene::url("http://169.254.169.254").failure().await, Error::AddressBlocked(_)));
}

/// A name that resolves to a good address first and to a forbidden one later is checked each time it is used.
#[tokio::test]
async fn host_name_is_resolved_and_checked_for_each_connection() {
    let upstream = Upstream::http(|_, _| {
        let mut response = json_answer(&environment(SETTLED, &[]));
        response.headers_mut().insert("connection", "close".parse().unwrap());
        response
    })
    .await;
    let scene = Scene { lookup: Leading::to(&["127.0.0.1", "169.254.169.254"]), ..Scene::at(&upstream) };
    let fetcher = scene.fetcher();
    fetcher.fetch("shop", &scene.spec(), &FetchHints::default()).await.unwrap();
    let second = fetcher.fetch("shop", &scene.spec(), &FetchHints::default()).await;
    assert!(matches!(second, Err(Error::AddressBlocked(_))), "{second:?}");
}
