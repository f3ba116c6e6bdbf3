//! One request over one fresh connection, never repeated: what the first line of an application would do.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use bytes::Bytes;
use http::{Method, Request, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;

const LONGEST: Duration = Duration::from_secs(5);

/// What came back.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Reply {
    /// The status code.
    pub status: u16,
    /// The headers in their order.
    pub headers: Vec<(String, String)>,
    /// The body as text.
    pub body: String,
    /// From the connection's beginning to the body's end.
    pub micros: u64,
}

impl Reply {
    /// The body as JSON.
    ///
    /// # Errors
    ///
    /// When it is none.
    pub fn json(&self) -> anyhow::Result<serde_json::Value> {
        serde_json::from_str(&self.body).with_context(|| format!("no JSON with status {}: {}", self.status, self.body))
    }
}

/// Sends the request to the host and port in its address.
pub(super) async fn ask(request: Request<Bytes>) -> anyhow::Result<Reply> {
    let uri = request.uri().clone();
    let whole = tokio::time::timeout(LONGEST, send(request));
    whole
        .await
        .unwrap_or_else(|_| Err(anyhow::anyhow!("no answer within {LONGEST:?}")))
        .with_context(|| format!("asking {uri}"))
}

async fn send(mut request: Request<Bytes>) -> anyhow::Result<Reply> {
    let start = Instant::now();
    let authority = request.uri().authority().context("no host in the address")?.clone();
    let address = (authority.host().to_owned(), authority.port_u16().unwrap_or(80));
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);

    let path = request.uri().path_and_query().map_or("/", |target| target.as_str()).parse::<Uri>()?;
    *request.uri_mut() = path;
    request.headers_mut().insert(http::header::HOST, authority.as_str().parse()?);
    let response = sender.send_request(request.map(Full::new)).await?;
    let (head, body) = response.into_parts();
    let body = body.collect().await?.to_bytes();
    connection.abort();
    let headers = head
        .headers
        .iter()
        .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()));
    Ok(Reply {
        status: head.status.as_u16(),
        headers: headers.collect(),
        body: String::from_utf8_lossy(&body).into_owned(),
        micros: u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX),
    })
}

/// A POST of JSON.
pub(super) fn post(url: &str, key: Option<&str>, body: &serde_json::Value) -> anyhow::Result<Request<Bytes>> {
    let mut request = Request::builder().method(Method::POST).uri(url).header("Content-Type", "application/json");
    if let Some(key) = key {
        request = request.header("X-Environment-Key", key);
    }
    request.body(Bytes::from(body.to_string())).with_context(|| format!("not an address: {url}"))
}
