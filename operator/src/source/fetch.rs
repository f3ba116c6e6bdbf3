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
mod server_fetch;
mod small_document_memory;
#[cfg(test)]
mod tests;
mod uses;
mod validator;
mod version;

use std::{sync::Arc, time::Duration};

use kube::Client;

pub use self::{
    ca_file::{CaFile, CaFileError},
    digest::ContentDigest,
    error::{Error, Fault},
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
    connect::{Clients, IDLE},
    limiter::RequestLimiter,
    memory_budget::MemoryBudget,
    objects::Objects,
    server_fetch::ServerFetch,
    version::Version,
};
use super::receiver::SigningSecret;
use crate::api::{FeatureEnvironmentSpec, PlannedSource, SigningSecretRef};

/// Maximum size of a document in bytes (64 MiB).
pub const DOCUMENT_MAX: usize = 64 << 20;

/// Fetches documents.
pub struct Fetcher {
    options: FetcherOptions,
    objects: Objects,
    lookup: Arc<dyn Lookup>,
    clients: Clients,
    budget: MemoryBudget,
    limiter: RequestLimiter,
    read_budget: ReadBudget,
    /// Maximum silence of a stream before it counts as dead.
    idle: Duration,
}

/// Options of a [`Fetcher`], which an administrator chooses.
#[derive(Debug)]
pub struct FetcherOptions {
    /// Origins to which the fetcher connects.
    pub allowed: AllowedOrigins,
    /// Proxies through which the fetcher connects.
    pub proxies: Proxies,
    /// File with CAs that the fetcher trusts for every server, besides the public CAs.
    pub ca_file: Option<CaFile>,
    /// Maximum size of a document in bytes.
    pub limit: usize,
}

impl FetcherOptions {
    /// Returns the options of a fetcher without proxies and own CAs, for documents of up to [`DOCUMENT_MAX`] bytes.
    #[must_use]
    pub fn new(allowed: AllowedOrigins) -> Self {
        Self { allowed, proxies: Proxies::default(), ca_file: None, limit: DOCUMENT_MAX }
    }
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
    /// Creates a fetcher that reads objects with `client` and resolves the names of servers with `lookup`.
    pub fn new(client: Client, options: FetcherOptions, lookup: Arc<dyn Lookup>) -> Self {
        Self {
            objects: Objects::new(client),
            clients: Clients::new(Arc::clone(&lookup)),
            lookup,
            budget: MemoryBudget::new(options.limit),
            limiter: RequestLimiter::default(),
            read_budget: ReadBudget::default(),
            idle: IDLE,
            options,
        }
    }

    /// Returns the budget of full reads.
    pub fn read_budget(&self) -> &ReadBudget {
        &self.read_budget
    }

    /// Forgets the failures of namespaces for which `exists` returns false.
    pub fn retain(&self, exists: impl Fn(&str) -> bool) {
        self.limiter.retain(exists);
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
                let timeout = spec.refresh.timeout;
                let fetch = ServerFetch { fetcher: self, namespace, flagsmith, timeout, hints };
                return fetch.run(reservation).await;
            }
            PlannedSource::ConfigMap(reference) => self.objects.config_map_document(namespace, reference).await?,
            PlannedSource::Secret(reference) => self.objects.secret_document(namespace, reference).await?,
        };
        if let Some(CachedVersion(Version::Object { version })) = &hints.cached
            && *version == found.version
        {
            return Ok(Fetched::Unchanged { read: None });
        }
        if found.bytes.len() > self.options.limit {
            return Err(Error::BodyTooLarge {
                what: "the document",
                limit: self.options.limit,
                remedy: error::SMALLER_DOCUMENT,
            });
        }
        reservation.shrink(found.bytes.len());
        let arrival = Arrival::Object { version: found.version };
        Ok(Fetched::Document(Box::new(FetchedDocument { pages: vec![found.bytes], arrival, read: None, reservation })))
    }
}
