//! Tests the webhook's server with malicious callers and with certificates that change while it runs.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "webhook_server/framing.rs"]
mod framing;

use std::{
    net::SocketAddr,
    sync::{Arc, Once},
    time::{Duration, Instant},
};

use axum::{Extension, Router, routing::post};
use jiff::Timestamp;
use remora_operator::{
    injection::{
        certificates::{Ca, Certificate, Files, Lifetimes, Serving},
        metrics::Metrics,
    },
    listener::{Limits, Transport, Useful, serve},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{Notify, watch},
    task::JoinHandle,
    time::timeout,
};
use tokio_rustls::TlsAcceptor;

/// Longest wait for something that happens at once on an idle machine.
const CAP: Duration = Duration::from_secs(60);

const SERVER: &str = "remora-webhook.remora-system.svc";

struct Server {
    address: SocketAddr,
    serving: Serving,
    shutdown: watch::Sender<bool>,
    running: JoinHandle<()>,
    /// Notified when a request to `/slow` starts.
    entered: Arc<Notify>,
    /// Lets a request to `/slow` finish.
    release: Arc<Notify>,
}

/// Limits that no test reaches by being slow.
fn limits() -> Limits {
    Limits {
        handshake: CAP,
        head: CAP,
        body: CAP,
        request: CAP,
        idle: CAP,
        linger: Duration::from_millis(500),
        drain: CAP,
        ..Limits::webhook()
    }
}

/// Limits that end a connection soon.
fn short_limits() -> Limits {
    Limits {
        head: Duration::from_millis(500),
        body: Duration::from_secs(2),
        request: Duration::from_secs(2),
        idle: Duration::from_secs(1),
        ..limits()
    }
}

/// Starts a server with a certificate that `Ca` signs. `POST /mutate` echoes the body.
async fn start(limits: Limits) -> (Server, Certificate) {
    let (entered, release) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (begun, waited) = (Arc::clone(&entered), Arc::clone(&release));
    let slow = move || async move {
        begun.notify_one();
        waited.notified().await;
        "done"
    };
    let router = Router::new()
        .route("/mutate", post(|body: String| async { (Extension(Useful), body) }))
        .route("/slow", post(slow));
    let (server, ca) = start_with(limits, router).await;
    (Server { entered, release, ..server }, ca)
}

/// Starts a server with this router.
async fn start_with(limits: Limits, router: Router) -> (Server, Certificate) {
    static PROVIDER: Once = Once::new();
    PROVIDER.call_once(|| rustls::crypto::ring::default_provider().install_default().unwrap());
    let serving = Serving::default();
    let ca = renew(&serving);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (shutdown, ending) = watch::channel(false);
    let tls = Transport::Tls(TlsAcceptor::from(serving.server_config()));
    let running = tokio::spawn(serve(listener, router, tls, limits, ending));
    let (entered, release) = Default::default();
    (Server { address, serving, shutdown, running, entered, release }, ca)
}

/// Serves with a certificate of a new CA, and returns the CA.
fn renew(serving: &Serving) -> Certificate {
    let (now, lifetimes) = (Timestamp::now(), Lifetimes::default());
    let ca = Ca::create(now, &lifetimes).unwrap();
    serving.replace(ca.sign(SERVER, now, &lifetimes).unwrap().key);
    ca.certificate().clone()
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

/// True if the peer closes the connection within this time.
async fn is_closed(stream: &mut (impl AsyncReadExt + Unpin), within: Duration) -> bool {
    let mut rest = Vec::new();
    timeout(within, stream.read_to_end(&mut rest)).await.is_ok()
}

async fn tls(server: &Server, trusted: &Certificate) -> tokio_rustls::client::TlsStream<TcpStream> {
    tls_over(TcpStream::connect(server.address).await.unwrap(), trusted).await
}

async fn tls_over(stream: TcpStream, trusted: &Certificate) -> tokio_rustls::client::TlsStream<TcpStream> {
    use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(trusted.pem().as_bytes()).unwrap()).unwrap();
    let config = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    connector.connect(ServerName::try_from(SERVER).unwrap(), stream).await.unwrap()
}

