//! Tests of streams on real sockets. Only the events are made up.

use std::{
    net::Ipv4Addr,
    time::{Duration, Instant},
};

use kube::{Client, Config};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    time::timeout,
};

use super::*;
use crate::{
    controller::metrics::Metrics,
    source::{
        fetch::{AllowedOrigins, FetcherOptions, FullRead, Origin, SystemLookup},
        trigger::TriggerRequest,
    },
};

/// Timeout that only a hang reaches, on any machine.
const CAP: Duration = Duration::from_secs(20);

fn shop(name: &str) -> NamespacedName {
    NamespacedName::new("shop", name)
}

struct Scene {
    server: TcpListener,
    streams: Streams,
    requests: mpsc::Receiver<TriggerRequest>,
    metrics: Metrics,
}

impl Scene {
    async fn new(idle: Duration) -> Self {
        let _installed_already = rustls::crypto::ring::default_provider().install_default();
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let origin: Origin = format!("http://{}", server.local_addr().unwrap()).parse().unwrap();
        let client = Client::try_from(Config::new("http://127.0.0.1:9".parse().unwrap())).unwrap();
        let allowed = AllowedOrigins::new(&[origin]).unwrap();
        let fetcher = Fetcher::new(
            client,
            FetcherOptions { limit: 1 << 20, ..FetcherOptions::new(allowed) },
            Arc::new(SystemLookup),
        )
        .with_idle(idle);
        let (triggers, requests) = TriggerSender::new();
        let metrics = Metrics::default();
        let streams = Streams::new(Arc::new(fetcher), triggers, metrics.realtime.clone(), StreamPermits::default());
        Self { server, streams, requests, metrics }
    }

    fn keep(&self, name: &str, held: i64) -> String {
        self.streams.ensure(&shop(name), Some(self.target("uid-1")), Timestamp::from_second(held).ok()).unwrap()
    }

    fn target(&self, uid: &str) -> StreamTarget {
        let address = self.server.local_addr().unwrap();
        let flagsmith = serde_json::json!({"environmentKeySecretRef": {"name": "flagsmith"}});
        StreamTarget {
            uid: uid.into(),
            flagsmith: serde_json::from_value(flagsmith).unwrap(),
            realtime: Realtime { url: format!("http://{address}/") },
            client_key: "client".to_owned(),
        }
    }

    /// Accepts the next stream.
    async fn accept(&self) -> TcpStream {
        let (mut connection, _) = timeout(CAP, self.server.accept()).await.expect("no stream is opened").unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(connection.read_u8().await.unwrap());
        }
        assert!(head.starts_with(b"GET /sse/environments/client/stream HTTP/1.1\r\n"));
        connection.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n: hello\n\n").await.unwrap();
        connection
    }

    async fn triggered(&mut self) -> Trigger {
        let request = timeout(CAP, self.requests.recv()).await.expect("no trigger was sent").unwrap();
        assert_eq!(request.environment, shop("storefront"));
        request.trigger
    }

    fn metric(&self, line: &str) -> bool {
        self.metrics.text().unwrap().lines().any(|found| found == line)
    }
}

async fn tell(connection: &mut TcpStream, second: i64) {
    let event = format!("event: environment_updated\ndata: {{\"updated_at\": {second}}}\n\n");
    connection.write_all(event.as_bytes()).await.unwrap();
}

/// Asserts that the other side closes the connection.
async fn is_closed(connection: &mut TcpStream) {
    let mut rest = Vec::new();
    timeout(CAP, connection.read_to_end(&mut rest)).await.expect("the stream is still open").unwrap();
}

#[tokio::test]
async fn newer_event_requests_fetch_without_condition() {
    let mut scene = Scene::new(CAP).await;
    assert_eq!(scene.keep("storefront", 100), "connecting");
    let mut connection = scene.accept().await;
    assert_eq!(scene.triggered().await, Trigger::Fetch);
    tell(&mut connection, 99).await;
    tell(&mut connection, 100).await;
    tell(&mut connection, 101).await;
    assert_eq!(scene.triggered().await, Trigger::FetchWhole);
    // The first event triggers one fetch only, though the cached document stays the old one.
    tell(&mut connection, 101).await;
    tell(&mut connection, 102).await;
    assert_eq!(scene.triggered().await, Trigger::FetchWhole);
    assert!(scene.metric("remora_realtime_changes_total 2") && scene.metric("remora_realtime_streams 1"));
    assert_eq!(scene.keep("storefront", 102), "connected");
    assert!(scene.requests.try_recv().is_err());
}

