//! HTTP clients, one for each purpose, reach and CA bundle.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use remora_compile::digest::Digest;
use reqwest::{Certificate, Client, Proxy, redirect};
use tokio::time::Instant;

use super::{
    minimum_rate::SILENCE_MAX,
    origin::{Origin, Reach},
    proxy::Tunnel,
    resolve::{CheckedResolver, Lookup},
};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum silence of a stream.
pub(super) const IDLE: Duration = Duration::from_secs(60);
const REDIRECTS: usize = 3;
/// Maximum size of a CA bundle in bytes. That is more than a hundred CAs.
pub(super) const BUNDLE_MAX: usize = 256 << 10;
/// Maximum number of cached clients. Beyond it, the least recently used client is dropped.
const CLIENTS: usize = 32;
/// Time without use after which a cached client is dropped.
const UNUSED: Duration = Duration::from_secs(600);

/// Purpose of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Purpose {
    /// Documents: the answer arrives without long pauses.
    Fetch,
    /// Streams, which are silent for long. Redirects are refused, because the URL contains a key.
    Listen,
    /// Requests with a body, once a minute at most. Redirects are refused, because they would lose the body. No connection
    /// is kept: a request on one that the server closes meanwhile may or may not arrive.
    Send,
}

/// CAs in PEM that a client trusts besides the public CAs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Trusted<'a> {
    /// Bundle of the whole installation, which is known to be valid.
    pub(super) of_installation: Option<&'a [u8]>,
    /// Bundle that the source names.
    pub(super) of_source: Option<&'a [u8]>,
}

impl<'a> Trusted<'a> {
    fn bundles(self) -> [Option<&'a [u8]>; 2] {
        [self.of_installation, self.of_source]
    }
}

/// Purpose and reach of a client, digests of the CA bundles that it trusts besides the public CAs, and its proxy.
type Kind = (Purpose, Reach, [Option<Digest>; 2], Option<Tunnel>);

/// Cache of clients, each with its own connection pool.
pub(super) struct Clients {
    lookup: Arc<dyn Lookup>,
    made: Mutex<HashMap<Kind, (Client, Instant)>>,
}

/// Error: the CA bundle is unusable.
#[derive(Debug)]
pub(super) struct BadBundle;

impl Clients {
    pub(super) fn new(lookup: Arc<dyn Lookup>) -> Self {
        Self { lookup, made: Mutex::default() }
    }

    /// Returns the client for this purpose and reach that trusts the public CAs and the `trusted` ones, and connects
    /// through `tunnel`, if there is one.
    ///
    /// # Errors
    /// The source's bundle holds no valid certificates in PEM.
    pub(super) fn get(
        &self,
        purpose: Purpose,
        reach: Reach,
        trusted: Trusted<'_>,
        tunnel: Option<Tunnel>,
    ) -> Result<Client, BadBundle> {
        let key = (purpose, reach, trusted.bundles().map(|bundle| bundle.map(Digest::of)), tunnel);
        let now = Instant::now();
        {
            let mut made = self.made.lock();
            made.retain(|_, (_, used)| now.saturating_duration_since(*used) < UNUSED);
            if let Some((client, used)) = made.get_mut(&key) {
                *used = now;
                return Ok(client.clone());
            }
        }
        // Without the lock, because this parses all certificates. Of two clients that are built at the same time, one stays.
        let client = self.build(purpose, reach, trusted, key.3.as_ref()).ok_or(BadBundle)?;
        let mut made = self.made.lock();
        if made.len() >= CLIENTS
            && !made.contains_key(&key)
            && let Some(oldest) = made.iter().min_by_key(|(_, (_, used))| *used).map(|(key, _)| key.clone())
        {
            made.remove(&oldest);
        }
        made.insert(key, (client.clone(), now));
        Ok(client)
    }