#[tokio::test]
async fn renewed_certificate_is_served_at_once_and_closes_no_connection() {
    let (server, old) = start(limits()).await;
    let before = server.client(&old);
    assert_eq!(server.ask(&before).await.unwrap(), "hello");
    let new = renew(&server.serving);
    assert_eq!(server.ask(&before).await.unwrap(), "hello", "an open connection stays");
    assert_eq!(server.ask(&server.client(&new)).await.unwrap(), "hello");
    assert!(server.ask(&server.client(&old)).await.is_err(), "a new connection gets the new certificate");
}

/// A directory like a volume of kubelet: the files are links through a link that kubelet replaces atomically by a
/// rename.
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

/// Creates a self-signed certificate for the webhook's name, and returns it with its PEM, its key and its expiry.
fn provided(year: i32) -> (Certificate, String, String, i64) {
    let mut params = rcgen::CertificateParams::new(vec![SERVER.to_owned()]).unwrap();
    params.not_after = rcgen::date_time_ymd(year, 1, 1);
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = rcgen::KeyPair::generate().unwrap();
    let ca = rcgen::CertifiedIssuer::self_signed(params.clone(), &key).unwrap();
    params.is_ca = rcgen::IsCa::NoCa;
    let leaf_key = rcgen::KeyPair::generate().unwrap();
    let leaf = params.signed_by(&leaf_key, &ca).unwrap();
    let trusted = Certificate::read(ca.pem().as_bytes()).unwrap();
    (trusted, leaf.pem(), leaf_key.serialize_pem(), params.not_after.unix_timestamp())
}

