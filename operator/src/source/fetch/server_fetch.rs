//! A fetch from a Flagsmith server: its admission, its requests, and the records of its outcome.

use std::time::Duration;

use reqwest::header::{self, HeaderName};
use tokio::time::Instant;

use super::{
    CachedVersion, Comparison, FetchHints, Fetched, FetchedDocument, Fetcher,
    connect::Purpose,
    connector::Server,
    error::{Error, Fault},
    failure::unavailable,
    interrupted::Interrupted,
    key::EnvironmentKey,
    memory_budget::Reservation,
    origin::Origin,
    pages::{DocumentAnswer, Request},
    read_budget::FullRead,
    validator::Validator,
    version::{Arrival, Version},
};
use crate::api::{Flagsmith, Period};

/// Path of the document, below the base URL of the API. It ends in a slash, without which Flagsmith redirects.
const DOCUMENT_PATH: [&str; 2] = ["environment-document", ""];

/// One fetch of a document from a server.
#[derive(Clone, Copy)]
pub(super) struct ServerFetch<'a> {
    pub(super) fetcher: &'a Fetcher,
    /// Namespace of the environment.
    pub(super) namespace: &'a str,
    pub(super) flagsmith: &'a Flagsmith,
    /// Maximum time from the first request to the last byte.
    pub(super) timeout: Period,
    pub(super) hints: &'a FetchHints,
}

impl ServerFetch<'_> {
    /// Fetches the document, whose bytes the reservation covers.
    ///
    /// # Errors
    /// The spec, an object that it refers to, or the server's answer cannot be used: see [`Error`].
    pub(super) async fn run(self, reservation: Reservation) -> Result<Fetched, Error> {
        let server = self.fetcher.server(&self.flagsmith.api_url, &DOCUMENT_PATH)?;
        if let Some(realtime) = &self.flagsmith.realtime {
            // An unusable stream is an error of the fetch too, because the fetch's conditions are read more often than
            // the stream's.
            self.fetcher.stream(realtime, "")?;
        }
        let origin = server.origin.clone();
        self.request_document(server, reservation).await.or_else(|interrupted| interrupted.outcome(&origin))
    }

    async fn request_document(self, server: Server, reservation: Reservation) -> Result<Fetched, Interrupted> {
        let Self { fetcher, namespace, flagsmith, hints, .. } = self;
        let (key, client) = fetcher.admit(Purpose::Fetch, &server, namespace, flagsmith, hints.key.as_ref()).await?;
        if hints.rejected_key.as_ref() == Some(&key) {
            return Ok(Fetched::StillRefused);
        }
        let Server { url, origin, .. } = server;
        let request = Request {
            client: &client,
            origin: &origin,
            url,
            key: &key,
            condition: condition(hints, &key),
            limit: fetcher.options.limit,
            reservation: &reservation,
        };
        let (answer, took) = self.send(request).await?;
        let read = |bytes| Some(FullRead { origin: origin.clone(), bytes, took });
        Ok(match answer {
            DocumentAnswer::NotModified => {
                Fetched::Unchanged { read: if hints.comparison == Comparison::Content { read(0) } else { None } }
            }
            DocumentAnswer::Document { pages, began, entity_tag } => {
                let bytes = pages.iter().map(Vec::len).sum();
                reservation.shrink(bytes);
                let arrival = Arrival::Server { key, began, entity_tag };
                Fetched::Document(Box::new(FetchedDocument { pages, arrival, read: read(bytes), reservation }))
            }
        })
    }

    /// Sends the requests for a document once the limiter admits them. Returns the answer and its time.
    async fn send(self, request: Request<'_>) -> Result<(DocumentAnswer, Duration), Interrupted> {
        let permit = self.fetcher.limiter.acquire(request.origin, self.namespace).await?;
        let began = Instant::now();
        let mut answer = in_time(self.timeout, request.origin, request.send()).await;
        drop(permit);
        let took = began.elapsed();
        self.record(request.origin, &mut answer);
        Ok((answer?, took))
    }

    /// Records the outcome for other fetches from this server, which need not repeat an attempt that just failed.
    fn record(self, origin: &Origin, answer: &mut Result<DocumentAnswer, Interrupted>) {
        let limiter = &self.fetcher.limiter;
        let failure = match answer {
            Err(Interrupted::Failed(error)) => Some(&mut **error),
            Err(Interrupted::Rejected(_) | Interrupted::OverBudget(_)) | Ok(_) => None,
        };
        match failure {
            Some(Error::UpstreamUnavailable { problem, fault: Fault::Connection, retry_after, .. }) => {
                let pause = limiter.record_unreachable(origin, problem);
                *retry_after = retry_after.or(pause);
            }
            Some(Error::UpstreamUnavailable { problem, fault: Fault::Server, retry_after, .. }) => {
                let pause = limiter.record_error(origin, self.namespace, problem);
                *retry_after = retry_after.or(pause);
            }
            _ => limiter.record_answer(origin, self.namespace),
        }
    }
}

/// Returns the header that makes the request conditional, if the cached version is one of this key.
fn condition(hints: &FetchHints, key: &EnvironmentKey) -> Option<(HeaderName, String)> {
    let Some(CachedVersion(Version::Server { key: cached, validator, entity_tag })) = &hints.cached else {
        return None;
    };
    if cached != key {
        return None;
    }
    match hints.comparison {
        Comparison::Time => {
            let time = validator.as_ref().and_then(Validator::if_modified_since)?;
            Some((header::IF_MODIFIED_SINCE, time))
        }
        Comparison::Content => Some((header::IF_NONE_MATCH, entity_tag.clone()?)),
    }
}

/// Waits for the answer for at most this environment's timeout. Other environments may have longer ones.
async fn in_time(
    timeout: Period,
    origin: &Origin,
    answer: impl Future<Output = Result<DocumentAnswer, Interrupted>>,
) -> Result<DocumentAnswer, Interrupted> {
    tokio::time::timeout(timeout.get(), answer)
        .await
        .unwrap_or_else(|_| Err(unavailable(origin, &format!("the document did not arrive within {timeout}")).into()))
}
