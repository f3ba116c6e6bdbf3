//! A server that answers with what it is given, to whoever asks.

use std::sync::{Arc, Mutex};

use remora_operator::fetch::Origin;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

pub(super) struct Upstream {
    pub(super) origin: Origin,
    body: Arc<Mutex<String>>,
}

impl Upstream {
    pub(super) async fn start(document: &Value) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let body = Arc::new(Mutex::new(document.to_string()));
        let served = Arc::clone(&body);
        tokio::spawn(async move {
            loop {
                let (mut connection, _) = listener.accept().await.unwrap();
                let body = served.lock().unwrap().clone();
                let _ = connection.read(&mut [0; 4096]).await.unwrap();
                let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
                connection.write_all((head + &body).as_bytes()).await.unwrap();
            }
        });
        Self { origin, body }
    }

    pub(super) fn serve(&self, document: &Value) {
        *self.body.lock().unwrap() = document.to_string();
    }

    /// A spec that reads from here.
    pub(super) fn spec(&self) -> Value {
        let url = format!("{}/api/v1/", self.origin);
        json!({"source": {"flagsmith": {"apiUrl": url, "environmentKeySecretRef": {"name": "flagsmith"}}}})
    }
}
