//! The webhook's server under callers that mean no good, and through certificates that change under it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{
    net::SocketAddr,
    sync::{Arc, Once},
    time::{Duration, Instant},
};

use axum::{Router, routing::post};
use jiff::Timestamp;
use remora_operator::{
    certificates::{Authority, Certificate, Files, Lifetimes, Serving},
    webhook::{Limits, Metrics, serve},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{Notify, watch},
    task::JoinHandle,
    time::timeout,
};

const SERVER: &str = "remora-webhook.remora-system.svc";

struct Server {
    address: SocketAddr,
    serving: Serving,
    shutdown: watch::Sender<bool>,
    running: JoinHandle<()>,
    /// What `/slow` says when it begins.
    entered: Arc<Notify>,
    /// What `/slow` waits for.
    release: Arc<Notify>,
}

fn limits() -> Limits {
    Limits {
        handshake: Duration::from_millis(500),
        head: Duration::from_millis(500),
        request: Duration::from_secs(2),
        idle: Duration::from_secs(1),
        linger: Duration::from_millis(500),
        drain: Duration::from_secs(5),
        ..Limits::default()
    }
}

/// Serves with a certificate that `Authority` signs; `POST /mutate` echoes.
async fn start(limits: Limits) -> (Server, Certificate) {
    static PROVIDER: Once = Once::new();
    PROVIDER.call_once(|| rustls::crypto::ring::default_provider().install_default().unwrap());
    let serving = Serving::default();
    let authority = renew(&serving);
    let (entered, release) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (begun, waited) = (Arc::clone(&entered), Arc::clone(&release));
    let slow = move || async move {
        begun.notify_one();
        waited.notified().await;
        "done"
    };
    let router = Router::new().route("/mutate", post(|body: String| async { body })).route("/slow", post(slow));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (shutdown, ending) = watch::channel(false);
    let running = tokio::spawn(serve(listener, router, serving.clone(), limits, ending));
    (Server { address, serving, shutdown, running, entered, release }, authority)
}

/// Puts a certificate of a new authority in place.
fn renew(serving: &Serving) -> Certificate {
    let (now, lifetimes) = (Timestamp::now(), Lifetimes::default());
    let authority = Authority::create(now, &lifetimes).unwrap();
    serving.with(authority.sign(SERVER, now, &lifetimes).unwrap().key);
    authority.certificate().clone()
}

impl Server {
    fn client(&self, trusted: &Certificate) -> reqwest::Client {
        reqwest::Client::builder()
            .tls_certs_only([reqwest::Certificate::from_pem(trusted.pem().as_bytes()).unwrap()])
            .resolve(SERVER, self.address)
            .no_proxy()
            .build()
            .unwrap()
    }

    fn url(&self, path: &str) -> String {
        format!("https://{SERVER}:{}{path}", self.address.port())
    }

    async fn ask(&self, client: &reqwest::Client) -> Result<String, reqwest::Error> {
        client.post(self.url("/mutate")).body("hello").send().await?.text().await
    }
}

/// Whether the other side hangs up within this time.
async fn is_closed(stream: &mut (impl AsyncReadExt + Unpin), within: Duration) -> bool {
    let mut rest = Vec::new();
    timeout(within, stream.read_to_end(&mut rest)).await.is_ok()
}

async fn tls(server: &Server, trusted: &Certificate) -> tokio_rustls::client::TlsStream<TcpStream> {
    use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(trusted.pem().as_bytes()).unwrap()).unwrap();
    let config = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let stream = TcpStream::connect(server.address).await.unwrap();
    connector.connect(ServerName::try_from(SERVER).unwrap(), stream).await.unwrap()
}

#[tokio::test]
async fn a_renewed_certificate_is_used_at_once_and_cuts_nobody() {
    let (server, old) = start(limits()).await;
    let before = server.client(&old);
    assert_eq!(server.ask(&before).await.unwrap(), "hello");
    let new = renew(&server.serving);
    assert_eq!(server.ask(&before).await.unwrap(), "hello", "an open connection stays");
    assert_eq!(server.ask(&server.client(&new)).await.unwrap(), "hello");
    assert!(server.ask(&server.client(&old)).await.is_err(), "a new connection gets the new certificate");
}

/// A directory as kubelet keeps it: a link is renamed onto the one before, and the files are links through it.
struct Mounted(std::path::PathBuf);

