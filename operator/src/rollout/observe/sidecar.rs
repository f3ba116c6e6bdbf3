//! Asks one sidecar which revision it serves.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use reqwest::{Certificate, Client, redirect};
use tokio::sync::Semaphore;

/// Number of sidecars that are asked at a time, over all environments.
const CONCURRENT_REQUESTS: usize = 64;
/// Time for one answer. A sidecar answers within a millisecond; a pod that is cut off does not answer at all.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Largest answer in bytes. It has a line for each environment of the pod.
const ANSWER_BYTES_MAX: usize = 16 << 10;

/// HTTP client for the admin port of sidecars. Clones share its limits.
#[derive(Clone, Debug)]
pub struct SidecarClient {
    client: Client,
    permits: Arc<Semaphore>,
}

/// Error: the HTTP client cannot be created.
#[derive(Debug, thiserror::Error)]
#[error("cannot create the HTTP client for sidecars: {0}")]
pub struct Error(#[from] reqwest::Error);

/// Answer of a sidecar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// The sidecar serves this revision of the environment, or none yet.
    Serves(Option<String>),
    /// The sidecar did not answer, or not as a sidecar does.
    Silent,
}

impl SidecarClient {
    /// Creates the client that all environments share.
    ///
    /// # Errors
    /// The HTTP client cannot be created.
    pub fn new() -> Result<Self, Error> {
        // Plain HTTP to the address of the pod: neither the question nor the answer is a secret.
        let client = Client::builder()
            .tls_backend_rustls()
            .tls_certs_only(Vec::<Certificate>::new())
            .redirect(redirect::Policy::none())
            .no_proxy()
            .timeout(TIMEOUT)
            .pool_max_idle_per_host(0)
            .build()?;
        Ok(Self { client, permits: Arc::new(Semaphore::new(CONCURRENT_REQUESTS)) })
    }

    /// Asks the sidecar with this admin port which revision of the environment it serves.
    pub(super) async fn ask(&self, address: SocketAddr, environment: &str) -> Reply {
        let Ok(_permit) = self.permits.acquire().await else { return Reply::Silent };
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
            if text.len() + chunk.len() > ANSWER_BYTES_MAX {
                return None;
            }
            text.extend_from_slice(&chunk);
        }
        String::from_utf8(text).ok()
    }
}

/// Finds the revision in the line of an environment.
fn revision<'a>(text: &'a str, environment: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.rsplit_once(' ').filter(|(name, _)| *name == environment).map(|(_, is)| is))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_with_several_environments_gives_revision_of_exact_name() {
        let text = "shop 00aa\nstorefront 00bb\n";
        assert_eq!(revision(text, "storefront"), Some("00bb"));
        assert_eq!(revision(text, "front"), None);
        assert_eq!(revision("", "shop"), None);
    }
}
