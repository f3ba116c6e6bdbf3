//! Flagsmith's stream of change events: opens it and reads its events.
//!
//! Redirects are refused, because the path contains the client-side key. The stream is silent most of the time, and
//! servers send comments meanwhile: a stream without any byte for [`IDLE`](super::connect::IDLE) counts as dead.

use std::{collections::VecDeque, time::Duration};

use reqwest::{Client, Response, StatusCode, Url, header};
use tokio::time::Instant;

use super::{
    Fetcher,
    connect::Purpose,
    connector::{Server, endpoint},
    error::Error,
    events::{Change, Parser},
    failure::{explain, unavailable},
    origin::Origin,
    pages::{HEADERS, size_of_headers},
};
use crate::api::{Flagsmith, Realtime};

/// Maximum time from the request to the end of the answer's header.
const OPENING: Duration = Duration::from_secs(15);

/// Largest number of bytes that a stream may send in [`MINUTE`]. An event and its comment have about 100.
const BYTES_PER_MINUTE: usize = 64 << 10;
const MINUTE: Duration = Duration::from_secs(60);

/// An open stream.
#[derive(Debug)]
pub struct Listening {
    response: Response,
    origin: Origin,
    idle: Duration,
    parser: Parser,
    changes: VecDeque<Change>,
    /// Begin of the current minute, and the number of bytes since.
    minute: (Instant, usize),
}

impl Listening {
    pub(super) async fn open(client: &Client, url: Url, origin: Origin, idle: Duration) -> Result<Self, Error> {
        let request = client
            .get(url.clone())
            .header(header::ACCEPT, "text/event-stream")
            .header(header::ACCEPT_ENCODING, "identity")
            .header(header::CACHE_CONTROL, "no-cache");
        let response = match tokio::time::timeout(OPENING, request.send()).await {
            Ok(sent) => sent.map_err(|error| explain(&error, &origin, &url))?,
            Err(_) => return Err(unavailable(&origin, "the stream of changes did not open in time")),
        };
        if size_of_headers(&response) > HEADERS {
            return Err(Error::BodyTooLarge {
                what: "the header of the stream of changes",
                limit: HEADERS,
                remedy: "check that spec.source.flagsmith.realtime.url names Flagsmith's stream of changes",
            });
        }
        let kind = response.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let is_stream =
            kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("text/event-stream"));
        match response.status() {
            StatusCode::OK if is_stream => {}
            StatusCode::OK => {
                return Err(unavailable(
                    &origin,
                    "the answer is not a stream of events; check spec.source.flagsmith.realtime.url",
                ));
            }
            status if status.is_redirection() => {
                return Err(unavailable(
                    &origin,
                    "the stream of changes redirects, which is not followed because its path carries the key: write the final URL in spec.source.flagsmith.realtime.url",
                ));
            }
            status => {
                let problem = format!(
                    "it answered HTTP {} instead of the stream of changes; check spec.source.flagsmith.realtime.url",
                    status.as_u16()
                );
                return Err(unavailable(&origin, &problem));
            }
        }
        Ok(Self {
            response,
            origin,
            idle,
            parser: Parser::default(),
            changes: VecDeque::new(),
            minute: (Instant::now(), 0),
        })
    }

    /// Waits for the next change.
    ///
    /// # Errors
    /// The stream ended, broke off, was silent for too long, or sent invalid events or too many bytes. It never ends
    /// without an error.
    pub async fn next(&mut self) -> Result<Change, Error> {
        loop {
            if let Some(change) = self.changes.pop_front() {
                return Ok(change);
            }
            let chunk = match tokio::time::timeout(self.idle, self.response.chunk()).await {
                Ok(Ok(Some(chunk))) => chunk,
                Ok(Ok(None)) => return Err(unavailable(&self.origin, "the stream of changes ended")),
                Ok(Err(_)) => return Err(unavailable(&self.origin, "the stream of changes broke off")),
                Err(_) => return Err(unavailable(&self.origin, "the stream of changes sent nothing for too long")),
            };
            self.count(chunk.len())?;
            let read = self.parser.read(&chunk, &mut self.changes);
            read.map_err(|_| unavailable(&self.origin, "the stream of changes sends data that is not an event"))?;
        }
    }
}

impl Listening {
    /// Counts bytes. Otherwise a server could keep a core busy with comments.
    fn count(&mut self, bytes: usize) -> Result<(), Error> {
        let (began, before) = self.minute;
        self.minute = if began.elapsed() < MINUTE { (began, before + bytes) } else { (Instant::now(), bytes) };
        if self.minute.1 > BYTES_PER_MINUTE {
            let problem = format!("the stream of changes sent more than {BYTES_PER_MINUTE} bytes in a minute");
            return Err(unavailable(&self.origin, &problem));
        }
        Ok(())
    }
}

impl Fetcher {
    /// Opens the stream of change events of the environment with this client-side key.
    ///
    /// The checks of a fetch apply to it, too: origins, addresses, certificates.
    ///
    /// # Errors
    /// The spec, an object that it refers to, or the server's answer cannot be used: see [`Error`].
    pub async fn listen(
        &self,
        namespace: &str,
        flagsmith: &Flagsmith,
        realtime: &Realtime,
        client_key: &str,
    ) -> Result<Listening, Error> {
        let server = self.stream(realtime, client_key)?;
        let client = self.connector(Purpose::Listen, &server, namespace, flagsmith).await?;
        Listening::open(&client, server.url, server.origin, self.idle).await
    }

    /// Returns the endpoint of the stream.
    ///
    /// # Errors
    /// The URL cannot be used, or its origin or address is not allowed.
    pub(super) fn stream(&self, realtime: &Realtime, client_key: &str) -> Result<Server, Error> {
        let (url, origin) = endpoint("realtime.url", &realtime.url, &["sse", "environments", client_key, "stream"])?;
        self.reach(url, origin)
    }
}
