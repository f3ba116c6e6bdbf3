//! HTTP clients, one for each reach and set of authorities.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use reqwest::{Certificate, Client, redirect};

use super::{
    origin::{Origin, Reach},
    resolve::{Guard, Lookup},
};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// To the first byte, and between any two.
const READ_TIMEOUT: Duration = Duration::from_secs(15);
const REDIRECTS: usize = 3;
/// Each bundle that was ever used has a client; beyond this many, all are made anew.
const CLIENTS: usize = 256;

/// How far a client goes, and the authorities that it trusts besides the public ones.
type Kind = (Reach, Option<Vec<u8>>);

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

    /// The client for this reach that trusts the public authorities and those of `bundle`.
    pub(super) fn get(&self, reach: Reach, bundle: Option<&[u8]>) -> Result<Client, BadBundle> {
        let key = (reach, bundle.map(<[u8]>::to_vec));
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = made.get(&key) {
            return Ok(client.clone());
        }
        let client = self.build(reach, bundle).ok_or(BadBundle)?;
        if made.len() >= CLIENTS {
            made.clear();
        }
        made.insert(key, client.clone());
        Ok(client)
    }

    fn build(&self, reach: Reach, bundle: Option<&[u8]>) -> Option<Client> {
        let public = webpki_root_certs::TLS_SERVER_ROOT_CERTS;
        let mut roots: Vec<Certificate> =
            public.iter().map(|der| Certificate::from_der(der)).collect::<Result<_, _>>().ok()?;
        if let Some(pem) = bundle {
            let own = Certificate::from_pem_bundle(pem).ok().filter(|own| !own.is_empty())?;
            roots.extend(own);
        }
        Client::builder()
            .tls_backend_rustls()
            .tls_certs_only(roots)
            .dns_resolver(Arc::new(Guard { lookup: Arc::clone(&self.lookup), reach }))
            .redirect(redirect::Policy::custom(within_origin))
            .referer(false)
            // A proxy would connect to addresses that nobody checked.
            .no_proxy()
            .gzip(false)
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(READ_TIMEOUT)
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
