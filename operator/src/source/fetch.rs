//! Fetches the document of an environment. Needs the client.
//!
//! A fetch from a server sends `If-Modified-Since` where no change can hide behind it, or reads the whole document (see
//! `read_budget`). It follows pages, and bounds what it reads in bytes and time. Redirects and pages are followed within the origin only, because every request carries
//! the environment key. Addresses are checked where the connection is made: an origin that an administrator named may
//! be in a private network, Flagsmith's own service may not.

mod address;
mod body;
mod connect;
mod digest;
mod error;
mod events;
mod failure;
mod key;
mod limiter;
mod link;
mod listen;
mod memory_budget;
mod objects;
mod origin;
mod pages;
mod proxy;
mod read_budget;
mod resolve;
#[cfg(test)]
mod tests;
mod uses;
mod validator;

use std::{net::IpAddr, sync::Arc, time::Duration};

use jiff::Timestamp;
use kube::Client;
use reqwest::{Url, header};
use tokio::time::Instant;

use self::{
    address::is_allowed,
    connect::{Clients, Purpose},
    limiter::{Rejection, RequestLimiter},
    memory_budget::MemoryBudget,
    objects::Objects,
    pages::{Answer, Request},
    proxy::Tunnel,
    validator::Validator,
};
pub use self::{
    digest::ContentDigest,
    error::{Error, Fault, Retry},
    events::Change,
    key::EnvironmentKey,
    listen::Listening,
    memory_budget::Reservation,
    origin::{AllowedOrigins, InvalidOrigin, Origin, Reach},
    proxy::{InvalidProxy, Proxies, ProxyRule},
    read_budget::{BYTES_PER_MINUTE, FullRead, REST_MAX, ReadBudget, read_within},
    resolve::{Lookup, SystemLookup},
    uses::Unsent,
};
use super::receiver::SigningSecret;
use crate::api::{FeatureEnvironmentSpec, Flagsmith, Period, PlannedSource, Realtime, SigningSecretRef};

/// Maximum size of a document in bytes (64 MiB).
pub const DOCUMENT_MAX: usize = 64 << 20;

/// Path of the document, below the base URL of the API. It ends in a slash, without which Flagsmith redirects.
const DOCUMENT_PATH: [&str; 2] = ["environment-document", ""];

/// Maximum time in which a name is resolved before a connection through a proxy.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);

/// Fetches documents.
pub struct Fetcher {
    objects: Objects,
    allowed: AllowedOrigins,
    proxies: Proxies,
    lookup: Arc<dyn Lookup>,
    clients: Clients,
    limit: usize,
    budget: MemoryBudget,
    limiter: RequestLimiter,
    read_budget: ReadBudget,
    /// Maximum silence of a stream before it counts as dead.
    idle: Duration,
}

/// Version of the cached document, which makes the next fetch conditional.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedVersion(Version);

