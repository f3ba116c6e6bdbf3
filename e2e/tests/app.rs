//! The application, run as a program beside a server that answers like a sidecar. Needs no cluster.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that panics has failed, as it should"
)]

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};

/// Starts a server that answers as a sidecar does and counts requests; its flag is on from request number `flips`.
async fn sidecar(flips: u32) -> (String, Arc<AtomicU32>) {
    let count = Arc::new(AtomicU32::new(0));
    let counted = count.clone();
    let evaluate = move || {
        let asked = counted.fetch_add(1, Ordering::Relaxed);
        async move { Json(json!({"key": "checkout", "value": asked >= flips, "reason": "STATIC"})) }
    };
    let identities =
        async |body: Json<Value>| Json(json!({"identifier": body["identifier"], "traits": [], "flags": []}));
    let router = Router::new()
        .route("/ofrep/v1/evaluate/flags/{flag}", post(evaluate))
        .route("/api/v1/identities/", post(identities));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    (format!("http://{address}"), count)
}

fn app(command: &str, base: &str) -> Command {
    let mut program = Command::new(env!("CARGO_BIN_EXE_remora-e2e"));
    program.args(["app", command, "--flag", "checkout", "--environment-key", "client"]);
    program.env("OFREP_ENDPOINT", base).env("FLAGSMITH_API_URL", format!("{base}/api/v1/"));
    program.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    program
}

#[tokio::test]
async fn app_run_once_prints_answer_and_ends() {
    let (base, count) = sidecar(0).await;
    let output = app("once", &base).output().await.unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success());
    assert!(printed.starts_with("first answer after ") && printed.contains(r#""value":true"#), "{printed}");
    assert_eq!(count.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn app_without_sidecar_fails_at_once() {
    let output = app("once", "http://127.0.0.1:9").output().await.unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("the first request, through OFREP") && said.contains("127.0.0.1:9"), "{said}");
}

#[tokio::test]
async fn app_serves_history_and_forwards_requests() {
    let (base, _) = sidecar(5).await;
    let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let words = std::env::temp_dir().join(format!("remora-e2e-last-words-{port}"));
    let mut program = app("serve", &base);
    program.args(["--listen", &format!("127.0.0.1:{port}"), "--linger", "200", "--last-words"]).arg(&words);
    let mut child: Child = program.spawn().unwrap();
    BufReader::new(child.stdout.take().unwrap()).lines().next_line().await.unwrap().expect("it says its first answer");

    let _installed_already = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::new();
    let get = async |path: &str| -> Option<Value> {
        client.get(format!("http://127.0.0.1:{port}{path}")).send().await.ok()?.json().await.ok()
    };
    let history = tokio::time::timeout(Duration::from_secs(10), async {
        loop {
            match get("/watch").await {
                Some(history) if history["changes"].as_array().is_some_and(|changes| changes.len() == 2) => {
                    break history;
                }
                _ => tokio::task::yield_now().await,
            }
        }
    });
    let history = history.await.expect("both answers are in the history");
    assert_eq!(history["changes"][0]["answer"]["value"], false);
    assert_eq!(history["changes"][1]["answer"]["value"], true);
    assert_eq!(get("/first").await.unwrap()["flagsmith"]["status"], 200);
    assert_eq!(get("/ask?path=/api/v1/identities/").await.unwrap()["status"], 405);
    let body = client.post(format!("http://127.0.0.1:{port}/ask?path=/api/v1/identities/&method=POST"));
    let reply: Value = body
        .header("content-type", "application/json")
        .body(r#"{"identifier":"x"}"#)
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    assert_eq!(reply["body"], r#"{"flags":[],"identifier":"x","traits":[]}"#);

    let id = i32::try_from(child.id().unwrap()).unwrap();
    rustix::process::kill_process(rustix::process::Pid::from_raw(id).unwrap(), rustix::process::Signal::TERM).unwrap();
    assert!(child.wait().await.unwrap().success());
    let words: Value = serde_json::from_slice(&std::fs::read(&words).unwrap()).unwrap();
    assert_eq!(words["failed"], 0);
}
