//! Brings the environment's document. Needs the client.
//!
//! From a server, it goes by `If-Modified-Since` where no change can hide behind it, follows pages, and bounds what it reads
//! in bytes and time. Redirects and pages are followed within the origin only, since every request carries the environment
//! key. Addresses are checked where the connection is made: an origin that an administrator named may be in a private
//! network, Flagsmith's own service may not.

mod address;
mod body;
mod connect;
mod error;
mod events;
mod failure;
mod key;
mod link;
mod listen;
mod load;
mod objects;
mod origin;
mod pages;
mod resolve;
#[cfg(test)]
mod tests;
mod turnstile;
mod validator;

use std::{net::IpAddr, sync::Arc, time::Duration};

use jiff::Timestamp;
use kube::Client;
use reqwest::Url;

use self::{
    address::is_allowed,
    connect::{Clients, Purpose},
    load::Room,
    objects::Objects,
    pages::{Answer, Request},
    turnstile::{NotNow, Turnstile},
    validator::Validator,
};
pub use self::{
    error::{Error, Fault, Retry},
    events::Change,
    key::EnvironmentKey,
    listen::Listening,
    load::Load,
    origin::{AllowedOrigins, InvalidOrigin, Origin, Reach},
    resolve::{Lookup, SystemLookup},
};
use crate::api::{FeatureEnvironmentSpec, Flagsmith, Period, PlannedSource, Realtime};

/// The bytes of a document that is read at all.
pub const DOCUMENT_MAX: usize = 64 << 20;

/// Fetches documents.
pub struct Fetcher {
    objects: Objects,
    allowed: AllowedOrigins,
    clients: Clients,
    limit: usize,
    room: Room,
    turnstile: Turnstile,
    /// How long a stream may be silent.
    idle: Duration,
}

/// What is known of the document that is held, for asking only whether there is a newer one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held(Origination);

#[cfg(test)]
impl Held {
    /// Of an object at this version.
    pub(crate) fn of_object(version: &str) -> Self {
        Self(Origination::Object { version: version.to_owned() })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Origination {
    /// From a server, with this key: another key is another environment.
    Server { key: EnvironmentKey, validator: Option<Validator> },
    /// From an object at this version.
    Object { version: String },
}

/// What earlier fetches taught.
#[derive(Clone, Debug, Default)]
pub struct Lessons {
    /// The document that is held; none to have it sent whatever it is.
    pub held: Option<Held>,
    /// The key that the server refused, for as long as it is not to be tried again.
    pub refused: Option<EnvironmentKey>,
    /// The bytes of the document, as far as that is known.
    pub expected: Option<usize>,
}

/// What a fetch brought.
#[derive(Debug)]
pub enum Fetched {
    /// The document that is held is still the one.
    Unchanged,
    /// The Secret still holds the key that was refused: the server was not asked.
    StillRefused,
    /// Too many ask the server already, or others hold too much: it was not asked.
    Busy,
    /// The document is larger than was expected, and there is no room for it at the moment.
    Crowded {
        /// The bytes to expect.
        expected: usize,
    },
    /// A document, which may be the same as the last. Nobody has looked into it.
    Document(Arrived),
}

/// A document as it came.
#[derive(Debug)]
pub struct Arrived {
    /// Its bytes, page by page.
    pub pages: Vec<Vec<u8>>,
    /// Where it came from.
    pub arrival: Arrival,
    /// What it counts for among all that is held; to be kept until it is compiled.
    pub load: Load,
}

impl Arrived {
    /// The bytes of all pages.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.pages.iter().map(Vec::len).sum()
    }
}

/// Where a document came from, and when.
#[derive(Clone, Debug)]
pub enum Arrival {
    /// A server.
    Server {
        /// The key that it was asked with.
        key: EnvironmentKey,
        /// When the fetch began, by the server's clock.
        began: Timestamp,
    },
    /// An object in the cluster.
    Object {
        /// The version of the object.
        version: String,
    },
}

impl Arrival {
    /// The key that it was fetched with.
    #[must_use]
    pub fn key(&self) -> Option<&EnvironmentKey> {
        match self {
            Self::Server { key, .. } => Some(key),
            Self::Object { .. } => None,
        }
    }

