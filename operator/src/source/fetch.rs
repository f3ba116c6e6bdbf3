//! Fetches the document of an environment. Needs the client.
//!
//! A fetch from a server sends `If-Modified-Since` where no change can hide behind it, or reads the whole document (see
//! `read_budget`). It follows pages, and bounds what it reads in bytes and time. Redirects and pages are followed within
//! the origin only, because every request carries the environment key. Addresses are checked where the connection is
//! made: an origin that an administrator named may be in a private network, Flagsmith's own service may not.

mod address;
mod body;
mod ca_file;
mod connect;
mod connector;
mod digest;
mod error;
mod events;
mod failure;
mod interrupted;
mod key;
mod limiter;
mod link;
mod listen;
mod memory_budget;
mod memory_queue;
mod minimum_rate;
mod objects;
mod origin;
mod pages;
mod proxy;
mod read_budget;
mod resolve;
mod small_document_memory;
#[cfg(test)]
mod tests;
mod uses;
mod validator;
mod version;

use std::{sync::Arc, time::Duration};

use kube::Client;
use reqwest::header::{self, HeaderName};
use tokio::time::Instant;

pub use self::{
    ca_file::{CaFile, CaFileError},
    digest::ContentDigest,
    error::{Error, Fault, Retry},
    events::Change,
    key::EnvironmentKey,
    listen::Listening,
    memory_budget::Reservation,
    minimum_rate::MinimumRate,
    origin::{AllowedOrigins, InvalidOrigin, Origin, Reach},
    proxy::{InvalidProxy, Proxies, ProxyRule},
    read_budget::{BYTES_PER_MINUTE, FullRead, REST_MAX, ReadBudget, read_within},
    resolve::{Lookup, SystemLookup},
    uses::Unsent,
    version::{Arrival, CachedVersion},
};
use self::{
    connect::{Clients, IDLE, Purpose},
    connector::Server,
    interrupted::Interrupted,
    limiter::RequestLimiter,
    memory_budget::MemoryBudget,
    objects::Objects,
    pages::{DocumentAnswer, Request},
    validator::Validator,
    version::Version,
};
use super::receiver::SigningSecret;
use crate::api::{FeatureEnvironmentSpec, Flagsmith, Period, PlannedSource, SigningSecretRef};

/// Maximum size of a document in bytes (64 MiB).
pub const DOCUMENT_MAX: usize = 64 << 20;

/// Path of the document, below the base URL of the API. It ends in a slash, without which Flagsmith redirects.
const DOCUMENT_PATH: [&str; 2] = ["environment-document", ""];

/// Fetches documents.
pub struct Fetcher {
    objects: Objects,
    allowed: AllowedOrigins,
    proxies: Proxies,
    ca_file: Option<CaFile>,
    lookup: Arc<dyn Lookup>,
    clients: Clients,
    limit: usize,
    budget: MemoryBudget,
    limiter: RequestLimiter,
    read_budget: ReadBudget,
    /// Maximum silence of a stream before it counts as dead.
    idle: Duration,
}

/// Property of the source that a conditional fetch compares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Comparison {
    /// The document's time of change. Some changes do not move it.
    #[default]
    Time,
    /// The document's content, by its entity tag. Without an entity tag, the fetch is unconditional.
    Content,
}

/// Hints from earlier fetches.
#[derive(Clone, Debug, Default)]
pub struct FetchHints {
    /// Version of the cached document. `None` makes the fetch unconditional.
    pub cached: Option<CachedVersion>,
    /// Comparison with the cached version.
    pub comparison: Comparison,
    /// Key to use in place of the one in the Secret, which then is not read.
    pub key: Option<EnvironmentKey>,
    /// Key that the server refused. Set as long as the key is not to be tried again.
    pub rejected_key: Option<EnvironmentKey>,
    /// Expected size of the document in bytes, if known.
    pub expected: Option<usize>,
}

