//! Decides whether and how a server is reached: origins, addresses, proxy, certificates, circuits and the key.

use std::{net::IpAddr, time::Duration};

use reqwest::{Client, Url};

use super::{
    Fetcher,
    address::is_allowed,
    connect::{BUNDLE_MAX, Purpose, Trusted},
    error::Error,
    failure::unavailable,
    interrupted::Interrupted,
    key::EnvironmentKey,
    origin::{Origin, Reach},
    proxy::Tunnel,
};
use crate::api::Flagsmith;

/// Maximum time in which a name is resolved before a connection through a proxy.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);

/// An endpoint of a server that may be reached.
pub(super) struct Server {
    pub(super) url: Url,
    pub(super) origin: Origin,
    pub(super) reach: Reach,
}

impl Fetcher {
    /// Returns the endpoint of the API at `path`.
    ///
    /// # Errors
    /// The URL cannot be used, or its origin or address is not allowed.
    pub(super) fn server(&self, api_url: &str, path: &[&str]) -> Result<Server, Error> {
        let (url, origin) = endpoint("apiUrl", api_url, path)?;
        self.reach(url, origin)
    }

    /// Checks that the origin of a URL is allowed, and its address if its host is one.
    ///
    /// # Errors
    /// The origin or the address is not allowed.
    pub(super) fn reach(&self, url: Url, origin: Origin) -> Result<Server, Error> {
        let reach = self.options.allowed.reach(&origin).ok_or_else(|| Error::OriginNotAllowed(origin.clone()))?;
        check_literal(&url, reach)?;
        Ok(Server { url, origin, reach })
    }

    /// Returns the key and the client for requests to a server whose circuit is closed. Without a `known` key, it is read
    /// from its Secret.
    ///
    /// # Errors
    /// The circuit is open, or the Secret, the CA bundle or the proxy cannot be used.
    pub(super) async fn admit(
        &self,
        purpose: Purpose,
        server: &Server,
        namespace: &str,
        flagsmith: &Flagsmith,
        known: Option<&EnvironmentKey>,
    ) -> Result<(EnvironmentKey, Client), Interrupted> {
        if let Some(rejection) = self.limiter.rejection(&server.origin, namespace) {
            return Err(rejection.into());
        }
        let key = match known {
            Some(known) => known.clone(),
            None => self.objects.environment_key(namespace, &flagsmith.environment_key_secret_ref).await?,
        };
        let client = self.connector(purpose, server, namespace, flagsmith).await?;
        Ok((key, client))
    }

    /// Returns the proxy for this origin, with its credentials. `None` if the origin is reached directly.
    ///
    /// A proxy resolves the server's name itself, out of reach of the check of each connection. So the addresses that the
    /// name has here are checked before: one that is not allowed ends the fetch. A name that does not resolve here, as in
    /// a network without a route to the Internet, is left to the proxy.
    async fn tunnel(&self, origin: &Origin, reach: Reach) -> Result<Option<Tunnel>, Error> {
        let Some(proxy) = self.options.proxies.of(origin) else { return Ok(None) };
        let lookup = tokio::time::timeout(LOOKUP_TIMEOUT, self.lookup.lookup(origin.host().to_owned())).await;
        let addresses = lookup.ok().and_then(Result::ok).unwrap_or_default();
        if addresses.iter().any(|address| !is_allowed(*address, reach)) {
            return Err(Error::AddressBlocked(origin.host().to_owned()));
        }
        let tunnel = proxy.tunnel().await.map_err(|_| {
            unavailable(
                origin,
                "the credentials of its proxy cannot be read: ask the administrator to check that the Secret has username and password",
            )
        })?;
        Ok(Some(tunnel))
    }

    /// Returns the HTTP client that trusts the public CAs, those of the installation's file, and those of the source's
    /// bundle.
    pub(super) async fn connector(
        &self,
        purpose: Purpose,
        server: &Server,
        namespace: &str,
        flagsmith: &Flagsmith,
    ) -> Result<Client, Error> {
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
        if bundle.as_ref().is_some_and(|bundle| bundle.len() > BUNDLE_MAX) {
            return Err(invalid(
                "the bundle has more than 262,144 bytes; write only the CA certificates that sign the server's certificate",
            ));
        }
        let tunnel = self.tunnel(&server.origin, server.reach).await?;
        let of_installation = match &self.options.ca_file {
            Some(file) => Some(file.certificates().await),
            None => None,
        };
        let trusted = Trusted { of_installation: of_installation.as_deref(), of_source: bundle.as_deref() };
        self.clients
            .get(purpose, server.reach, trusted, tunnel)
            .map_err(|_| invalid("the value is not a bundle of certificates; write one or more in PEM"))
    }
}

/// Returns the URL of an endpoint below `base`, and its origin. `field` is the field of the spec with this URL.
pub(super) fn endpoint(field: &'static str, base: &str, path: &[&str]) -> Result<(Url, Origin), Error> {
    let invalid = |problem: &str| Error::InvalidSource(format!("{field} {problem}"));
    let mut url = Url::parse(base).map_err(|_| invalid("is not a URL"))?;
    let origin = Origin::of(&url).ok_or_else(|| invalid("needs http:// or https:// and a host"))?;
    if !url.username().is_empty() || url.password().is_some() || url.query().is_some() || url.fragment().is_some() {
        return Err(invalid("must have no user, query or fragment"));
    }
    url.path_segments_mut()
        .map_err(|()| invalid("needs a path, such as in https://host/api/v1/"))?
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
