use super::*;

fn linking(body: &Value, target: &str) -> Response<Body> {
    let mut response = json_answer(body);
    response.headers_mut().insert("link", target.parse().unwrap());
    response
}

#[tokio::test]
async fn document_of_one_page_takes_one_request() {
    let upstream = Upstream::http(|_, _| json_answer(&environment(SETTLED, &["a"]))).await;
    assert_eq!(identities(Scene::at(&upstream).fetch().await.unwrap()), ["a"]);
    let path = "/api/v1/environment-document/".to_owned();
    assert_eq!(upstream.asked(), [Asked { path, key: Some(KEY.to_owned()), since: None, tag: None }]);
}

#[tokio::test]
async fn base_url_with_trailing_slash_is_accepted() {
    let upstream =
        Upstream::http(|_, _| gzipped(compressed(environment(SETTLED, &["a"]).to_string().as_bytes()))).await;
    let scene = Scene { api_url: format!("http://upstream.test:{}/api/v1/", upstream.port), ..Scene::at(&upstream) };
    assert_eq!(identities(scene.fetch().await.unwrap()), ["a"]);
    assert_eq!(upstream.asked()[0].path, "/api/v1/environment-document/");
}

#[tokio::test]
async fn pages_are_fetched_in_order() {
    let upstream = Upstream::http(|number, asked| match number {
        0 => linking(&environment(SETTLED, &["a"]), "</api/v1/environment-document/?page_id=x%3A1>; rel=\"next\""),
        1 => linking(&environment(SETTLED, &["b"]), "</first>; rel=first, <?page_id=2>; rel=next"),
        _ => {
            assert!(asked.path.ends_with("?page_id=2"));
            json_answer(&environment(SETTLED, &["c", "d"]))
        }
    })
    .await;
    assert_eq!(identities(Scene::at(&upstream).fetch().await.unwrap()), ["a", "b", "c", "d"]);
    let asked = upstream.asked();
    assert_eq!(asked[1].path, "/api/v1/environment-document/?page_id=x%3A1");
    assert!(asked.iter().all(|asked| asked.key.as_deref() == Some(KEY)));
}

/// A server decides how long the URLs of its pages are, and there may be thousands of them.
#[tokio::test]
async fn next_page_with_very_long_url_is_refused() {
    let upstream = Upstream::http(|number, _| {
        let link = format!("<?page={number}{}>; rel=next", "\"".repeat(1_500));
        linking(&environment(SETTLED, &[]), &link)
    })
    .await;
    let error = Scene::at(&upstream).failure().await;
    assert!(error.to_string().contains("more than 4096 characters"), "{error}");
    assert_eq!(upstream.asked().len(), 1);
}

#[tokio::test]
async fn page_loop_is_an_error() {
    let upstream = Upstream::http(|number, _| {
        linking(&environment(SETTLED, &[]), if number % 2 == 0 { "<?a>; rel=next" } else { "<?b>; rel=next" })
    })
    .await;
    assert!(matches!(Scene::at(&upstream).failure().await, Error::UpstreamUnavailable { .. }));
    assert!(upstream.asked().len() <= 4);
}