/// Outcome of a fetch.
#[derive(Debug)]
pub enum Fetched {
    /// The source still has the cached version.
    Unchanged {
        /// The full read, if the server compared the content.
        read: Option<FullRead>,
    },
    /// The Secret still holds the refused key. No request was sent.
    StillRefused,
    /// A limit of concurrent fetches is reached, or the memory budget for documents is used up. No request was sent.
    Busy,
    /// The document is larger than expected, and the memory budget has no bytes left for it at the moment.
    OverBudget {
        /// Number of bytes to reserve in the next attempt.
        expected: usize,
    },
    /// A document, possibly the same as the cached one. Its content is not checked yet.
    Document(Box<FetchedDocument>),
}

/// A document as received.
#[derive(Debug)]
pub struct FetchedDocument {
    /// Bytes of each page.
    pub pages: Vec<Vec<u8>>,
    /// Source of the document.
    pub arrival: Arrival,
    /// The full read, if a server sent the document.
    pub read: Option<FullRead>,
    /// Reservation in the memory budget, to be held until the document is compiled.
    pub reservation: Reservation,
}

impl FetchedDocument {
    /// Returns the size of all pages in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.pages.iter().map(Vec::len).sum()
    }

    /// Returns the digest of the content.
    #[must_use]
    pub fn digest(&self) -> ContentDigest {
        ContentDigest::of(&self.pages)
    }
}

impl Fetcher {
    /// Creates a fetcher that connects to these origins, resolves names with `lookup`, and reads documents of up to
    /// `limit` bytes.
    pub fn new(client: Client, allowed: AllowedOrigins, lookup: Arc<dyn Lookup>, limit: usize) -> Self {
        Self {
            objects: Objects::new(client),
            allowed,
            proxies: Proxies::default(),
            ca_file: None,
            clients: Clients::new(Arc::clone(&lookup)),
            lookup,
            limit,
            budget: MemoryBudget::new(limit),
            limiter: RequestLimiter::default(),
            read_budget: ReadBudget::default(),
            idle: IDLE,
        }
    }

    /// Sets the proxies through which the fetcher connects.
    #[must_use]
    pub fn with_proxies(self, proxies: Proxies) -> Self {
        Self { proxies, ..self }
    }

    /// Sets the file with CAs that the fetcher trusts for every server, besides the public CAs.
    #[must_use]
    pub fn with_ca_file(self, ca_file: Option<CaFile>) -> Self {
        Self { ca_file, ..self }
    }

    /// Returns the budget of full reads.
    pub fn read_budget(&self) -> &ReadBudget {
        &self.read_budget
    }

    /// Sets the maximum silence of streams.
    #[cfg(test)]
    pub(crate) fn with_idle(self, idle: Duration) -> Self {
        Self { idle, ..self }
    }

    /// Reads the secret that signs webhooks.
    ///
    /// # Errors
    /// The Secret cannot be read or used: see [`Error`].
    pub async fn signing_secret(&self, namespace: &str, reference: &SigningSecretRef) -> Result<SigningSecret, Error> {
        self.objects.signing_secret(namespace, reference).await
    }

