//! Sends one request over one fresh connection and never repeats it, as the first line of an application would.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use bytes::Bytes;
use http::{Method, Request, Response, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::AbortHandle;

/// Longest wait for an answer: a busy machine may give a container no time for seconds.
const LONGEST: Duration = Duration::from_secs(30);
/// Longest wait for an event: a kubelet may take this long to update a pod's volume.
const LONGEST_SILENCE: Duration = Duration::from_secs(300);

/// Answer to one request.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Reply {
    /// Status code.
    pub status: u16,
    /// Headers in the order received.
    pub headers: Vec<(String, String)>,
    /// Body as text.
    pub body: String,
    /// Time in microseconds from opening the connection to the end of the body.
    pub micros: u64,
}

impl Reply {
    /// Returns the first header of this name, which is in lower case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// Parses the body as JSON.
    ///
    /// # Errors
    ///
    /// Returns an error if the body is not JSON.
    pub fn json(&self) -> anyhow::Result<serde_json::Value> {
        serde_json::from_str(&self.body).with_context(|| format!("no JSON with status {}: {}", self.status, self.body))
    }
}

/// Sends the request to the host and port of its URL.
pub(super) async fn ask(request: Request<Bytes>) -> anyhow::Result<Reply> {
    ask_by(None, request).await
}

/// Sends the request over a Unix domain socket, or to the host and port of its URL if `socket` is `None`.
pub(super) async fn ask_by(socket: Option<&str>, request: Request<Bytes>) -> anyhow::Result<Reply> {
    let uri = request.uri().clone();
    let whole = tokio::time::timeout(LONGEST, send(socket, request));
    whole
        .await
        .unwrap_or_else(|_| Err(anyhow::anyhow!("no answer within {LONGEST:?}")))
        .with_context(|| format!("asking {uri}"))
}

/// Reads an event stream up to the first event with data, and returns that event.
pub(super) async fn listen(request: Request<Bytes>) -> anyhow::Result<String> {
    let (response, connection) = connect(None, request).await?;
    anyhow::ensure!(response.status() == 200, "status {}", response.status());
    let mut body = response.into_body();
    let mut text = String::new();
    let event = async {
        while let Some(frame) = body.frame().await {
            text += &String::from_utf8_lossy(&frame?.into_data().unwrap_or_default());
            if text.contains("data:") && text.ends_with("\n\n") {
                return anyhow::Ok(());
            }
        }
        anyhow::bail!("the stream ended")
    };
    let heard = tokio::time::timeout(LONGEST_SILENCE, event).await;
    connection.abort();
    heard.with_context(|| format!("no event within {LONGEST_SILENCE:?}"))??;
    Ok(text)
}

async fn send(socket: Option<&str>, request: Request<Bytes>) -> anyhow::Result<Reply> {
    let start = Instant::now();
    let (response, connection) = connect(socket, request).await?;
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

/// Builds a POST request with a JSON body.
pub(super) fn post(url: &str, key: Option<&str>, body: &serde_json::Value) -> anyhow::Result<Request<Bytes>> {
    let mut request = Request::builder().method(Method::POST).uri(url).header("Content-Type", "application/json");
    if let Some(key) = key {
        request = request.header("X-Environment-Key", key);
    }
    request.body(Bytes::from(body.to_string())).with_context(|| format!("not an address: {url}"))
}

/// Returns the response head and the task that drives the connection.
async fn connect(
    socket: Option<&str>,
    mut request: Request<Bytes>,
) -> anyhow::Result<(Response<Incoming>, AbortHandle)> {
    let authority = request.uri().authority().context("no host in the address")?.clone();
    let (mut sender, connection) = match socket {
        Some(path) => {
            let (sender, connection) = handshake(TokioIo::new(UnixStream::connect(path).await?)).await?;
            (sender, tokio::spawn(connection).abort_handle())
        }
        None => {
            let address = (authority.host().to_owned(), authority.port_u16().unwrap_or(80));
            let (sender, connection) = handshake(TokioIo::new(TcpStream::connect(address).await?)).await?;
            (sender, tokio::spawn(connection).abort_handle())
        }
    };
    let path = request.uri().path_and_query().map_or("/", |target| target.as_str()).parse::<Uri>()?;
    *request.uri_mut() = path;
    request.headers_mut().insert(http::header::HOST, authority.as_str().parse()?);
    let response = sender.send_request(request.map(Full::new)).await?;
    Ok((response, connection))
}