impl Mounted {
    fn new(name: &str) -> Mounted {
        let directory = std::env::temp_dir().join(format!("remora-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        for file in ["tls.crt", "tls.key", "ca.crt"] {
            std::os::unix::fs::symlink(format!("..data/{file}"), directory.join(file)).unwrap();
        }
        Mounted(directory)
    }

    fn put(&self, version: &str, files: &[(&str, &str)]) {
        let directory = self.0.join(version);
        std::fs::create_dir(&directory).unwrap();
        for (name, text) in files {
            std::fs::write(directory.join(name), text).unwrap();
        }
        std::os::unix::fs::symlink(version, self.0.join("..new")).unwrap();
        std::fs::rename(self.0.join("..new"), self.0.join("..data")).unwrap();
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

/// A self-signed certificate for the webhook's name, its key, and when it expires.
fn provided(year: i32) -> (Certificate, String, String, i64) {
    let mut params = rcgen::CertificateParams::new(vec![SERVER.to_owned()]).unwrap();
    params.not_after = rcgen::date_time_ymd(year, 1, 1);
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = rcgen::KeyPair::generate().unwrap();
    let authority = rcgen::CertifiedIssuer::self_signed(params.clone(), &key).unwrap();
    params.is_ca = rcgen::IsCa::NoCa;
    let leaf_key = rcgen::KeyPair::generate().unwrap();
    let leaf = params.signed_by(&leaf_key, &authority).unwrap();
    let trusted = Certificate::read(authority.pem().as_bytes()).unwrap();
    (trusted, leaf.pem(), leaf_key.serialize_pem(), params.not_after.unix_timestamp())
}

#[tokio::test]
async fn a_certificate_in_files_is_served_and_so_is_the_next_one() {
    let (server, _) = start(limits()).await;
    let mounted = Mounted::new("files");
    let mut registry = prometheus_client::registry::Registry::default();
    let metrics = Metrics::register(&mut registry);
    let says = |what: &str| {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        text.contains(what)
    };
    let (ready, mut is_ready) = watch::channel(false);
    let files = Files::new(mounted.0.clone(), server.serving.clone(), metrics);
    let running = tokio::spawn(files.run(|| async move {
        ready.send_replace(true);
    }));
    // Nothing there yet: it waits, and says so.
    let failed = "remora_webhook_certificate_failures_total 1\n";
    eventually("the absence is counted", || async { says(failed).then_some(()) }).await;
    assert!(!*is_ready.borrow() && says("remora_webhook_certificate_expiry_timestamp_seconds NaN\n"));

    let (trusted, certificate, key, until) = provided(2040);
    mounted.put("1", &[("tls.crt", &certificate), ("tls.key", &key), ("ca.crt", trusted.pem())]);
    timeout(Duration::from_secs(30), is_ready.wait_for(|ready| *ready)).await.unwrap().unwrap();
    assert_eq!(server.ask(&server.client(&trusted)).await.unwrap(), "hello");
    assert!(!says("remora_webhook_authority_expiry_timestamp_seconds NaN"));
    let expires = |until: i64| format!("remora_webhook_certificate_expiry_timestamp_seconds {until}.0\n");
    assert!(says(&expires(until)));

    // A key that does not go with its certificate changes nothing.
    let (next, certificate, next_key, until) = provided(2041);
    mounted.put("2", &[("tls.crt", &certificate), ("tls.key", &key)]);
    eventually("the mismatch is counted", || async { (!says(failed)).then_some(()) }).await;
    assert_eq!(server.ask(&server.client(&trusted)).await.unwrap(), "hello");

    mounted.put("3", &[("tls.crt", &certificate), ("tls.key", &next_key)]);
    let asked = || async { server.ask(&server.client(&next)).await.ok() };
    assert_eq!(eventually("the next certificate is served", asked).await, "hello");
    assert!(says(&expires(until)));
    running.abort();
}

async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, ask: impl Fn() -> F) -> T {
    for _ in 0..600 {
        if let Some(answer) = ask().await {
            return answer;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("never: {what}");
}

#[tokio::test]
async fn stalled_handshakes_hold_up_nobody() {
    let (server, trusted) = start(limits()).await;
    let mut stalled = Vec::new();
    for _ in 0..100 {
        stalled.push(TcpStream::connect(server.address).await.unwrap());
    }
    let started = Instant::now();
    assert_eq!(server.ask(&server.client(&trusted)).await.unwrap(), "hello");
    assert!(started.elapsed() < limits().handshake, "{:?}", started.elapsed());
    for mut stream in stalled {
        assert!(is_closed(&mut stream, Duration::from_secs(3)).await);
    }
}

#[tokio::test]
async fn slow_heads_and_bodies_are_cut() {
    let (server, trusted) = start(limits()).await;
    let mut head = tls(&server, &trusted).await;
    head.write_all(b"POST /mutate HTTP/1.1\r\nhost: x\r\nx-slow: ").await.unwrap();
    assert!(is_closed(&mut head, Duration::from_secs(2)).await, "a head that never ends");

    let mut body = tls(&server, &trusted).await;
    body.write_all(b"POST /mutate HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\nhalf").await.unwrap();
    let mut answer = [0; 12];
    timeout(Duration::from_secs(4), body.read_exact(&mut answer)).await.unwrap().unwrap();
    assert_eq!(&answer, b"HTTP/1.1 408");
}

#[tokio::test]
async fn a_quiet_connection_is_kept_for_its_next_request() {
    let (server, trusted) =
        start(Limits { head: Duration::from_millis(100), idle: Duration::from_secs(60), ..limits() }).await;
    let mut kept = tls(&server, &trusted).await;
    for _ in 0..3 {
        // Longer than a head may take: the API server keeps connections that it does not use for a while.
        tokio::time::sleep(Duration::from_millis(400)).await;
        kept.write_all(b"POST /mutate HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
        let mut answer = [0; 12];
        kept.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200");
        let mut rest = Vec::new();
        while !rest.ends_with(b"\r\n\r\nok") {
            rest.push(kept.read_u8().await.unwrap());
        }
    }
}

#[tokio::test]
async fn an_idle_connection_is_closed() {
    let (server, trusted) = start(limits()).await;
    let mut silent = tls(&server, &trusted).await;
    assert!(is_closed(&mut silent, Duration::from_secs(5)).await);
}

#[tokio::test]
async fn one_address_cannot_take_all_connections() {
    let (server, trusted) =
        start(Limits { connections_per_address: 3, handshake: Duration::from_secs(60), ..limits() }).await;
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(TcpStream::connect(server.address).await.unwrap());
    }
    let mut fourth = TcpStream::connect(server.address).await.unwrap();
    assert!(is_closed(&mut fourth, Duration::from_secs(2)).await);
    // An IPv4 address of its own, as another pod has.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let mut other = socket.connect(server.address).await.unwrap();
    assert!(!is_closed(&mut other, Duration::from_millis(300)).await);
    // A place that is given back can be taken again.
    held.clear();
    let client = server.client(&trusted);
    timeout(Duration::from_secs(5), async { while server.ask(&client).await.is_err() {} }).await.unwrap();
}

#[tokio::test]
async fn answers_at_the_end_close_their_connections() {
    let (server, trusted) = start(limits()).await;
    let mut stream = tls(&server, &trusted).await;
    server.shutdown.send_replace(true);
    stream.write_all(b"POST /mutate HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
    let mut answer = Vec::new();
    timeout(Duration::from_millis(400), stream.read_to_end(&mut answer)).await.expect("closed").unwrap();
    assert!(answer.ends_with(b"\r\n\r\nok"));
    assert!(String::from_utf8(answer).unwrap().contains("connection: close"));
}

#[tokio::test]
async fn no_http_over_plain_tcp() {
    let (server, _) = start(limits()).await;
    let mut plain = TcpStream::connect(server.address).await.unwrap();
    plain.write_all(b"POST /mutate HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    // The alert of a TLS server, or nothing; not HTTP.
    let _ = timeout(Duration::from_secs(2), plain.read_to_end(&mut answer)).await.unwrap();
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
}

#[tokio::test]
async fn the_end_comes_when_everything_is_answered() {
    let (server, trusted) = start(limits()).await;
    let client = server.client(&trusted);
    let old_friend = server.client(&trusted);
    assert_eq!(server.ask(&old_friend).await.unwrap(), "hello");
    let request = tokio::spawn(client.post(server.url("/slow")).send());
    let (address, release) = (server.address, Arc::clone(&server.release));
    server.entered.notified().await;
    server.shutdown.send_replace(true);
    assert_eq!(server.ask(&old_friend).await.unwrap(), "hello", "not every node knows yet");
    assert_eq!(server.ask(&server.client(&trusted)).await.unwrap(), "hello", "and some call for the first time");
    timeout(Duration::from_secs(2), async { while TcpStream::connect(address).await.is_ok() {} })
        .await
        .expect("nothing new is accepted");
    release.notify_one();
    assert_eq!(request.await.unwrap().unwrap().text().await.unwrap(), "done");
    timeout(Duration::from_secs(2), server.running).await.expect("it ends").unwrap();
}
