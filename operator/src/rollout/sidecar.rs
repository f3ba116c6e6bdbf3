//! Asks one sidecar which revision it serves, and how often flags were used.

use std::{fmt, net::SocketAddr, time::Duration};

use reqwest::{Certificate, Client, redirect};
use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, Visitor},
};

use crate::{
    api::{Revision, names::EnvironmentName},
    fair_semaphore::FairSemaphore,
};

/// Number of sidecars that are asked at a time, over all environments.
const CONCURRENT_REQUESTS: usize = 64;
/// Time for one answer. A sidecar answers within a millisecond; a pod that is cut off does not answer at all.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Largest answer in bytes. It has a line for each environment of the pod.
const ANSWER_BYTES_MAX: usize = 16 << 10;
/// Number of sidecars whose counters are read at a time, over all environments.
const CONCURRENT_READINGS: usize = 16;
/// Largest answer with counters in bytes, and largest number of flags in it.
const USES_BYTES_MAX: usize = 1 << 20;
const USES_FLAGS_MAX: usize = 16 << 10;
/// Largest length of a process's number and of a flag's name in characters. Flagsmith refuses longer names.
const PROCESS_MAX: usize = 64;
const FLAG_MAX: usize = 2000;

/// HTTP client for the admin port of sidecars. Clones share its limits.
#[derive(Clone, Debug)]
pub struct SidecarClient {
    client: Client,
    questions: FairSemaphore,
    readings: FairSemaphore,
}

/// Error: the HTTP client cannot be created.
#[derive(Debug, thiserror::Error)]
#[error("cannot create the HTTP client for sidecars: {0}")]
pub struct Error(#[from] reqwest::Error);

/// Answer of a sidecar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// The sidecar serves this revision of the environment, or none yet.
    Serves(Option<Revision>),
    /// The sidecar did not answer, or not as a sidecar does.
    Silent,
}

/// Uses of flags that a sidecar has counted since its process began.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Uses {
    /// Random number of the process.
    pub process: String,
    /// Age of the process in milliseconds.
    pub age_ms: u64,
    /// Counts by the flag's name.
    #[serde(rename = "uses", deserialize_with = "flags")]
    pub flags: Vec<(String, u64)>,
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
        let [questions, readings] = [CONCURRENT_REQUESTS, CONCURRENT_READINGS].map(FairSemaphore::new);
        Ok(Self { client, questions, readings })
    }

    /// Asks the sidecar with this admin port which revision of the environment of the namespace it serves.
    pub(super) async fn ask(&self, address: SocketAddr, namespace: &str, environment: &EnvironmentName) -> Reply {
        let _permit = self.questions.acquire(namespace).await;
        match self.text(address, "revisions", ANSWER_BYTES_MAX).await {
            Some(text) => Reply::Serves(revision(&text, environment.as_str()).map(Revision::new)),
            None => Reply::Silent,
        }
    }

    /// Reads how often the flags of the environment of the namespace were used. `None` if the sidecar did not answer, or
    /// not as a sidecar does.
    pub async fn uses(&self, address: SocketAddr, namespace: &str, environment: &EnvironmentName) -> Option<Uses> {
        let _permit = self.readings.acquire(namespace).await;
        let text = self.text(address, &format!("uses/{environment}"), USES_BYTES_MAX).await?;
        serde_json::from_str(&text).ok().filter(|uses: &Uses| uses.process.len() <= PROCESS_MAX)
    }

    async fn text(&self, address: SocketAddr, path: &str, most: usize) -> Option<String> {
        let mut response = self.client.get(format!("http://{address}/{path}")).send().await.ok()?;
        if response.status() != reqwest::StatusCode::OK {
            return None;
        }
        let mut text = Vec::new();
        while let Some(chunk) = response.chunk().await.ok()? {
            if text.len() + chunk.len() > most {
                return None;
            }
            text.extend_from_slice(&chunk);
        }
        String::from_utf8(text).ok()
    }
}

/// Reads counts by name, at most [`USES_FLAGS_MAX`]. Names that no flag can have are left out.
fn flags<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<(String, u64)>, D::Error> {
    struct Flags;
    impl<'de> Visitor<'de> for Flags {
        type Value = Vec<(String, u64)>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("counts by name")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut flags = Vec::new();
            while let Some((name, count)) = map.next_entry::<String, u64>()? {
                if flags.len() == USES_FLAGS_MAX {
                    return Err(de::Error::custom("too many flags"));
                }
                if name.chars().count() <= FLAG_MAX {
                    flags.push((name, count));
                }
            }
            Ok(flags)
        }
    }
    deserializer.deserialize_map(Flags)
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

    #[test]
    fn counters_beyond_bounds_are_refused() {
        let read = |text: &str| serde_json::from_str::<Uses>(text).ok();
        let good = read(r#"{"process":"p","ageMs":7,"uses":{"b":2,"a":1},"more":null}"#).unwrap();
        let flags = vec![("b".to_owned(), 2), ("a".to_owned(), 1)];
        assert_eq!(good, Uses { process: "p".to_owned(), age_ms: 7, flags });
        for bad in ["", "{}", r#"{"process":"p","ageMs":7,"uses":{"a":-1}}"#, r#"{"process":"p","ageMs":7,"uses":[]}"#]
        {
            assert_eq!(read(bad), None, "{bad}");
        }
        let of = |flags: usize, length: usize| {
            let flags: Vec<String> = (0..flags).map(|number| format!("\"{number:0length$}\":1")).collect();
            read(&format!(r#"{{"process":"p","ageMs":7,"uses":{{{}}}}}"#, flags.join(",")))
        };
        assert_eq!(of(USES_FLAGS_MAX, 1).unwrap().flags.len(), USES_FLAGS_MAX);
        assert_eq!(of(USES_FLAGS_MAX + 1, 1), None);
        assert_eq!((of(2, FLAG_MAX).unwrap().flags.len(), of(2, FLAG_MAX + 1).unwrap().flags.len()), (2, 0));
    }
}