    /// For the next fetch: the document that came with this is held, and says that it was changed at `updated_at`.
    #[must_use]
    pub fn held(self, updated_at: Option<&str>) -> Held {
        Held(match self {
            Self::Server { key, began } => Origination::Server { key, validator: Validator::new(updated_at, began) },
            Self::Object { version } => Origination::Object { version },
        })
    }
}

impl Fetcher {
    /// A fetcher that talks to these origins, resolves names with `lookup`, and reads documents of up to `limit` bytes.
    pub fn new(client: Client, allowed: AllowedOrigins, lookup: Arc<dyn Lookup>, limit: usize) -> Self {
        Self {
            objects: Objects::new(client),
            allowed,
            clients: Clients::new(lookup),
            limit,
            room: Room::new(limit),
            turnstile: Turnstile::default(),
            idle: listen::IDLE,
        }
    }

    /// The document that `spec` names, unless it is the one that is held.
    pub async fn fetch(
        &self,
        namespace: &str,
        spec: &FeatureEnvironmentSpec,
        lessons: &Lessons,
    ) -> Result<Fetched, Error> {
        let planned = spec.source.planned().ok_or(Error::InvalidSource(
            "set exactly one of flagsmith, document.configMapKeyRef and document.secretKeyRef",
        ))?;
        // Before anything else that others may want, so that nobody waits for it with that in hand.
        let wanted = match planned {
            PlannedSource::Flagsmith(_) => lessons.expected,
            // Its size is known when it was read, and it was held by then.
            PlannedSource::ConfigMap(_) | PlannedSource::Secret(_) => Some(objects::DATA_MAX),
        };
        let Some(load) = self.room.take(namespace, wanted).await else { return Ok(Fetched::Busy) };
        let found = match planned {
            PlannedSource::Flagsmith(flagsmith) => {
                return self.ask_server(namespace, spec, flagsmith, lessons, load).await;
            }
            PlannedSource::ConfigMap(reference) => self.objects.config_map_document(namespace, reference).await?,
            PlannedSource::Secret(reference) => self.objects.secret_document(namespace, reference).await?,
        };
        if let Some(Held(Origination::Object { version })) = &lessons.held
            && *version == found.version
        {
            return Ok(Fetched::Unchanged);
        }
        if found.bytes.len() > self.limit {
            return Err(Error::BodyTooLarge { what: "the document", limit: self.limit });
        }
        load.shrink(found.bytes.len());
        let arrival = Arrival::Object { version: found.version };
        Ok(Fetched::Document(Arrived { pages: vec![found.bytes], arrival, load }))
    }

    async fn ask_server(
        &self,
        namespace: &str,
        spec: &FeatureEnvironmentSpec,
        flagsmith: &Flagsmith,
        lessons: &Lessons,
        load: Load,
    ) -> Result<Fetched, Error> {
        let (url, origin) = endpoint(&flagsmith.api_url)?;
        let reach = self.allowed.reach(&origin).ok_or_else(|| Error::OriginNotAllowed(origin.clone()))?;
        check_literal(&url, reach)?;
        if let Some(realtime) = &flagsmith.realtime {
            // A stream that can never be followed is said where everybody looks, not where streams are.
            self.stream(realtime, "")?;
        }
        if let Some(not_now) = self.turnstile.is_open(&origin, namespace) {
            return not_now.outcome(&origin);
        }
        let key = self.objects.environment_key(namespace, &flagsmith.environment_key_secret_ref).await?;
        let client = self.connector(Purpose::Fetch, reach, namespace, flagsmith).await?;
        if lessons.refused.as_ref() == Some(&key) {
            return Ok(Fetched::StillRefused);
        }
        let if_modified_since = match &lessons.held {
            Some(Held(Origination::Server { key: held, validator })) if *held == key => {
                validator.as_ref().and_then(Validator::if_modified_since)
            }
            _ => None,
        };
        let request = Request {
            client: &client,
            origin: &origin,
            url,
            key: &key,
            if_modified_since,
            limit: self.limit,
            load: &load,
        };
        let turn = match self.turnstile.enter(&origin, namespace).await {
            Ok(turn) => turn,
            Err(not_now) => return not_now.outcome(&origin),
        };
        let mut answer = in_time(spec.refresh.timeout, &origin, request.send()).await;
        drop(turn);
        // Others who ask the same server need not try what just failed.
        match &mut answer {
            Err(Error::UpstreamUnavailable { problem, fault: Fault::Connection, retry_after, .. }) => {
                let pause = self.turnstile.missed(&origin, problem);
                *retry_after = retry_after.or(pause);
            }
            Err(Error::UpstreamUnavailable { problem, fault: Fault::Server, retry_after, .. }) => {
                let pause = self.turnstile.erred(&origin, namespace, problem);
                *retry_after = retry_after.or(pause);
            }
            _ => self.turnstile.answered(&origin, namespace),
        }
        let answer = answer?;
        Ok(match answer {
            Answer::NotModified => Fetched::Unchanged,
            Answer::Crowded(expected) => Fetched::Crowded { expected },
            Answer::Document { pages, began } => {
                load.shrink(pages.iter().map(Vec::len).sum());
                Fetched::Document(Arrived { pages, arrival: Arrival::Server { key, began }, load })
            }
        })
    }
}

impl Fetcher {
    /// The same, with streams that may be silent for this long.
    #[cfg(test)]
    pub(crate) fn with_idle(self, idle: Duration) -> Self {
        Self { idle, ..self }
    }

