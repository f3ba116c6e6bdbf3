//! HTTP proxies: which origin is reached through which proxy.
//!
//! A connection through a proxy is a tunnel (`CONNECT`) with TLS inside, so the proxy sees neither key nor document, and
//! cannot answer in the server's place. Origins without TLS are therefore never reached through a proxy.

use std::{io, path::PathBuf, str::FromStr};

use reqwest::Url;

use super::origin::Origin;

/// Maximum size of a user name or a password in bytes.
const CREDENTIAL_MAX: usize = 4096;
/// Files in the directory with a proxy's credentials.
const USERNAME: &str = "username";
const PASSWORD: &str = "password";

/// A proxy, and the directory with its credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Proxy {
    url: Url,
    credentials: Option<PathBuf>,
}

/// A proxy with its credentials as they are now.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Tunnel {
    pub(super) url: String,
    /// User name and password.
    pub(super) credentials: Option<(String, String)>,
}

/// The proxy of one origin, or of all origins that no other rule names: `[ORIGIN=]URL[,DIRECTORY]` or `ORIGIN=direct`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyRule {
    origin: Option<Origin>,
    proxy: Option<Proxy>,
}

/// Error: the text is not a rule for proxies.
#[derive(Debug, thiserror::Error)]
#[error(
    "{0:?} is not a proxy: write URL, URL,DIRECTORY, ORIGIN=URL, ORIGIN=URL,DIRECTORY or ORIGIN=direct, as in \
     https://flags.example.com=http://proxy.example.com:3128. The URL has http or https and no user, and the origin https"
)]
pub struct InvalidProxy(String);

impl FromStr for ProxyRule {
    type Err = InvalidProxy;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || InvalidProxy(text.to_owned());
        let (origin, proxy) = match text.split_once('=') {
            Some((origin, proxy)) => (Some(origin.parse::<Origin>().map_err(|_| invalid())?), proxy),
            None => (None, text),
        };
        if origin.as_ref().is_some_and(|origin| !origin.is_https()) {
            return Err(invalid());
        }
        if proxy == "direct" && origin.is_some() {
            return Ok(Self { origin, proxy: None });
        }
        let (server, directory) = match proxy.split_once(',') {
            Some((server, directory)) if !directory.is_empty() => (server, Some(PathBuf::from(directory))),
            Some(_) => return Err(invalid()),
            None => (proxy, None),
        };
        // A proxy has the form of an origin: scheme, host and port.
        server.parse::<Origin>().map_err(|_| invalid())?;
        let url = Url::parse(server).map_err(|_| invalid())?;
        Ok(Self { origin, proxy: Some(Proxy { url, credentials: directory }) })
    }
}

/// Rules for the proxies of all origins.
#[derive(Clone, Debug, Default)]
pub struct Proxies(Vec<ProxyRule>);

impl Proxies {
    /// Creates the rules. For an origin that several rules name, the first one applies.
    #[must_use]
    pub fn new(rules: &[ProxyRule]) -> Self {
        Self(rules.to_vec())
    }

    /// Returns the proxy of this origin. `None` if the operator connects to it directly.
    pub(super) fn of(&self, origin: &Origin) -> Option<&Proxy> {
        let named = self.0.iter().find(|rule| rule.origin.as_ref() == Some(origin));
        let rule = named.or_else(|| self.0.iter().find(|rule| rule.origin.is_none()))?;
        rule.proxy.as_ref().filter(|_| origin.is_https())
    }
}

impl Proxy {
    /// Reads the credentials, which may have changed since the last call.
    ///
    /// # Errors
    /// A file with the credentials cannot be read, or is not a short text.
    pub(super) async fn tunnel(&self) -> io::Result<Tunnel> {
        let credentials = match &self.credentials {
            Some(directory) => Some((read(directory.join(USERNAME)).await?, read(directory.join(PASSWORD)).await?)),
            None => None,
        };
        Ok(Tunnel { url: self.url.to_string(), credentials })
    }
}

async fn read(path: PathBuf) -> io::Result<String> {
    let text = tokio::task::spawn_blocking(move || std::fs::read_to_string(path)).await??;
    if text.len() > CREDENTIAL_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxies(rules: &[&str]) -> Proxies {
        Proxies::new(&rules.iter().map(|rule| rule.parse().unwrap()).collect::<Vec<_>>())
    }

    fn server(proxies: &Proxies, origin: &str) -> Option<String> {
        proxies.of(&origin.parse().unwrap()).map(|proxy| proxy.url.to_string())
    }

    #[test]
    fn rule_of_origin_precedes_rule_of_all() {
        let found = proxies(&[
            "http://general.test:3128",
            "https://a.test=http://special.test:8080,/etc/remora/proxy",
            "https://b.test=direct",
        ]);
        assert_eq!(server(&found, "https://other.test").as_deref(), Some("http://general.test:3128/"));
        assert_eq!(server(&found, "https://a.test").as_deref(), Some("http://special.test:8080/"));
        assert_eq!(server(&found, "https://a.test:8443").as_deref(), Some("http://general.test:3128/"));
        assert_eq!(server(&found, "https://b.test"), None);
        assert_eq!(server(&Proxies::default(), "https://a.test"), None);
    }

    #[test]
    fn origin_without_tls_is_reached_directly() {
        assert_eq!(server(&proxies(&["http://general.test:3128"]), "http://a.test"), None);
    }

    #[test]
    fn text_that_is_no_rule_is_refused() {
        for text in [
            "",
            "direct",
            "proxy.test:3128",
            "socks5://proxy.test",
            "http://user:secret@proxy.test",
            "http://proxy.test/path",
            "http://proxy.test,",
            "http://a.test=http://proxy.test",
            "https://a.test=",
            "https://a.test/api=http://proxy.test",
        ] {
            assert!(text.parse::<ProxyRule>().is_err(), "{text}");
        }
    }
}
