//! Idle connections that clients keep: whichever side closes them, the first try of the next request succeeds.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::client::Client;
use crate::expected::{Expected, Role};
use crate::sidecar::{Sidecar, eventually};

/// Maximum number of open connections of a sidecar.
const MOST: usize = 256;

/// Returns the client ports of connections to an IPv4 address, from the kernel's table.
fn connected(address: SocketAddr) -> BTreeSet<u16> {
    let port = |column: &str| u16::from_str_radix(column.split_once(':')?.1, 16).ok();
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let rows = table.lines().skip(1).map(|row| row.split_whitespace().collect::<Vec<_>>());
    // Columns: the two addresses and the state, which is 01 while both sides are open.
    rows.filter(|row| port(row[1]) == Some(address.port()) && row[3] == "01").filter_map(|row| port(row[2])).collect()
}

/// Runs a client that sends a request, and another one after the sidecar closed its connection to make room. With
/// `closes`, the client first closes a connection itself, after its own idle time.
async fn is_answered_at_once(path: &str, closes: bool) {
    let expected = Expected::read();
    let sidecar = Sidecar::start(&expected).await;
    let answer = json!({"flag": [true, 25]});
    let mut client = Client::run(path, Some(&sidecar), expected.plan(Role::Client)).await;
    assert_eq!(client.answers, answer);
    let address = sidecar.address();
    if closes {
        eventually("the client closes what it does not use", async || connected(address).is_empty()).await;
        assert_eq!(client.again().await, answer);
    }
    let kept = connected(address);
    assert_eq!(client.again().await, answer);
    if !closes {
        assert_eq!((kept.len(), connected(address)), (1, kept.clone()), "it keeps a connection, and uses it");
    }

    let mut others = Vec::new();
    while others.len() < MOST {
        // The sidecar closes connections without a request before those with one.
        let mut other = TcpStream::connect(address).await.unwrap();
        other.write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        other.read_exact(&mut [0; 12]).await.unwrap();
        others.push(other);
    }
    eventually("the longest idle connection makes room", async || connected(address).is_disjoint(&kept)).await;
    drop(others);
    assert_eq!(client.again().await, answer);
    assert_eq!(sidecar.answers("identities", "2xx").await, if closes { 4 } else { 3 }, "each at its first try");
    client.finish().await;
    sidecar.stop().await;
}

#[tokio::test]
async fn python_reuses_connections() {
    is_answered_at_once("python/flagsmith_again.py", false).await;
}

#[tokio::test]
async fn node_reuses_connections() {
    is_answered_at_once("node/flagsmith_nodejs_again.js", true).await;
}

#[tokio::test]
async fn rust_reuses_connections() {
    is_answered_at_once("rust/flagsmith_again", false).await;
}

#[tokio::test]
async fn java_reuses_connections() {
    is_answered_at_once("java/flagsmith/Again.java", false).await;
}

#[tokio::test]
async fn go_reuses_connections() {
    is_answered_at_once("go/flagsmith_again", false).await;
}