    fn build(&self, purpose: Purpose, reach: Reach, trusted: Trusted<'_>, tunnel: Option<&Tunnel>) -> Option<Client> {
        let public = webpki_root_certs::TLS_SERVER_ROOT_CERTS;
        let mut roots: Vec<Certificate> =
            public.iter().map(|der| Certificate::from_der(der)).collect::<Result<_, _>>().ok()?;
        for pem in trusted.bundles().into_iter().flatten() {
            let own = Certificate::from_pem_bundle(pem).ok().filter(|own| !own.is_empty())?;
            roots.extend(own);
        }
        let (redirects, silence) = match purpose {
            Purpose::Fetch => (redirect::Policy::custom(within_origin), SILENCE_MAX),
            Purpose::Listen => (redirect::Policy::none(), IDLE),
            Purpose::Send => (redirect::Policy::none(), SILENCE_MAX),
        };
        // A client with a proxy resolves the proxy's name only, which an administrator named.
        let reach = if tunnel.is_some() { Reach::Private } else { reach };
        let mut builder = Client::builder()
            .tls_backend_rustls()
            .tls_certs_only(roots)
            .dns_resolver(Arc::new(CheckedResolver { lookup: Arc::clone(&self.lookup), reach }))
            .redirect(redirects)
            .referer(false)
            // The environment's proxies would connect to addresses that no check has seen.
            .no_proxy()
            .gzip(false)
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(silence)
            .user_agent(concat!("remora-operator/", env!("CARGO_PKG_VERSION")));
        if purpose == Purpose::Send {
            builder = builder.pool_max_idle_per_host(0);
        }
        if let Some(tunnel) = tunnel {
            let mut proxy = Proxy::https(&tunnel.url).ok()?;
            if let Some((username, password)) = &tunnel.credentials {
                proxy = proxy.basic_auth(username, password);
            }
            builder = builder.proxy(proxy);
        }
        builder.build().ok()
    }
}

/// Follows a redirect only within the origin of the first request, because the request carries the environment key.
fn within_origin(attempt: redirect::Attempt<'_>) -> redirect::Action {
    let target = Origin::of(attempt.url());
    let started = attempt.previous().first().and_then(Origin::of);
    if target.is_some() && target == started && attempt.previous().len() <= REDIRECTS {
        attempt.follow()
    } else {
        attempt.stop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::fetch::SystemLookup;

    fn authority() -> Vec<u8> {
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = rcgen::KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().pem().into_bytes()
    }

    fn naming(bundle: &[u8]) -> Trusted<'_> {
        Trusted { of_source: Some(bundle), ..Trusted::default() }
    }

    fn kept(clients: &Clients) -> usize {
        clients.made.lock().len()
    }

    #[tokio::test(start_paused = true)]
    async fn client_of_new_bundle_replaces_least_recently_used() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let clients = Clients::new(Arc::new(SystemLookup));
        let used = |bundle: &[u8]| clients.get(Purpose::Fetch, Reach::Public, naming(bundle), None).map(drop).unwrap();
        let is_kept = |bundle: &[u8]| {
            clients.made.lock().contains_key(&(Purpose::Fetch, Reach::Public, [None, Some(Digest::of(bundle))], None))
        };
        let bundles: Vec<Vec<u8>> = (0..CLIENTS + 5).map(|_| authority()).collect();
        for bundle in &bundles {
            used(bundle);
            tokio::time::advance(Duration::from_millis(1)).await;
            used(&bundles[0]);
        }
        assert_eq!(kept(&clients), CLIENTS);
        assert!(is_kept(&bundles[0]) && !is_kept(&bundles[1]) && is_kept(&bundles[CLIENTS + 4]));
        let size: usize = clients
            .made
            .lock()
            .keys()
            .flat_map(|kind| kind.2.iter().flatten())
            .map(|digest| digest.as_str().len())
            .sum();
        assert!(size <= CLIENTS * 64, "a bundle is kept whole: {size} bytes of keys");
    }

    #[tokio::test(start_paused = true)]
    async fn unused_client_is_dropped() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let clients = Clients::new(Arc::new(SystemLookup));
        clients.get(Purpose::Fetch, Reach::Public, naming(&authority()), None).map(drop).unwrap();
        tokio::time::advance(UNUSED).await;
        clients.get(Purpose::Fetch, Reach::Public, Trusted::default(), None).map(drop).unwrap();
        assert_eq!(kept(&clients), 1);
    }
}
