//! Allowlist of server origins. Pure.

use std::{fmt, str::FromStr};

use reqwest::Url;

/// Origins of Flagsmith's own service, allowed by default: the API and the streams of change events.
const PUBLIC: [&str; 2] = ["https://edge.api.flagsmith.com", "https://realtime.flagsmith.com"];

/// Scheme, host and port of a URL.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    scheme: String,
    host: String,
    port: u16,
}

/// Error: the string is not an origin.
#[derive(Debug, thiserror::Error)]
#[error(
    "{0:?} is not an origin: write scheme, host and, where it is not the usual one, port, as in https://flags.example.com:8443"
)]
pub struct InvalidOrigin(String);

impl Origin {
    /// Returns the origin of `url`. `None` if the URL has no host or its scheme is not HTTP or HTTPS.
    pub fn of(url: &Url) -> Option<Self> {
        let scheme = matches!(url.scheme(), "http" | "https").then(|| url.scheme().to_owned())?;
        Some(Self { scheme, host: url.host_str()?.to_owned(), port: url.port_or_known_default()? })
    }

    /// Returns true if connections to the origin use TLS.
    pub(super) fn is_https(&self) -> bool {
        self.scheme == "https"
    }

    /// Returns the host: a name or an address.
    pub(super) fn host(&self) -> &str {
        &self.host
    }
}

impl FromStr for Origin {
    type Err = InvalidOrigin;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || InvalidOrigin(text.to_owned());
        let url = Url::parse(text).map_err(|_| invalid())?;
        let bare = url.path() == "/"
            && url.query().is_none()
            && url.fragment().is_none()
            && url.username().is_empty()
            && url.password().is_none();
        Self::of(&url).filter(|_| bare).ok_or_else(invalid)
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme, self.host)?;
        let usual = if self.scheme == "https" { 443 } else { 80 };
        if self.port == usual { Ok(()) } else { write!(f, ":{}", self.port) }
    }
}

/// Range of addresses that a connection may go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reach {
    /// Public addresses only.
    Public,
    /// Public, loopback and private addresses: an administrator named the origin.
    Private,
}

/// Origins that the operator may connect to, with their reach.
#[derive(Clone, Debug)]
pub struct AllowedOrigins(Vec<(Origin, Reach)>);

impl AllowedOrigins {
    /// Creates an allowlist of the `named` origins. If none is named, it holds those of Flagsmith's own service.
    ///
    /// A named origin may be in a private network, as servers in the cluster are. Flagsmith's own origins may not,
    /// named or not: only an attack can make them resolve to a private address.
    ///
    /// # Errors
    /// A built-in origin is invalid.
    pub fn new(named: &[Origin]) -> Result<Self, InvalidOrigin> {
        let public: Vec<Origin> = PUBLIC.iter().map(|origin| origin.parse()).collect::<Result<_, _>>()?;
        let reach = |origin: &Origin| {
            if public.contains(origin) { Reach::Public } else { Reach::Private }
        };
        let origins = if named.is_empty() { &public } else { named };
        Ok(Self(origins.iter().map(|origin| (origin.clone(), reach(origin))).collect()))
    }

    /// Returns the reach of a connection to `origin`. `None` if the origin is not allowed.
    pub fn reach(&self, origin: &Origin) -> Option<Reach> {
        self.0.iter().find(|(allowed, _)| allowed == origin).map(|(_, reach)| *reach)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(text: &str) -> Origin {
        text.parse().unwrap()
    }

    #[test]
    fn origin_is_parsed_to_scheme_host_and_port() {
        assert_eq!(origin("https://a.example"), origin("https://a.example:443/"));
        assert_eq!(origin("https://A.example").to_string(), "https://a.example");
        assert_ne!(origin("https://a.example"), origin("http://a.example"));
        assert_ne!(origin("https://a.example"), origin("https://a.example:444"));
        assert_ne!(origin("https://a.example"), origin("https://b.a.example"));
        for bad in
            ["a.example", "ftp://a.example", "https://a.example/api", "https://u@a.example", "https://a.example?q", ""]
        {
            assert!(bad.parse::<Origin>().is_err(), "{bad}");
        }
    }

    #[test]
    fn public_service_is_allowed_by_default_only() {
        let open = AllowedOrigins::new(&[]).unwrap();
        assert_eq!(open.reach(&origin(PUBLIC[0])), Some(Reach::Public));
        assert_eq!(open.reach(&origin("http://edge.api.flagsmith.com")), None);
        let named = AllowedOrigins::new(&[origin("http://flags.svc:8000")]).unwrap();
        assert_eq!(named.reach(&origin("http://flags.svc:8000")), Some(Reach::Private));
        assert_eq!(named.reach(&origin(PUBLIC[0])), None);
    }
}