#[tokio::test]
async fn certificate_files_are_served_and_reloaded() {
    let (server, _) = start(limits()).await;
    let mounted = Mounted::new("files");
    let mut registry = prometheus_client::registry::Registry::default();
    let metrics = Metrics::register(&mut registry);
    let text = || {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        text
    };
    let says = |what: &str| text().contains(what);
    let failures = || {
        let text = text();
        let of = |line: &str| line.strip_prefix("remora_webhook_certificate_failures_total ")?.parse::<u64>().ok();
        text.lines().find_map(of).unwrap()
    };
    let (ready, mut is_ready) = watch::channel(false);
    let files = Files::new(mounted.0.clone(), server.serving.clone(), metrics);
    let running = tokio::spawn(files.run(|| async move {
        ready.send_replace(true);
    }));
    // The directory has no certificate yet: the reader waits and counts a failure.
    eventually("the absence is counted", || async { (failures() > 0).then_some(()) }).await;
    assert!(!*is_ready.borrow() && says("remora_webhook_certificate_expiry_timestamp_seconds NaN\n"));

    let (trusted, certificate, key, until) = provided(2040);
    mounted.put("1", &[("tls.crt", &certificate), ("tls.key", &key), ("ca.crt", trusted.pem())]);
    timeout(Duration::from_secs(30), is_ready.wait_for(|ready| *ready)).await.unwrap().unwrap();
    assert_eq!(server.ask(&server.client(&trusted)).await.unwrap(), "hello");
    assert!(!says("remora_webhook_authority_expiry_timestamp_seconds NaN"));
    let expires = |until: i64| format!("remora_webhook_certificate_expiry_timestamp_seconds {until}.0\n");
    assert!(says(&expires(until)));

    // A key that does not belong to the certificate changes nothing.
    let (next, certificate, next_key, until) = provided(2041);
    let before = failures();
    mounted.put("2", &[("tls.crt", &certificate), ("tls.key", &key)]);
    eventually("the mismatch is counted", || async { (failures() > before).then_some(()) }).await;
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
async fn stalled_handshakes_delay_no_other_caller() {
    let handshake = Duration::from_secs(20);
    let (server, trusted) = start(Limits { handshake, ..limits() }).await;
    let mut stalled = Vec::new();
    for _ in 0..100 {
        stalled.push(TcpStream::connect(server.address).await.unwrap());
    }
    let client = server.client(&trusted);
    let started = Instant::now();
    assert_eq!(server.ask(&client).await.unwrap(), "hello");
    assert!(started.elapsed() < handshake, "{:?}", started.elapsed());
    for mut stream in stalled {
        assert!(is_closed(&mut stream, CAP).await);
    }
}

#[tokio::test]
async fn slow_heads_and_bodies_are_cut_off() {
    let (server, trusted) = start(short_limits()).await;
    let mut head = tls(&server, &trusted).await;
    head.write_all(b"POST /mutate HTTP/1.1\r\nhost: x\r\nx-slow: ").await.unwrap();
    assert!(is_closed(&mut head, CAP).await, "a head that never ends");

    let mut body = tls(&server, &trusted).await;
    body.write_all(b"POST /mutate HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\nhalf").await.unwrap();
    let mut answer = [0; 12];
    timeout(CAP, body.read_exact(&mut answer)).await.unwrap().unwrap();
    assert_eq!(&answer, b"HTTP/1.1 408");
}

#[tokio::test]
async fn quiet_connection_is_kept_for_next_request() {
    let (server, trusted) =
        start(Limits { head: Duration::from_millis(100), idle: Duration::from_secs(60), ..limits() }).await;
    let mut kept = tls(&server, &trusted).await;
    for _ in 0..3 {
        // The pause is longer than the timeout of a head: the API server keeps unused connections for a while.
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
async fn idle_connection_is_closed() {
    let (server, trusted) = start(short_limits()).await;
    let mut silent = tls(&server, &trusted).await;
    assert!(is_closed(&mut silent, CAP).await);
}

#[tokio::test]
async fn answers_during_shutdown_close_their_connections() {
    // Nothing else closes the connection in time.
    let (server, trusted) = start(Limits { linger: CAP, idle: CAP, head: CAP, ..limits() }).await;
    let mut stream = tls(&server, &trusted).await;
    server.shutdown.send_replace(true);
    stream.write_all(b"POST /mutate HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
    let mut answer = Vec::new();
    timeout(CAP / 2, stream.read_to_end(&mut answer)).await.expect("closed").unwrap();
    assert!(answer.ends_with(b"\r\n\r\nok"));
    assert!(String::from_utf8(answer).unwrap().contains("connection: close"));
}

#[tokio::test]
async fn plain_http_is_refused() {
    let (server, _) = start(limits()).await;
    let mut plain = TcpStream::connect(server.address).await.unwrap();
    plain.write_all(b"POST /mutate HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    // The answer is a TLS alert or empty, but not HTTP.
    let _ = timeout(CAP, plain.read_to_end(&mut answer)).await.unwrap();
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
}

#[tokio::test]
async fn shutdown_waits_for_pending_answers() {
    let (server, trusted) = start(Limits { linger: Duration::from_secs(15), ..limits() }).await;
    let client = server.client(&trusted);
    let old_friend = server.client(&trusted);
    assert_eq!(server.ask(&old_friend).await.unwrap(), "hello");
    let request = tokio::spawn(client.post(server.url("/slow")).send());
    let (address, release) = (server.address, Arc::clone(&server.release));
    server.entered.notified().await;
    server.shutdown.send_replace(true);
    assert_eq!(server.ask(&old_friend).await.unwrap(), "hello", "not every node knows yet");
    assert_eq!(server.ask(&server.client(&trusted)).await.unwrap(), "hello", "and some call for the first time");
    let refused = || async { TcpStream::connect(address).await.is_err().then_some(()) };
    eventually("nothing new is accepted", refused).await;
    release.notify_one();
    assert_eq!(request.await.unwrap().unwrap().text().await.unwrap(), "done");
    timeout(CAP, server.running).await.expect("it ends").unwrap();
}

/// Connects from a source address of its own: all of 127.0.0.0/8 is this machine.
async fn connect_from(source: [u8; 4], to: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = tokio::net::TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from((source, 0)))?;
    socket.connect(to).await
}

/// Bytes that an attacker's connection sends before it stalls: nothing, half a ClientHello, or an invalid record.
const HALF_HANDSHAKES: [&[u8]; 3] = [b"", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"\x16\x03\x01\x3f\xff\x01"];

#[tokio::test(flavor = "multi_thread")]
async fn flood_of_half_handshakes_from_many_addresses_refuses_no_review() {
    const CONNECTIONS: usize = 128;
    let quiet = Duration::from_secs(120);
    let (server, trusted) =
        start(Limits { connections: CONNECTIONS, kept: CONNECTIONS / 2, handshake: quiet, idle: quiet, ..limits() })
            .await;
    let kept = server.client(&trusted);
    assert_eq!(server.ask(&kept).await.unwrap(), "hello");
    let (mut held, mut refused) = (std::collections::VecDeque::new(), Vec::new());
    for number in 0..3000_usize {
        let source = [127, 0, u8::try_from(1 + number % 5).unwrap(), u8::try_from(1 + number % 250).unwrap()];
        let mut stream = connect_from(source, server.address).await.unwrap();
        // The server may have closed the connection already in favour of a newer one.
        let _ = stream.write_all(HALF_HANDSHAKES[number % 3]).await;
        held.push_back(stream);
        if held.len() > 2 * CONNECTIONS {
            held.pop_front();
        }
        if number % 100 == 99 {
            refused.extend(server.ask(&kept).await.err());
            refused.extend(server.ask(&server.client(&trusted)).await.err());
        }
    }
    assert!(refused.is_empty(), "{} of 60 reviews were refused: {:?}", refused.len(), refused[0]);
}

/// Starts a request on a new connection, and stalls in the middle of its body.
async fn slow_body(
    server: &Server,
    trusted: &Certificate,
    source: [u8; 4],
    length: usize,
) -> impl AsyncReadExt + Unpin {
    let stream = connect_from(source, server.address).await.unwrap();
    let mut stream = tls_over(stream, trusted).await;
    let head = format!("POST /mutate HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\nhalf");
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
    stream
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_bodies_that_fill_the_share_of_bytes_refuse_no_review() {
    let quiet = Duration::from_secs(120);
    let bounds = Limits {
        body: quiet,
        request: quiet,
        small_body: 1 << 10,
        small_bytes: 8 << 10,
        large_bytes: 64 << 10,
        ..limits()
    };
    let (server, trusted) = start(bounds).await;
    let mut held = Vec::new();
    for number in 0..40_u8 {
        let length = if number % 2 == 0 { 1 << 10 } else { 16 << 10 };
        held.push(slow_body(&server, &trusted, [127, 0, 1, 1 + number % 10], length).await);
        let client = server.client(&trusted);
        for body in ["hello".to_owned(), "x".repeat(10 << 10)] {
            let sent = client.post(server.url("/mutate")).body(body.clone()).send();
            let answer = timeout(Duration::from_secs(60), sent).await.expect("a review waits for slow bodies").unwrap();
            assert_eq!(answer.text().await.unwrap(), body);
        }
    }
}

#[tokio::test]
async fn request_beyond_the_share_of_bytes_is_answered_503_and_bytes_come_back() {
    let (server, trusted) = start(Limits { small_bytes: 10, ..short_limits() }).await;
    let slow = |client: reqwest::Client| client.post(server.url("/slow")).body("01234").send();
    let (one, two) = (tokio::spawn(slow(server.client(&trusted))), tokio::spawn(slow(server.client(&trusted))));
    server.entered.notified().await;
    server.entered.notified().await;
    let beyond = server.client(&trusted).post(server.url("/mutate")).body("hello world").send().await.unwrap();
    assert_eq!(beyond.status(), 503, "it would not fit whatever is given back");
    for slow in [one, two] {
        assert_eq!(slow.await.unwrap().unwrap().status(), 408);
    }
    assert_eq!(server.ask(&server.client(&trusted)).await.unwrap(), "hello");
}

#[tokio::test]
async fn body_without_length_or_too_large_is_refused_unread() {
    let (server, trusted) = start(limits()).await;
    for (head, status) in [
        ("transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n", "411"),
        ("content-length: 8388609\r\n\r\nhello", "413"),
        ("content-length: 99999999999999999999\r\n\r\nhello", "400"),
    ] {
        let mut stream = tls(&server, &trusted).await;
        stream.write_all(format!("POST /mutate HTTP/1.1\r\nhost: x\r\n{head}").as_bytes()).await.unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(std::str::from_utf8(&answer).unwrap(), format!("HTTP/1.1 {status}"), "{head}");
    }
    let mut stream = tls(&server, &trusted).await;
    let long = format!("POST /mutate HTTP/1.1\r\nhost: x\r\nx-long: {}", "x".repeat(32 << 10));
    let _ = stream.write_all(long.as_bytes()).await;
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 431");
}

#[tokio::test]
async fn http2_is_not_offered() {
    use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
    let (server, trusted) = start(limits()).await;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(trusted.pem().as_bytes()).unwrap()).unwrap();
    let mut config = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let stream = TcpStream::connect(server.address).await.unwrap();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let stream = connector.connect(ServerName::try_from(SERVER).unwrap(), stream).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(b"http/1.1".as_slice()));
}

/// A response body whose reference count shows when it is dropped.
struct Answer {
    text: Vec<u8>,
    /// Counts the references to the body.
    _held: Arc<()>,
}

impl AsRef<[u8]> for Answer {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}

#[tokio::test]
async fn caller_that_does_not_read_its_answer_is_cut_off() {
    let held = Arc::new(());
    let given = Arc::clone(&held);
    // The body is larger than the socket buffers.
    let answer =
        move || async move { axum::body::Bytes::from_owner(Answer { text: vec![b'x'; 64 << 20], _held: given }) };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (_shutdown, ending) = watch::channel(false);
    let router = Router::new().route("/", axum::routing::get(answer));
    let running = tokio::spawn(serve(listener, router, Transport::Plain, short_limits(), ending));
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    eventually("the answer is made", || async { (Arc::strong_count(&held) > 1).then_some(()) }).await;
    // Two references remain: the one of this test and the one of the router.
    eventually("the answer is dropped", || async { (Arc::strong_count(&held) <= 2).then_some(()) }).await;
    running.abort();
}

/// Each caller reads a few bytes from time to time, so no time limit ends its connection.
#[tokio::test(flavor = "multi_thread")]
async fn unread_answers_of_many_callers_are_bounded() {
    const SIZE: usize = 8 << 20;
    // Room for four answers, and for the small ones of the other caller.
    const UNREAD: usize = 4 * SIZE + 1000;
    let held = Arc::new(());
    let given = Arc::clone(&held);
    let answer = move || {
        let _held = Arc::clone(&given);
        async move { (Extension(Useful), axum::body::Bytes::from_owner(Answer { text: vec![b'x'; SIZE], _held })) }
    };
    let quiet = Duration::from_secs(600);
    let bounds = Limits { request: quiet, idle: quiet, unread_bytes: UNREAD, ..limits() };
    let router = Router::new().route("/mutate", post(|body: String| async { body })).route("/slow", post(answer));
    let (server, trusted) = start_with(bounds, router).await;
    let answers = || Arc::strong_count(&held) - 2;
    let mut callers = Vec::new();
    for number in 0..40_u8 {
        let stream = connect_from([127, 0, 2, 1 + number % 3], server.address).await.unwrap();
        let mut stream = tls_over(stream, &trusted).await;
        stream.write_all(b"POST /slow HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n").await.unwrap();
        let mut head = [0; 12];
        timeout(CAP, stream.read_exact(&mut head)).await.unwrap().unwrap();
        assert_eq!(&head, b"HTTP/1.1 200", "the newest answer is sent");
        callers.push(stream);
        let bounded = || async { (answers() <= UNREAD / SIZE).then_some(()) };
        eventually("answers of slow readers are dropped", bounded).await;
        assert_eq!(server.ask(&server.client(&trusted)).await.unwrap(), "hello");
    }
    assert_eq!(answers(), UNREAD / SIZE, "as many as may be unread are still being sent");
    // A caller that reads gets all of its answer.
    let mut rest = vec![0; SIZE];
    timeout(CAP, callers.pop().unwrap().read_exact(&mut rest)).await.unwrap().unwrap();
    eventually("a read answer is dropped", || async { (answers() < UNREAD / SIZE).then_some(()) }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn health_is_answered_during_a_flood_of_half_requests() {
    let address = std::net::TcpListener::bind("127.0.7.7:0").unwrap().local_addr().unwrap();
    let (_shutdown, ending) = watch::channel(false);
    let metrics = remora_operator::controller::metrics::Metrics::default();
    tokio::spawn(remora_operator::run::admin::serve(address, metrics, Vec::new(), ending));
    eventually("the admin port listens", || async { TcpStream::connect(address).await.ok() }).await;
    let mut held = std::collections::VecDeque::new();
    for number in 0..3000_usize {
        let source = [127, 0, u8::try_from(1 + number % 5).unwrap(), u8::try_from(1 + number % 250).unwrap()];
        let mut stream = connect_from(source, address).await.unwrap();
        let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\nx-slow: ").await;
        held.push_back(stream);
        if held.len() > 300 {
            // The server has closed the oldest connections in favour of newer ones.
            let mut oldest = held.pop_front().unwrap();
            assert!(is_closed(&mut oldest, Duration::from_secs(60)).await);
        }
        if number % 100 == 99 {
            // The probe uses a new connection, like kubelet.
            let mut probe = TcpStream::connect(address).await.unwrap();
            probe.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
            let mut answer = String::new();
            probe.read_to_string(&mut answer).await.unwrap();
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        }
    }
}