    /// Fetches the document that `spec` names, unless the source still has the cached version.
    ///
    /// # Errors
    /// The spec, an object that it refers to, or the server's answer cannot be used: see [`Error`].
    pub async fn fetch(
        &self,
        namespace: &str,
        spec: &FeatureEnvironmentSpec,
        hints: &FetchHints,
    ) -> Result<Fetched, Error> {
        let planned = spec.source.planned().ok_or_else(|| {
            Error::InvalidSource(
                "set exactly one of flagsmith, document.configMapKeyRef and document.secretKeyRef".to_owned(),
            )
        })?;
        // The reservation comes before every other shared resource, so that no fetch waits for it while holding one.
        let wanted = match planned {
            PlannedSource::Flagsmith(_) => hints.expected,
            // An object's size is known only after the read, and by then its bytes are in memory.
            PlannedSource::ConfigMap(_) | PlannedSource::Secret(_) => Some(objects::DATA_MAX),
        };
        let Some(reservation) = self.budget.reserve(namespace, wanted).await else { return Ok(Fetched::Busy) };
        let found = match planned {
            PlannedSource::Flagsmith(flagsmith) => {
                return self.ask_server(namespace, spec, flagsmith, hints, reservation).await;
            }
            PlannedSource::ConfigMap(reference) => self.objects.config_map_document(namespace, reference).await?,
            PlannedSource::Secret(reference) => self.objects.secret_document(namespace, reference).await?,
        };
        if let Some(CachedVersion(Version::Object { version })) = &hints.cached
            && *version == found.version
        {
            return Ok(Fetched::Unchanged { read: None });
        }
        if found.bytes.len() > self.limit {
            return Err(Error::BodyTooLarge {
                what: "the document",
                limit: self.limit,
                remedy: error::SMALLER_DOCUMENT,
            });
        }
        reservation.shrink(found.bytes.len());
        let arrival = Arrival::Object { version: found.version };
        Ok(Fetched::Document(Box::new(FetchedDocument { pages: vec![found.bytes], arrival, read: None, reservation })))
    }

    async fn ask_server(
        &self,
        namespace: &str,
        spec: &FeatureEnvironmentSpec,
        flagsmith: &Flagsmith,
        hints: &FetchHints,
        reservation: Reservation,
    ) -> Result<Fetched, Error> {
        let server = self.server(&flagsmith.api_url, &DOCUMENT_PATH)?;
        if let Some(realtime) = &flagsmith.realtime {
            // An unusable stream is an error of the fetch too, because the fetch's conditions are read more often than
            // the stream's.
            self.stream(realtime, "")?;
        }
        let origin = server.origin.clone();
        let requested = self.request_document(namespace, spec, flagsmith, hints, reservation, server).await;
        requested.or_else(|interrupted| interrupted.outcome(&origin))
    }

    async fn request_document(
        &self,
        namespace: &str,
        spec: &FeatureEnvironmentSpec,
        flagsmith: &Flagsmith,
        hints: &FetchHints,
        reservation: Reservation,
        server: Server,
    ) -> Result<Fetched, Interrupted> {
        let known = hints.key.as_ref();
        let (key, client) = self.admit(Purpose::Fetch, &server, namespace, flagsmith, known).await?;
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
            limit: self.limit,
            reservation: &reservation,
        };
        let (answer, took) = self.send(namespace, spec.refresh.timeout, request).await?;
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
    async fn send(
        &self,
        namespace: &str,
        timeout: Period,
        request: Request<'_>,
    ) -> Result<(DocumentAnswer, Duration), Interrupted> {
        let permit = self.limiter.acquire(request.origin, namespace).await?;
        let began = Instant::now();
        let mut answer = in_time(timeout, request.origin, request.send()).await;
        drop(permit);
        let took = began.elapsed();
        self.record(request.origin, namespace, &mut answer);
        Ok((answer?, took))
    }

    /// Records the outcome for other fetches from this server, which need not repeat an attempt that just failed.
    fn record(&self, origin: &Origin, namespace: &str, answer: &mut Result<DocumentAnswer, Interrupted>) {
        let failure = match answer {
            Err(Interrupted::Failed(error)) => Some(&mut **error),
            Err(Interrupted::Rejected(_) | Interrupted::OverBudget(_)) | Ok(_) => None,
        };
        match failure {
            Some(Error::UpstreamUnavailable { problem, fault: Fault::Connection, retry_after, .. }) => {
                let pause = self.limiter.record_unreachable(origin, problem);
                *retry_after = retry_after.or(pause);
            }
            Some(Error::UpstreamUnavailable { problem, fault: Fault::Server, retry_after, .. }) => {
                let pause = self.limiter.record_error(origin, namespace, problem);
                *retry_after = retry_after.or(pause);
            }
            _ => self.limiter.record_answer(origin, namespace),
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
    tokio::time::timeout(timeout.get(), answer).await.unwrap_or_else(|_| {
        Err(failure::unavailable(origin, &format!("the document did not arrive within {timeout}")).into())
    })
}
