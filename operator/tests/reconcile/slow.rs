//! A server that sends its document too slowly.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use kube::core::DeserializeGuard;
use remora_operator::{api::FeatureEnvironment, controller::reconcile::reconcile, source::fetch::Origin};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use super::{Cluster, Operator, document, fenv, is, pass, settle, until};

/// Server that sends the whole document once, and then only its beginning. Returns its origin and the number of answers.
async fn server_that_becomes_slow() -> (Origin, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let origin = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let answered = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&answered);
    tokio::spawn(async move {
        let body = document("a").to_string();
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len());
        let mut open = Vec::new();
        loop {
            let (mut connection, _) = listener.accept().await.unwrap();
            let _ = connection.read(&mut [0; 4096]).await.unwrap();
            let bytes = if open.is_empty() { answer.len() } else { answer.len() - 10 };
            connection.write_all(&answer.as_bytes()[..bytes]).await.unwrap();
            open.push(connection);
            count.fetch_add(1, Ordering::SeqCst);
        }
    });
    (origin, answered)
}

#[tokio::test]
async fn source_that_sends_too_slowly_has_its_own_reason() {
    let cluster = Cluster::default();
    let (origin, answered) = server_that_becomes_slow().await;
    let mut operator = Operator::start_with(&cluster, std::slice::from_ref(&origin));
    let source =
        json!({"flagsmith": {"apiUrl": format!("{origin}/api/v1/"), "environmentKeySecretRef": {"name": "flagsmith"}}});
    let spec = json!({"source": source, "refresh": {"timeout": "10m"}});
    operator.turn(fenv(1, &spec)).await;
    is(&cluster.last_status(), "Ready", ("True", "Published"));

    cluster.calls();
    let edited: DeserializeGuard<FeatureEnvironment> = serde_json::from_value(fenv(2, &spec)).unwrap();
    let reconciling = tokio::spawn(reconcile(Arc::new(edited), Arc::clone(&operator.context)));
    until("the source is asked", || answered.load(Ordering::SeqCst) == 2).await;
    let mut seconds = 0;
    while !reconciling.is_finished() {
        assert!(seconds < 60, "the fetch goes on");
        pass(Duration::from_secs(1)).await;
        settle().await;
        tokio::time::sleep(Duration::from_millis(10)).await;
        seconds += 1;
    }
    assert!(seconds >= 14, "the server may be silent for 15 s: {seconds}");
    let status = cluster.last_status();
    is(&status, "Fetched", ("False", "AnswerTooSlow"));
    is(&status, "Ready", ("True", "LastGood"));
    assert!(status.to_string().contains("let the server compress its answers"), "{status}");
    assert!(cluster.calls().contains(&"event AnswerTooSlow".to_owned()));
    let line = r#"remora_controller_steps_total{step="fetch",outcome="AnswerTooSlow"} 1"#;
    let metrics = operator.metrics.text().unwrap();
    assert!(metrics.contains(line), "no {line} in:\n{metrics}");
}
