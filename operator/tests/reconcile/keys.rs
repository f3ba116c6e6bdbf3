//! Secrets with environment keys: how often the operator reads them, and when it uses a changed key.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use remora_operator::source::fetch::Origin;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use super::{Cluster, Operator, document, fenv, is, pass, upstream::Upstream, wait};

/// Longest time for which the operator uses a key without another look at its Secret.
pub(super) const KEY_REREAD: Duration = Duration::from_secs(300);

fn secrets_read(calls: &[String]) -> usize {
    calls.iter().filter(|call| *call == "get secret").count()
}

#[tokio::test]
async fn key_secret_of_working_source_is_read_once_in_five_minutes() {
    let cluster = Cluster::default();
    let upstream = Upstream::start(&document("a")).await;
    let mut operator = Operator::start_with(&cluster, std::slice::from_ref(&upstream.origin));
    let (mut passed, mut read, mut polls) = (Duration::ZERO, 0, 0);
    while passed < 4 * KEY_REREAD {
        let (action, calls) = operator.turn(fenv(1, &upstream.spec())).await;
        read += secrets_read(&calls);
        polls += 1;
        passed += wait(&action);
        pass(wait(&action)).await;
    }
    // The first four reads are due at 0, 5, 10 and 15 minutes, each with the next poll.
    assert!((3..=4).contains(&read), "{read} reads in {polls} polls");
    assert!(polls > 30 && upstream.asked() >= polls, "{polls} polls, {} requests", upstream.asked());
}

#[tokio::test]
async fn edited_spec_and_requested_refresh_read_key_secret_at_once() {
    let cluster = Cluster::default();
    let upstream = Upstream::start(&document("a")).await;
    let mut operator = Operator::start_with(&cluster, std::slice::from_ref(&upstream.origin));
    operator.turn(fenv(1, &upstream.spec())).await;
    let (_, calls) = operator.turn(fenv(2, &upstream.spec())).await;
    assert_eq!(secrets_read(&calls), 1, "{calls:?}");
    let mut object = fenv(2, &upstream.spec());
    object["metadata"]["annotations"] = json!({"remora.dev/refresh": "now"});
    let (_, calls) = operator.turn(object).await;
    assert_eq!(secrets_read(&calls), 1, "{calls:?}");
}

/// Server that accepts one key, which the test replaces.
struct Server {
    origin: Origin,
    accepted: Arc<Mutex<&'static str>>,
    refusals: Arc<AtomicUsize>,
}

impl Server {
    async fn start(key: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let (accepted, refusals) = (Arc::new(Mutex::new(key)), Arc::new(AtomicUsize::new(0)));
        let (key, count) = (Arc::clone(&accepted), Arc::clone(&refusals));
        tokio::spawn(async move {
            loop {
                let (mut connection, _) = listener.accept().await.unwrap();
                let mut request = [0; 4096];
                let length = connection.read(&mut request).await.unwrap();
                let request = String::from_utf8_lossy(&request[..length]).to_ascii_lowercase();
                let is_accepted = request.contains(&format!("x-environment-key: {}\r\n", key.lock().unwrap()));
                let (status, body) = if is_accepted {
                    ("200 OK", document("a").to_string())
                } else {
                    count.fetch_add(1, Ordering::SeqCst);
                    ("403 Forbidden", String::new())
                };
                let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
                connection.write_all((head + &body).as_bytes()).await.unwrap();
            }
        });
        Self { origin, accepted, refusals }
    }

    fn spec(&self) -> Value {
        let url = format!("{}/api/v1/", self.origin);
        json!({"source": {"flagsmith": {"apiUrl": url, "environmentKeySecretRef": {"name": "flagsmith"}}}})
    }
}

#[tokio::test]
async fn key_replaced_in_secret_and_at_server_is_used_without_failed_fetch() {
    let cluster = Cluster::default();
    let server = Server::start("ser.key").await;
    let mut operator = Operator::start_with(&cluster, std::slice::from_ref(&server.origin));
    let (action, _) = operator.turn(fenv(1, &server.spec())).await;
    cluster.replace_key();
    *server.accepted.lock().unwrap() = "ser.other";
    pass(wait(&action)).await;
    let (_, calls) = operator.turn(fenv(1, &server.spec())).await;
    assert_eq!((secrets_read(&calls), server.refusals.load(Ordering::SeqCst)), (1, 1), "{calls:?}");
    is(&cluster.last_status(), "Fetched", ("True", "Synced"));
    assert!(!calls.iter().any(|call| call.starts_with("event AuthenticationFailed")), "{calls:?}");
}

#[tokio::test]
async fn key_that_server_refuses_is_looked_for_in_secret_with_every_attempt() {
    let cluster = Cluster::default();
    let server = Server::start("ser.key").await;
    let mut operator = Operator::start_with(&cluster, std::slice::from_ref(&server.origin));
    let (action, _) = operator.turn(fenv(1, &server.spec())).await;
    *server.accepted.lock().unwrap() = "ser.other";
    pass(wait(&action)).await;
    let (action, calls) = operator.turn(fenv(1, &server.spec())).await;
    assert_eq!(secrets_read(&calls), 1, "{calls:?}");
    is(&cluster.last_status(), "Fetched", ("False", "AuthenticationFailed"));
    let refusals = server.refusals.load(Ordering::SeqCst);
    pass(wait(&action)).await;
    let (action, calls) = operator.turn(fenv(1, &server.spec())).await;
    assert_eq!((secrets_read(&calls), server.refusals.load(Ordering::SeqCst)), (1, refusals), "{calls:?}");
    cluster.replace_key();
    pass(wait(&action)).await;
    operator.turn(fenv(1, &server.spec())).await;
    is(&cluster.last_status(), "Fetched", ("True", "Synced"));
}