#[tokio::test]
async fn many_events_fetch_large_document_as_often_as_webhooks_may() {
    let mut scene = Scene::new(CAP).await;
    // The read costs a 20th of a minute's budget, so the next one may follow after 3 s.
    let origin: Origin = format!("http://{}", scene.server.local_addr().unwrap()).parse().unwrap();
    let read = FullRead { origin, bytes: (512 << 20) / 20, took: Duration::ZERO };
    let rest = Duration::from_secs(3);
    scene.streams.fetcher.read_budget().record(
        "shop",
        &"uid-1".into(),
        &read,
        Duration::from_secs(30),
        Instant::now().into(),
    );
    scene.keep("storefront", 100);
    let mut connection = scene.accept().await;
    assert_eq!(scene.triggered().await, Trigger::Fetch);
    for second in 101..200 {
        tell(&mut connection, second).await;
    }
    assert_eq!(scene.triggered().await, Trigger::FetchWhole);
    let first = Instant::now();
    assert_eq!(scene.triggered().await, Trigger::FetchWhole);
    assert!(first.elapsed() > rest - Duration::from_millis(500), "{:?}", first.elapsed());
}

#[tokio::test]
async fn ended_or_silent_stream_is_reopened() {
    let mut scene = Scene::new(Duration::from_secs(3)).await;
    scene.keep("storefront", 100);
    drop(scene.accept().await);
    assert_eq!(scene.triggered().await, Trigger::Fetch);
    let mut silent = scene.accept().await;
    assert_eq!(scene.triggered().await, Trigger::Fetch);
    is_closed(&mut silent).await;
    let mut third = scene.accept().await;
    assert_eq!(scene.triggered().await, Trigger::Fetch);
    tell(&mut third, 101).await;
    assert_eq!(scene.triggered().await, Trigger::FetchWhole);
    assert!(scene.metric("remora_realtime_failures_total{reason=\"UpstreamUnavailable\"} 2"));
}

#[tokio::test]
async fn repeated_stream_failure_is_reported() {
    let mut scene = Scene::new(CAP).await;
    scene.keep("storefront", 100);
    for _ in 0..2 {
        drop(scene.accept().await);
        assert_eq!(scene.triggered().await, Trigger::Fetch);
        assert_eq!(scene.keep("storefront", 100), "connected");
    }
    drop(scene.accept().await);
    assert_eq!(scene.triggered().await, Trigger::Fetch);
    assert_eq!(scene.triggered().await, Trigger::Report);
    let state_text = scene.keep("storefront", 100);
    assert!(
        state_text.starts_with("polled only: ") && state_text.ends_with("the stream of changes ended"),
        "{state_text}"
    );
    assert!(scene.metric("remora_realtime_streams 0"));
    let _stream = scene.accept().await;
    assert_eq!(scene.triggered().await, Trigger::Fetch);
    assert_eq!(scene.keep("storefront", 100), state_text, "the stream may break off again");
}

#[tokio::test]
async fn stream_ends_with_its_environment() {
    let scene = Scene::new(CAP).await;
    scene.keep("storefront", 100);
    let mut first = scene.accept().await;
    // The environment was suspended, or its stream was removed from the spec.
    assert_eq!(scene.streams.ensure(&shop("storefront"), None, None), None);
    is_closed(&mut first).await;
    scene.keep("storefront", 100);
    let mut second = scene.accept().await;
    // The environment was deleted and created again.
    scene.streams.retain(|environment, uid| (environment, uid) == (&shop("storefront"), &"uid-1".into()));
    scene.streams.retain(|_, uid| uid.as_str() == "uid-2");
    is_closed(&mut second).await;
    let mut third = {
        scene.streams.ensure(&shop("storefront"), Some(scene.target("uid-2")), None).unwrap();
        scene.accept().await
    };
    // The lease was lost, so the replica drops all its streams.
    drop(scene.streams);
    is_closed(&mut third).await;
}

#[tokio::test]
async fn changed_target_replaces_stream() {
    let scene = Scene::new(CAP).await;
    scene.keep("storefront", 100);
    let mut old = scene.accept().await;
    scene.streams.ensure(&shop("storefront"), Some(scene.target("uid-2")), None).unwrap();
    let _new = scene.accept().await;
    is_closed(&mut old).await;
}

#[tokio::test]
async fn stream_beyond_limit_is_reported_and_opened_when_another_ends() {
    let mut scene = Scene::new(CAP).await;
    scene.streams.permits = StreamPermits::new(1);
    scene.keep("storefront", 100);
    let _one = scene.accept().await;
    assert_eq!(scene.triggered().await, Trigger::Fetch);
    scene.keep("other", 100);
    let request = timeout(CAP, scene.requests.recv()).await.expect("nothing is reported").unwrap();
    assert_eq!((request.environment.name.as_str(), request.trigger), ("other", Trigger::Report));
    assert!(scene.keep("other", 100).contains("the operator follows"));

    scene.streams.ensure(&shop("storefront"), None, None);
    let _other = scene.accept().await;
    let request = timeout(CAP, scene.requests.recv()).await.expect("the open stream triggers nothing").unwrap();
    assert_eq!((request.environment.name.as_str(), request.trigger), ("other", Trigger::Fetch));
    assert_eq!(scene.keep("other", 100), "connected");
}
