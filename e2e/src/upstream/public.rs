//! The public side: reads requests and writes answers byte by byte, so that an answer can be wrong on purpose.

use std::fmt::Write as _;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::answer::Answer;
use super::fault::Fault;
use super::head::{self, Head};
use super::store::ScenarioStore;

/// Connection, plain or over TLS, that can be reset.
trait Connection: AsyncRead + AsyncWrite + Unpin + Send {
    fn socket(&self) -> &TcpStream;
}

impl Connection for TcpStream {
    fn socket(&self) -> &TcpStream {
        self
    }
}

impl Connection for TlsStream<TcpStream> {
    fn socket(&self) -> &TcpStream {
        self.get_ref().0
    }
}

/// State of the connection after an answer: it serves another request, or closes.
#[derive(Clone, Copy, PartialEq)]
enum Then {
    GoOn,
    Close,
}

pub(super) async fn serve(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    store: Arc<ScenarioStore>,
) -> anyhow::Result<()> {
    loop {
        let (socket, _) = listener.accept().await.context("the public side")?;
        let (tls, store) = (tls.clone(), store.clone());
        // A client that disconnects or does not speak HTTP ends only its own connection.
        tokio::spawn(async move {
            let _ended = match tls {
                Some(tls) => match tls.accept(socket).await {
                    Ok(stream) => converse(stream, true, &store).await,
                    Err(error) => Err(error.into()),
                },
                None => converse(socket, false, &store).await,
            };
        });
    }
}

async fn converse(mut stream: impl Connection, tls: bool, store: &ScenarioStore) -> anyhow::Result<()> {
    while let Some(head) = head::read(&mut stream).await? {
        if let Some(client_key) = stream_key(&head) {
            return follow(&mut stream, client_key, store).await;
        }
        let (answer, fault) = store.answer(&head, tls)?;
        let then = if head.closes() { Then::Close } else { Then::GoOn };
        if write(&mut stream, answer, fault, then).await? == Then::Close {
            break;
        }
    }
    Ok(stream.shutdown().await?)
}

/// Returns the client-side key in the path of an event stream.
fn stream_key(head: &Head) -> Option<&str> {
    head.path.strip_prefix("/sse/environments/")?.strip_suffix("/stream")
}

/// Sends server-sent events: one for each change of the document, and comments at intervals to keep the connection
/// open.
async fn follow(stream: &mut impl Connection, client_key: &str, store: &ScenarioStore) -> anyhow::Result<()> {
    let Some(mut changes) = store.follow(client_key) else {
        write(stream, Answer::not_found(), None, Then::Close).await?;
        return Ok(stream.shutdown().await?);
    };
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\nConnection: close\r\n\r\n: connected\n\n";
    stream.write_all(head.as_bytes()).await?;
    stream.flush().await?;
    loop {
        let event = match tokio::time::timeout(Duration::from_secs(15), changes.changed()).await {
            Ok(Ok(())) => {
                let micros = changes.borrow_and_update().as_microsecond();
                let seconds = format!("{}.{:06}", micros.div_euclid(1_000_000), micros.rem_euclid(1_000_000));
                format!("event: environment_updated\ndata: {{\"updated_at\": {seconds}}}\n\n")
            }
            Ok(Err(_)) => return Ok(stream.shutdown().await?),
            Err(_) => ": ping\n\n".to_owned(),
        };
        stream.write_all(event.as_bytes()).await?;
        stream.flush().await?;
    }
}

/// Writes the answer, or the result of the fault.
async fn write(stream: &mut impl Connection, mut answer: Answer, fault: Option<Fault>, then: Then) -> io::Result<Then> {
    let whole = answer.body.len();
    match fault {
        None => {}
        Some(Fault::Delay { millis }) => tokio::time::sleep(Duration::from_millis(millis)).await,
        Some(Fault::Status { code, body, retry_after }) => {
            answer = Answer::json(code, body);
            answer.headers.extend(retry_after.map(|after| ("Retry-After", after)));
        }
        Some(Fault::Body { text }) => answer = Answer::json(200, text),
        Some(Fault::BrokenJson) => {
            let half = whole / 2;
            answer.body = answer
                .body
                .chars()
                .scan(0, |at, c| {
                    *at += c.len_utf8();
                    (*at <= half).then_some(c)
                })
                .collect();
        }
        Some(Fault::Redirect { to }) => answer = Answer::redirect(to),
        Some(Fault::Truncate { bytes }) => {
            send(
                stream,
                &head_of(&answer, whole, Then::GoOn),
                answer.body.as_bytes().get(..bytes).unwrap_or(answer.body.as_bytes()),
            )
            .await?;
            return Ok(Then::Close);
        }
        Some(Fault::Reset { bytes }) => {
            if bytes > 0 {
                send(
                    stream,
                    &head_of(&answer, whole, Then::GoOn),
                    answer.body.as_bytes().get(..bytes).unwrap_or(answer.body.as_bytes()),
                )
                .await?;
            }
            stream.socket().set_zero_linger()?;
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        Some(Fault::WrongLength { by }) => {
            let announced = whole.saturating_add_signed(isize::try_from(by).unwrap_or(isize::MAX));
            send(stream, &head_of(&answer, announced, Then::GoOn), answer.body.as_bytes()).await?;
            return Ok(Then::Close);
        }
        Some(Fault::Drip { bytes, millis }) => {
            send(stream, &head_of(&answer, whole, then), &[]).await?;
            for piece in answer.body.as_bytes().chunks(bytes.max(1)) {
                stream.write_all(piece).await?;
                stream.flush().await?;
                tokio::time::sleep(Duration::from_millis(millis)).await;
            }
            return Ok(then);
        }
    }
    send(stream, &head_of(&answer, answer.body.len(), then), answer.body.as_bytes()).await?;
    Ok(then)
}

async fn send(stream: &mut impl Connection, head: &str, body: &[u8]) -> io::Result<()> {
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body).await?;
    stream.flush().await
}

fn head_of(answer: &Answer, length: usize, then: Then) -> String {
    let reason =
        http::StatusCode::from_u16(answer.status).ok().and_then(|status| status.canonical_reason()).unwrap_or("");
    let mut head = format!("HTTP/1.1 {} {reason}\r\n", answer.status);
    for (name, value) in &answer.headers {
        let _ = write!(head, "{name}: {value}\r\n");
    }
    // A 304 announces no length: the length would be that of the document, which a 304 does not send.
    if answer.status != 304 {
        let _ = write!(head, "Content-Length: {length}\r\n");
    }
    if then == Then::Close {
        head.push_str("Connection: close\r\n");
    }
    head.push_str("\r\n");
    head
}
