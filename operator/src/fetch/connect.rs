//! HTTP clients, one for each reach and set of authorities.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use reqwest::{Certificate, Client, redirect};

use super::{
    listen::IDLE,
    origin::{Origin, Reach},
    resolve::{Guard, Lookup},
};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// To the first byte, and between any two.
const READ_TIMEOUT: Duration = Duration::from_secs(15);
const REDIRECTS: usize = 3;
/// Each bundle that was ever used has a client; beyond this many, all are made anew.
const CLIENTS: usize = 256;

/// What a client is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Purpose {
    /// Documents, which come at once or not at all.
    Fetch,
    /// Streams, which are silent for long. Their URL has a key in it and is followed nowhere.
    Listen,
}

/// What a client is for, how far it goes, and the authorities that it trusts besides the public ones.
type Kind = (Purpose, Reach, Option<Vec<u8>>);

/// The clients that were made so far, each with its pool of connections.
pub(super) struct Clients {
    lookup: Arc<dyn Lookup>,
    made: Mutex<HashMap<Kind, Client>>,
}

/// A bundle of certificates that cannot be used.
#[derive(Debug)]
pub(super) struct BadBundle;

impl Clients {
    pub(super) fn new(lookup: Arc<dyn Lookup>) -> Self {
        Self { lookup, made: Mutex::default() }
    }

    /// The client for this purpose and reach that trusts the public authorities and those of `bundle`.
    pub(super) fn get(&self, purpose: Purpose, reach: Reach, bundle: Option<&[u8]>) -> Result<Client, BadBundle> {
        let key = (purpose, reach, bundle.map(<[u8]>::to_vec));
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = made.get(&key) {
            return Ok(client.clone());
        }
        let client = self.build(purpose, reach, bundle).ok_or(BadBundle)?;
        if made.len() >= CLIENTS {
            made.clear();
        }
        made.insert(key, client.clone());
        Ok(client)
    }

    fn build(&self, purpose: Purpose, reach: Reach, bundle: Option<&[u8]>) -> Option<Client> {
        let public = webpki_root_certs::TLS_SERVER_ROOT_CERTS;
        let mut roots: Vec<Certificate> =
            public.iter().map(|der| Certificate::from_der(der)).collect::<Result<_, _>>().ok()?;
        if let Some(pem) = bundle {
            let own = Certificate::from_pem_bundle(pem).ok().filter(|own| !own.is_empty())?;
            roots.extend(own);
        }
        let (redirects, silence) = match purpose {
            Purpose::Fetch => (redirect::Policy::custom(within_origin), READ_TIMEOUT),
            Purpose::Listen => (redirect::Policy::none(), IDLE),
        };
        Client::builder()
            .tls_backend_rustls()
            .tls_certs_only(roots)
            .dns_resolver(Arc::new(Guard { lookup: Arc::clone(&self.lookup), reach }))
            .redirect(redirects)
            .referer(false)
            // A proxy would connect to addresses that nobody checked.
            .no_proxy()
            .gzip(false)
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(silence)
            .user_agent(concat!("remora-operator/", env!("CARGO_PKG_VERSION")))
            .build()
            .ok()
    }
}

/// Follows a redirect only where the request was going anyway: it carries the environment key.
fn within_origin(attempt: redirect::Attempt<'_>) -> redirect::Action {
    let target = Origin::of(attempt.url());
    let started = attempt.previous().first().and_then(Origin::of);
    if target.is_some() && target == started && attempt.previous().len() <= REDIRECTS {
        attempt.follow()
    } else {
        attempt.stop()
    }
}
