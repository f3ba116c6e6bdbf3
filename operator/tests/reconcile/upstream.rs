//! Server that answers every request with the current body.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use remora_operator::source::fetch::Origin;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

pub(super) struct Upstream {
    pub(super) origin: Origin,
    body: Arc<Mutex<String>>,
    asked: Arc<AtomicUsize>,
    fails: Arc<AtomicBool>,
    not_modified: Arc<AtomicUsize>,
    /// Locked while answers are stalled.
    answers: Arc<tokio::sync::Mutex<()>>,
}

impl Upstream {
    pub(super) async fn start(document: &Value) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let body = Arc::new(Mutex::new(document.to_string()));
        let (asked, fails): (Arc<AtomicUsize>, Arc<AtomicBool>) = Default::default();
        let (served, count, ill) = (Arc::clone(&body), Arc::clone(&asked), Arc::clone(&fails));
        let answers = Arc::<tokio::sync::Mutex<()>>::default();
        let stalled = Arc::clone(&answers);
        tokio::spawn(async move {
            loop {
                let (mut connection, _) = listener.accept().await.unwrap();
                count.fetch_add(1, Ordering::SeqCst);
                let body = served.lock().unwrap().clone();
                let _ = connection.read(&mut [0; 4096]).await.unwrap();
                drop(stalled.lock().await);
                let status = if ill.load(Ordering::SeqCst) { "500 Internal Server Error" } else { "200 OK" };
                let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
                connection.write_all((head + &body).as_bytes()).await.unwrap();
            }
        });
        Self { origin, body, asked, fails, not_modified: Arc::default(), answers }
    }

    /// Starts a server that answers every conditional request with 304, as a server does whose document's `updated_at`
    /// does not move. Each other answer has new UUIDs of identities.
    pub(super) async fn conditional(document: &Value) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let body = Arc::new(Mutex::new(document.to_string()));
        let (asked, not_modified): (Arc<AtomicUsize>, Arc<AtomicUsize>) = Default::default();
        let (served, count, unread) = (Arc::clone(&body), Arc::clone(&asked), Arc::clone(&not_modified));
        tokio::spawn(async move {
            loop {
                let (mut connection, _) = listener.accept().await.unwrap();
                let number = count.fetch_add(1, Ordering::SeqCst);
                let mut request = [0; 4096];
                let length = connection.read(&mut request).await.unwrap();
                let request = String::from_utf8_lossy(&request[..length]).to_ascii_lowercase();
                let answer = if request.contains("if-modified-since: fri, 20 nov 2026 00:00:00 gmt") {
                    unread.fetch_add(1, Ordering::SeqCst);
                    "HTTP/1.1 304 Not Modified\r\nconnection: close\r\n\r\n".to_owned()
                } else {
                    let mut document: Value = serde_json::from_str(&served.lock().unwrap()).unwrap();
                    for identity in document["identity_overrides"].as_array_mut().into_iter().flatten() {
                        identity["identity_uuid"] = json!(format!("a7cbb5a9-6bb5-4d0f-92c3-{number:012x}"));
                    }
                    let body = document.to_string();
                    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len())
                };
                connection.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        Self { origin, body, asked, fails: Arc::default(), not_modified, answers: Arc::default() }
    }

    /// Starts a server with two pages that changes the document between them, until it has done so this many times.
    pub(super) async fn paged(rests_after: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        tokio::spawn(async move {
            loop {
                let (mut connection, _) = listener.accept().await.unwrap();
                let number = count.fetch_add(1, Ordering::SeqCst);
                let mut request = [0; 4096];
                let length = connection.read(&mut request).await.unwrap();
                let is_first = !String::from_utf8_lossy(&request[..length]).lines().next().unwrap().contains('?');
                let version = number.min(rests_after.saturating_mul(2).saturating_sub(1));
                let mut body = super::document("a");
                body["updated_at"] = json!(format!("2026-11-20T00:00:{version:02}+00:00"));
                let body = body.to_string();
                let link = if is_first { "link: <?page=2>; rel=next\r\n" } else { "" };
                let head =
                    format!("HTTP/1.1 200 OK\r\n{link}content-length: {}\r\nconnection: close\r\n\r\n", body.len());
                connection.write_all((head + &body).as_bytes()).await.unwrap();
            }
        });
        Self {
            origin,
            body: Arc::default(),
            asked,
            fails: Arc::default(),
            not_modified: Arc::default(),
            answers: Arc::default(),
        }
    }

    /// Lets requests wait for their answers until the guard is dropped.
    pub(super) async fn stall(&self) -> tokio::sync::OwnedMutexGuard<()> {
        Arc::clone(&self.answers).lock_owned().await
    }

    /// Switches between HTTP 500 and normal answers.
    pub(super) fn fail(&self, fails: bool) {
        self.fails.store(fails, Ordering::SeqCst);
    }

    pub(super) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    /// Returns the number of answers with 304.
    pub(super) fn not_modified(&self) -> usize {
        self.not_modified.load(Ordering::SeqCst)
    }

    pub(super) fn serve(&self, document: &Value) {
        *self.body.lock().unwrap() = document.to_string();
    }

    /// Returns a spec with this server as the source.
    pub(super) fn spec(&self) -> Value {
        let url = format!("{}/api/v1/", self.origin);
        json!({"source": {"flagsmith": {"apiUrl": url, "environmentKeySecretRef": {"name": "flagsmith"}}}})
    }
}
