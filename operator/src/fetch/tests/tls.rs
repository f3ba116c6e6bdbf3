use super::*;

async fn serving(certificate: &Certificate) -> Upstream {
    Upstream::https(certificate, |_, _| json_answer(&environment(SETTLED, &["a"]))).await
}

fn scene(upstream: &Upstream) -> Scene {
    Scene::url(&format!("https://upstream.test:{}", upstream.port))
}

fn problem(error: &Error) -> &'static str {
    match error {
        Error::TlsFailure { problem, .. } => problem,
        other => panic!("not a failure of TLS: {other}"),
    }
}

#[tokio::test]
async fn a_bundle_makes_its_authority_trusted() {
    let certificate = Certificate::of("upstream.test");
    let upstream = serving(&certificate).await;
    assert_eq!(identities(scene(&upstream).trusting(&certificate.authority()).fetch().await.unwrap()), ["a"]);
}

#[tokio::test]
async fn an_authority_that_nobody_knows_is_not_trusted() {
    let upstream = serving(&Certificate::of("upstream.test")).await;
    assert!(problem(&scene(&upstream).failure().await).contains("unknown authority"));
    let other = Certificate::of("upstream.test").authority();
    assert!(problem(&scene(&upstream).trusting(&other).failure().await).contains("unknown authority"));
    assert!(upstream.asked().is_empty());
}

#[tokio::test]
async fn a_certificate_must_be_for_the_name_and_for_now() {
    let elsewhere = Certificate::of("other.test");
    let upstream = serving(&elsewhere).await;
    assert!(problem(&scene(&upstream).trusting(&elsewhere.authority()).failure().await).contains("another name"));
    let expired = Certificate::expired("upstream.test");
    let upstream = serving(&expired).await;
    assert!(problem(&scene(&upstream).trusting(&expired.authority()).failure().await).contains("expired"));
}

#[tokio::test]
async fn what_speaks_no_tls_is_not_trusted() {
    let upstream = Upstream::http(|_, _| json_answer(&environment(SETTLED, &[]))).await;
    let error = scene(&upstream).failure().await;
    assert!(matches!(error, Error::TlsFailure { .. } | Error::UpstreamUnavailable { .. }), "{error}");
    assert!(upstream.asked().is_empty());
}

#[tokio::test]
async fn bundle_beyond_its_bound_is_refused_with_what_to_write() {
    let certificate = Certificate::of("upstream.test");
    let upstream = serving(&certificate).await;
    let pem = certificate.authority();
    let many = pem.repeat((256 << 10) / pem.len() + 1);
    let error = scene(&upstream).trusting(&many).failure().await;
    assert_eq!(error.reason(), "ConfigMapInvalid");
    assert!(error.to_string().contains("corp-ca") && error.to_string().contains("262,144 bytes"), "{error}");
    assert!(upstream.asked().is_empty());
}