#[cfg(test)]
impl CachedVersion {
    /// Creates the version of an object with this `resourceVersion`.
    pub(crate) fn of_object(version: &str) -> Self {
        Self(Version::Object { version: version.to_owned() })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Version {
    /// A server, with the key of the request: another key belongs to another environment.
    Server { key: EnvironmentKey, validator: Option<Validator>, entity_tag: Option<String> },
    /// An object, with its `resourceVersion`.
    Object { version: String },
}

impl CachedVersion {
    /// Returns the key that the server answered, if a server has this version.
    #[must_use]
    pub fn key(&self) -> Option<&EnvironmentKey> {
        match &self.0 {
            Version::Server { key, .. } => Some(key),
            Version::Object { .. } => None,
        }
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
    pub refused: Option<EnvironmentKey>,
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
    /// A limit of concurrent fetches or of documents per namespace is reached, or the memory budget for documents is
    /// used up. No request was sent.
    Busy,
    /// The document is larger than expected, and the memory budget has no bytes left for it at the moment.
    OverBudget {
        /// Number of bytes to reserve in the next attempt.
        expected: usize,
    },
    /// A document, possibly the same as the cached one. Its content is not checked yet.
    Document(FetchedDocument),
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

/// Source of a document, and its version or time.
#[derive(Clone, Debug)]
pub enum Arrival {
    /// A server.
    Server {
        /// Key of the request.
        key: EnvironmentKey,
        /// Time at which the fetch began, by the server's clock.
        began: Timestamp,
        /// Entity tag of the document, if it has one page and the server sent one.
        entity_tag: Option<String>,
    },
    /// An object in the cluster.
    Object {
        /// `resourceVersion` of the object.
        version: String,
    },
}

impl Arrival {
    /// Returns the key of the request, if a server sent the document.
    #[must_use]
    pub fn key(&self) -> Option<&EnvironmentKey> {
        match self {
            Self::Server { key, .. } => Some(key),
            Self::Object { .. } => None,
        }
    }

    /// Returns the version for the next fetch, once the document is cached. `updated_at` is the document's own time of
    /// change.
    #[must_use]
    pub fn cached_version(self, updated_at: Option<&str>) -> CachedVersion {
        CachedVersion(match self {
            Self::Server { key, began, entity_tag } => {
                Version::Server { key, validator: Validator::new(updated_at, began), entity_tag }
            }
            Self::Object { version } => Version::Object { version },
        })
    }

    /// Returns the version for the next fetch if the content is that of the `cached` version. `None` if another key
    /// requested it: the compiled snapshot knows the key.
    #[must_use]
    pub fn confirmed_version(self, cached: &CachedVersion) -> Option<CachedVersion> {
        match (self, &cached.0) {
            (Self::Server { key, began, entity_tag }, Version::Server { key: cached, validator, .. })
                if key == *cached =>
            {
                let validator = validator.as_ref().map(|validator| validator.confirmed(began));
                Some(CachedVersion(Version::Server { key, validator, entity_tag }))
            }
            (Self::Object { version }, Version::Object { .. }) => Some(CachedVersion(Version::Object { version })),
            _ => None,
        }
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
            clients: Clients::new(Arc::clone(&lookup)),
            lookup,
            limit,
            budget: MemoryBudget::new(limit),
            limiter: RequestLimiter::default(),
            read_budget: ReadBudget::default(),
            idle: listen::IDLE,
        }
    }

    /// Sets the proxies through which the fetcher connects.
    #[must_use]
    pub fn with_proxies(self, proxies: Proxies) -> Self {
        Self { proxies, ..self }
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
        let planned = spec.source.planned().ok_or(Error::InvalidSource(
            "set exactly one of flagsmith, document.configMapKeyRef and document.secretKeyRef",
        ))?;
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
            return Err(Error::BodyTooLarge { what: "the document", limit: self.limit });
        }
        reservation.shrink(found.bytes.len());
        let arrival = Arrival::Object { version: found.version };
        Ok(Fetched::Document(FetchedDocument { pages: vec![found.bytes], arrival, read: None, reservation }))
    }

    async fn ask_server(
        &self,
        namespace: &str,
        spec: &FeatureEnvironmentSpec,
        flagsmith: &Flagsmith,
        hints: &FetchHints,
        reservation: Reservation,
    ) -> Result<Fetched, Error> {
        let (url, origin) = endpoint(&flagsmith.api_url, &DOCUMENT_PATH)?;
        let reach = self.allowed.reach(&origin).ok_or_else(|| Error::OriginNotAllowed(origin.clone()))?;
        check_literal(&url, reach)?;
        if let Some(realtime) = &flagsmith.realtime {
            // An unusable stream is an error of the fetch too, because the fetch's conditions are read more often than
            // the stream's.
            self.stream(realtime, "")?;
        }
        if let Some(rejection) = self.limiter.rejection(&origin, namespace) {
            return rejection.outcome(&origin);
        }
        let key = match &hints.key {
            Some(known) => known.clone(),
            None => self.objects.environment_key(namespace, &flagsmith.environment_key_secret_ref).await?,
        };
        let client = self.connector(Purpose::Fetch, &origin, reach, namespace, flagsmith).await?;
        if hints.refused.as_ref() == Some(&key) {
            return Ok(Fetched::StillRefused);
        }
        let condition = match &hints.cached {
            Some(CachedVersion(Version::Server { key: cached, validator, entity_tag })) if *cached == key => {
                match hints.comparison {
                    Comparison::Time => validator.as_ref().and_then(Validator::if_modified_since),
                    Comparison::Content => entity_tag.clone(),
                }
            }
            _ => None,
        };
        let header = match hints.comparison {
            Comparison::Time => header::IF_MODIFIED_SINCE,
            Comparison::Content => header::IF_NONE_MATCH,
        };
        let request = Request {
            client: &client,
            origin: &origin,
            url,
            key: &key,
            condition: condition.map(|value| (header, value)),
            limit: self.limit,
            reservation: &reservation,
        };
        let permit = match self.limiter.acquire(&origin, namespace).await {
            Ok(permit) => permit,
            Err(rejection) => return rejection.outcome(&origin),
        };
        let began = Instant::now();
        let mut answer = in_time(spec.refresh.timeout, &origin, request.send()).await;
        drop(permit);
        let read = |bytes| Some(FullRead { origin: origin.clone(), bytes, took: began.elapsed() });
        // Other fetches from this server need not repeat an attempt that just failed.
        match &mut answer {
            Err(Error::UpstreamUnavailable { problem, fault: Fault::Connection, retry_after, .. }) => {
                let pause = self.limiter.record_unreachable(&origin, problem);
                *retry_after = retry_after.or(pause);
            }
            Err(Error::UpstreamUnavailable { problem, fault: Fault::Server, retry_after, .. }) => {
                let pause = self.limiter.record_error(&origin, namespace, problem);
                *retry_after = retry_after.or(pause);
            }
            _ => self.limiter.record_answer(&origin, namespace),
        }
        let answer = answer?;
        Ok(match answer {
            Answer::NotModified => {
                Fetched::Unchanged { read: if hints.comparison == Comparison::Content { read(0) } else { None } }
            }
            Answer::OverBudget(expected) => Fetched::OverBudget { expected },
            Answer::Document { pages, began, entity_tag } => {
                let bytes = pages.iter().map(Vec::len).sum();
                reservation.shrink(bytes);
                let arrival = Arrival::Server { key, began, entity_tag };
                Fetched::Document(FetchedDocument { pages, arrival, read: read(bytes), reservation })
            }
        })
    }
}

impl Fetcher {
    /// Returns the budget of full reads.
    pub fn read_budget(&self) -> &ReadBudget {
        &self.read_budget
    }

    /// Sets the maximum silence of streams.
    #[cfg(test)]
    pub(crate) fn with_idle(self, idle: Duration) -> Self {
        Self { idle, ..self }
    }

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
        let (url, origin, reach) = self.stream(realtime, client_key)?;
        let client = self.connector(Purpose::Listen, &origin, reach, namespace, flagsmith).await?;
        Listening::open(&client, url, origin, self.idle).await
    }

    fn stream(&self, realtime: &Realtime, client_key: &str) -> Result<(Url, Origin, Reach), Error> {
        let (url, origin) = listen::endpoint(&realtime.url, client_key)?;
        let reach = self.allowed.reach(&origin).ok_or_else(|| Error::OriginNotAllowed(origin.clone()))?;
        check_literal(&url, reach)?;
        Ok((url, origin, reach))
    }

    /// Returns the proxy for this origin, with its credentials. `None` if the origin is reached directly.
    ///
    /// A proxy resolves the server's name itself, out of reach of the check of each connection. So the addresses that the
    /// name has here are checked before: one that is not allowed ends the fetch. A name that does not resolve here, as in
    /// a network without a route to the Internet, is left to the proxy.
    async fn tunnel(&self, origin: &Origin, reach: Reach) -> Result<Option<Tunnel>, Error> {
        let Some(proxy) = self.proxies.of(origin) else { return Ok(None) };
        let lookup = tokio::time::timeout(LOOKUP_TIMEOUT, self.lookup.lookup(origin.host().to_owned())).await;
        let addresses = lookup.ok().and_then(Result::ok).unwrap_or_default();
        if addresses.iter().any(|address| !is_allowed(*address, reach)) {
            return Err(Error::AddressBlocked(origin.host().to_owned()));
        }
        let tunnel = proxy.tunnel().await.map_err(|_| {
            failure::unavailable(
                origin,
                "the credentials of its proxy cannot be read: ask the administrator to check that the Secret has username and password",
            )
        })?;
        Ok(Some(tunnel))
    }

    /// Returns the HTTP client that trusts the public CAs and those of the source's bundle.
    async fn connector(
        &self,
        purpose: Purpose,
        origin: &Origin,
        reach: Reach,
        namespace: &str,
        flagsmith: &Flagsmith,
    ) -> Result<reqwest::Client, Error> {
        let bundle = match &flagsmith.ca_bundle_ref {
            Some(reference) => Some(self.objects.ca_bundle(namespace, reference).await?),
            None => None,
        };
        let invalid = |problem| {
            let reference = flagsmith.ca_bundle_ref.as_ref();
            Error::ConfigMapInvalid {
                name: reference.map(|reference| reference.config_map_name.clone()).unwrap_or_default(),
                key: reference.map(|reference| reference.key.clone()).unwrap_or_default(),
                problem,
            }
        };
        if bundle.as_ref().is_some_and(|bundle| bundle.len() > connect::BUNDLE_MAX) {
            return Err(invalid(
                "the bundle has more than 262,144 bytes; write only the CA certificates that sign the server's certificate",
            ));
        }
        let tunnel = self.tunnel(origin, reach).await?;
        self.clients
            .get(purpose, reach, bundle.as_deref(), tunnel)
            .map_err(|_| invalid("the value is not a bundle of certificates; write one or more in PEM"))
    }
}

impl Rejection {
    /// Returns the outcome of a fetch that was not admitted.
    fn outcome(self, origin: &Origin) -> Result<Fetched, Error> {
        match self {
            Self::Busy => Ok(Fetched::Busy),
            Self::CircuitOpen { problem, wait } => Err(Error::UpstreamUnavailable {
                origin: origin.clone(),
                problem,
                fault: Fault::Answer,
                retry_after: Some(wait),
            }),
        }
    }
}

/// Waits for the answer for at most this environment's timeout. Other environments may have longer ones.
async fn in_time(
    timeout: Period,
    origin: &Origin,
    answer: impl Future<Output = Result<Answer, Error>>,
) -> Result<Answer, Error> {
    tokio::time::timeout(timeout.get(), answer)
        .await
        .unwrap_or_else(|_| Err(failure::unavailable(origin, &format!("the document did not arrive within {timeout}"))))
}

/// Returns the URL of an endpoint of the API and its origin.
fn endpoint(api_url: &str, path: &[&str]) -> Result<(Url, Origin), Error> {
    let mut url = Url::parse(api_url).map_err(|_| Error::InvalidSource("apiUrl is not a URL"))?;
    let origin = Origin::of(&url).ok_or(Error::InvalidSource("apiUrl needs http:// or https:// and a host"))?;
    if !url.username().is_empty() || url.password().is_some() || url.query().is_some() || url.fragment().is_some() {
        return Err(Error::InvalidSource("apiUrl must have no user, query or fragment"));
    }
    url.path_segments_mut()
        .map_err(|()| Error::InvalidSource("apiUrl needs a path, such as in https://host/api/v1/"))?
        .pop_if_empty()
        .extend(path);
    Ok((url, origin))
}

/// Checks a URL whose host is an IP address, because no resolver sees it.
fn check_literal(url: &Url, reach: Reach) -> Result<(), Error> {
    let host = url.host_str().unwrap_or_default();
    match host.trim_matches(['[', ']']).parse::<IpAddr>() {
        Ok(address) if !is_allowed(address, reach) => Err(Error::AddressBlocked(host.to_owned())),
        _ => Ok(()),
    }
}