    /// Opens the stream of changes of the environment with this client-side key.
    ///
    /// It is subject to everything that a fetch is: origins, addresses, certificates.
    pub async fn listen(
        &self,
        namespace: &str,
        flagsmith: &Flagsmith,
        realtime: &Realtime,
        client_key: &str,
    ) -> Result<Listening, Error> {
        let (url, origin, reach) = self.stream(realtime, client_key)?;
        let client = self.connector(Purpose::Listen, reach, namespace, flagsmith).await?;
        Listening::open(&client, url, origin, self.idle).await
    }

    fn stream(&self, realtime: &Realtime, client_key: &str) -> Result<(Url, Origin, Reach), Error> {
        let (url, origin) = listen::endpoint(&realtime.url, client_key)?;
        let reach = self.allowed.reach(&origin).ok_or_else(|| Error::OriginNotAllowed(origin.clone()))?;
        check_literal(&url, reach)?;
        Ok((url, origin, reach))
    }

    /// The HTTP client that trusts whom this source trusts.
    async fn connector(
        &self,
        purpose: Purpose,
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
                "this bundle has more than 262,144 bytes; write only the authorities that sign the server's certificate",
            ));
        }
        self.clients
            .get(purpose, reach, bundle.as_deref())
            .map_err(|_| invalid("this is no bundle of certificates; write one or more in PEM"))
    }
}

impl NotNow {
    /// What comes of a fetch whose turn it is not.
    fn outcome(self, origin: &Origin) -> Result<Fetched, Error> {
        match self {
            Self::Busy => Ok(Fetched::Busy),
            Self::Closed { problem, wait } => Err(Error::UpstreamUnavailable {
                origin: origin.clone(),
                problem,
                fault: Fault::Answer,
                retry_after: Some(wait),
            }),
        }
    }
}

/// The answer, if it comes in the time that this environment gives it; others may give it more.
async fn in_time(
    timeout: Period,
    origin: &Origin,
    answer: impl Future<Output = Result<Answer, Error>>,
) -> Result<Answer, Error> {
    tokio::time::timeout(timeout.get(), answer)
        .await
        .unwrap_or_else(|_| Err(failure::unavailable(origin, &format!("the document did not arrive within {timeout}"))))
}

/// Where the document is. Without the slash at its end, Flagsmith redirects.
fn endpoint(api_url: &str) -> Result<(Url, Origin), Error> {
    let mut url = Url::parse(api_url).map_err(|_| Error::InvalidSource("apiUrl is no URL"))?;
    let origin = Origin::of(&url).ok_or(Error::InvalidSource("apiUrl needs http:// or https:// and a host"))?;
    if !url.username().is_empty() || url.password().is_some() || url.query().is_some() || url.fragment().is_some() {
        return Err(Error::InvalidSource("apiUrl must have no user, query or fragment"));
    }
    url.path_segments_mut()
        .map_err(|()| Error::InvalidSource("apiUrl needs a path, as in https://host/api/v1/"))?
        .pop_if_empty()
        .extend(["environment-document", ""]);
    Ok((url, origin))
}

/// A URL with an address in it asks no resolver, so the check is here.
fn check_literal(url: &Url, reach: Reach) -> Result<(), Error> {
    let host = url.host_str().unwrap_or_default();
    match host.trim_matches(['[', ']']).parse::<IpAddr>() {
        Ok(address) if !is_allowed(address, reach) => Err(Error::AddressBlocked(host.to_owned())),
        _ => Ok(()),
    }
}
