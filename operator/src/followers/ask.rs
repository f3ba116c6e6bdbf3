//! Asking one sidecar which revision it serves.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use reqwest::{Certificate, Client, redirect};
use tokio::sync::Semaphore;

/// Sidecars that are asked at one time, for all environments together.
const AT_ONCE: usize = 64;
/// A sidecar answers within a millisecond; a pod that is cut off does not answer at all.
const TIMEOUT: Duration = Duration::from_secs(2);
/// A line for each environment of a pod.
const ANSWER_MAX: usize = 16 << 10;

/// Asks sidecars.
#[derive(Clone, Debug)]
pub struct Asker {
    client: Client,
    places: Arc<Semaphore>,
}

/// No client can be made.
#[derive(Debug, thiserror::Error)]
#[error("no HTTP client for asking sidecars: {0}")]
pub struct Unusable(#[from] reqwest::Error);

/// What a pod says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// It serves this revision of the environment; none when it has none yet.
    Serves(Option<String>),
    /// Nothing, or nothing that a sidecar says.
    Silent,
}

impl Asker {
    /// One for all environments.
    ///
    /// # Errors
    /// If there is no client to be had.
    pub fn new() -> Result<Self, Unusable> {
        // Pods are asked where they are, in plain text, and for nothing that is a secret.
        let client = Client::builder()
            .tls_backend_rustls()
            .tls_certs_only(Vec::<Certificate>::new())
            .redirect(redirect::Policy::none())
            .no_proxy()
            .timeout(TIMEOUT)
            .pool_max_idle_per_host(0)
            .build()?;
        Ok(Self { client, places: Arc::new(Semaphore::new(AT_ONCE)) })
    }

    /// What the sidecar with this admin port serves of the environment.
    pub(super) async fn ask(&self, address: SocketAddr, environment: &str) -> Reply {
        let Ok(_place) = self.places.acquire().await else { return Reply::Silent };
        match self.text(address).await {
            Some(text) => Reply::Serves(revision(&text, environment).map(str::to_owned)),
            None => Reply::Silent,
        }
    }

    async fn text(&self, address: SocketAddr) -> Option<String> {
        let mut response = self.client.get(format!("http://{address}/revisions")).send().await.ok()?;
        if response.status() != reqwest::StatusCode::OK {
            return None;
        }
        let mut text = Vec::new();
        while let Some(chunk) = response.chunk().await.ok()? {
            if text.len() + chunk.len() > ANSWER_MAX {
                return None;
            }
            text.extend_from_slice(&chunk);
        }
        String::from_utf8(text).ok()
    }
}

/// The revision in the line of this environment.
fn revision<'a>(text: &'a str, environment: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.rsplit_once(' ').filter(|(name, _)| *name == environment).map(|(_, is)| is))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_a_line_for_each_environment() {
        let text = "shop 00aa\nstorefront 00bb\n";
        assert_eq!(revision(text, "storefront"), Some("00bb"));
        assert_eq!(revision(text, "front"), None);
        assert_eq!(revision("", "shop"), None);
    }
}
