//! Counter of the bytes between the controller and the API server: a relay of connections.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use anyhow::ensure;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpListener, TcpStream, ToSocketAddrs},
    task::JoinHandle,
};

/// Relay to the API server.
pub(crate) struct Meter {
    address: SocketAddr,
    received: Arc<AtomicU64>,
    relay: JoinHandle<()>,
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.relay.abort();
    }
}

impl Meter {
    /// Relays connections to this port of the loopback address.
    pub(crate) async fn start(to: u16) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let received: Arc<AtomicU64> = Arc::default();
        let counted = Arc::clone(&received);
        let relay = tokio::spawn(async move {
            loop {
                let Ok((client, _)) = listener.accept().await else { continue };
                let counted = Arc::clone(&counted);
                tokio::spawn(async move {
                    let Ok(server) = TcpStream::connect(("127.0.0.1", to)).await else { return };
                    let (from_client, to_client) = client.into_split();
                    let (from_server, to_server) = server.into_split();
                    // Either side closes the connection.
                    tokio::select! {
                        () = copy(from_client, to_server, None) => {}
                        () = copy(from_server, to_client, Some(&counted)) => {}
                    }
                });
            }
        });
        Ok(Self { address, received, relay })
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// Returns the bytes that the controller received, with those of TLS, after compression.
    pub(crate) fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }
}

async fn copy(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, count: Option<&AtomicU64>) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        let Some(bytes) = buffer.get(..length) else { return };
        if let Some(count) = count {
            count.fetch_add(length as u64, Ordering::Relaxed);
        }
        if to.write_all(bytes).await.is_err() {
            return;
        }
    }
}

/// Returns the body of an answer to a request without TLS.
pub(crate) async fn get(address: impl ToSocketAddrs, path: &str) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\nhost: x\r\n\r\n").as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    ensure!(answer.starts_with("HTTP/1.0 200") || answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
    Ok(answer)
}
