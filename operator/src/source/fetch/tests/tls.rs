use std::{net::Ipv4Addr, time::Duration};

use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use super::*;
use crate::api::Reason;

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
async fn ca_in_bundle_is_trusted() {
    let certificate = Certificate::of("upstream.test");
    let upstream = serving(&certificate).await;
    assert_eq!(identities(scene(&upstream).trusting(&certificate.authority()).fetch().await.unwrap()), ["a"]);
}

/// The CA of the first server is only in the file of the installation, that of the second one only in the source's bundle.
#[tokio::test]
async fn cas_of_installation_and_of_bundle_are_both_trusted() {
    let [first, second] = [Certificate::of("upstream.test"), Certificate::of("upstream.test")];
    let path = std::env::temp_dir().join(format!("remora-tls-{:016x}", fastrand::u64(..)));
    std::fs::write(&path, first.authority()).unwrap();
    let with_file = |upstream: &Upstream| Scene { ca_file: Some(path.clone()), ..scene(upstream) };
    let upstream = serving(&first).await;
    assert!(problem(&scene(&upstream).failure().await).contains("unknown CA"), "without the file");
    assert_eq!(identities(with_file(&upstream).fetch().await.unwrap()), ["a"]);
    assert_eq!(identities(with_file(&upstream).trusting(&second.authority()).fetch().await.unwrap()), ["a"]);
    let error = with_file(&upstream).trusting("no PEM").failure().await;
    assert_eq!(error.reason(), Reason::ConfigMapInvalid, "the file does not hide an invalid bundle");

    let upstream = serving(&second).await;
    assert!(problem(&with_file(&upstream).failure().await).contains("unknown CA"));
    assert_eq!(identities(with_file(&upstream).trusting(&second.authority()).fetch().await.unwrap()), ["a"]);
    std::fs::remove_file(&path).unwrap();
}

#[tokio::test]
async fn unknown_ca_is_not_trusted() {
    let upstream = serving(&Certificate::of("upstream.test")).await;
    assert!(problem(&scene(&upstream).failure().await).contains("unknown CA"));
    let other = Certificate::of("upstream.test").authority();
    assert!(problem(&scene(&upstream).trusting(&other).failure().await).contains("unknown CA"));
    assert!(upstream.asked().is_empty());
}

#[tokio::test]
async fn certificate_of_other_name_or_time_is_refused() {
    let elsewhere = Certificate::of("other.test");
    let upstream = serving(&elsewhere).await;
    assert!(problem(&scene(&upstream).trusting(&elsewhere.authority()).failure().await).contains("another name"));
    let expired = Certificate::expired("upstream.test");
    let upstream = serving(&expired).await;
    assert!(problem(&scene(&upstream).trusting(&expired.authority()).failure().await).contains("expired"));
    assert!(upstream.asked().is_empty());
    let early = Certificate::of_the_future("upstream.test");
    let upstream = serving(&early).await;
    assert!(problem(&scene(&upstream).trusting(&early.authority()).failure().await).contains("not valid yet"));
    assert!(upstream.asked().is_empty());
}

/// Starts a server that reads the client's first record, answers with these bytes, and returns the bytes that clients
/// sent.
async fn answering(bytes: &'static [u8]) -> (u16, Arc<Mutex<Vec<Vec<u8>>>>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let book = Arc::clone(&heard);
    tokio::spawn(async move {
        loop {
            let (mut connection, _) = listener.accept().await.unwrap();
            let mut said = vec![0; 8192];
            let mut length = connection.read(&mut said).await.unwrap();
            let _ = connection.write_all(bytes).await;
            // The rest, up to the end of the connection.
            while let Ok(more @ 1..) = connection.read(&mut said[length..]).await {
                length += more;
            }
            book.lock().push(said[..length].to_vec());
        }
    });
    (port, heard)
}

/// Builds a `ServerHello` that chooses a version and TLS_RSA_WITH_AES_128_CBC_SHA, with 32 bytes of `R`.
macro_rules! server_hello {
    ($minor:literal) => {{
        const HELLO: [u8; 47] = {
            let mut hello = [b'R'; 47];
            let beginning = [0x16, 3, $minor, 0, 42, 2, 0, 0, 38, 3, $minor];
            let end = [0, 0x00, 0x2f, 0];
            let mut at = 0;
            while at < beginning.len() {
                hello[at] = beginning[at];
                at += 1;
            }
            at = 0;
            while at < end.len() {
                hello[43 + at] = end[at];
                at += 1;
            }
            hello
        };
        &HELLO
    }};
}

#[tokio::test]
async fn server_with_old_tls_is_refused_and_gets_no_key() {
    // The alert is `protocol_version`, which servers send if their versions are too old or too new for the client.
    for (name, answer) in [
        ("TLS 1.0", server_hello!(1).as_slice()),
        ("TLS 1.1", server_hello!(2).as_slice()),
        ("SSL 3.0", server_hello!(0).as_slice()),
        ("an alert", &[0x15, 3, 1, 0, 2, 2, 70]),
    ] {
        let (port, heard) = answering(answer).await;
        let scene = Scene::url(&format!("https://upstream.test:{port}"));
        let error = scene.failure().await;
        assert!(problem(&error).contains("neither TLS 1.2 nor 1.3"), "{name}");
        let heard = async {
            loop {
                if !heard.lock().is_empty() {
                    return std::mem::take(&mut *heard.lock());
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let heard = tokio::time::timeout(Duration::from_secs(60), heard).await.expect("the connection stays open");
        // The client does not retry with a lower version: one connection, with TLS records only and without the key.
        assert_eq!(heard.len(), 1, "{name}");
        assert_eq!(heard[0][..2], [0x16, 3], "{name}: no record of a handshake");
        assert!(!heard[0].windows(KEY.len()).any(|part| part == KEY.as_bytes()), "{name}");
    }
}

#[tokio::test]
async fn server_without_tls_is_refused() {
    let upstream = Upstream::http(|_, _| json_answer(&environment(SETTLED, &[]))).await;
    let error = scene(&upstream).failure().await;
    assert!(matches!(error, Error::TlsFailure { .. } | Error::UpstreamUnavailable { .. }), "{error}");
    assert!(upstream.asked().is_empty());
}

#[tokio::test]
async fn bundle_beyond_limit_is_refused_with_advice() {
    let certificate = Certificate::of("upstream.test");
    let upstream = serving(&certificate).await;
    let pem = certificate.authority();
    let many = pem.repeat((256 << 10) / pem.len() + 1);
    let error = scene(&upstream).trusting(&many).failure().await;
    assert_eq!(error.reason(), Reason::ConfigMapInvalid);
    assert!(error.to_string().contains("corp-ca") && error.to_string().contains("262,144 bytes"), "{error}");
    assert!(upstream.asked().is_empty());
}
