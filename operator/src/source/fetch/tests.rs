//! Tests of fetching from real servers on real sockets, with and without TLS. Only name resolution and the API server
//! are fake.

mod bounds;
mod cluster;
mod conditional;
mod confinement;
mod cuts;
mod listen;
mod objects;
mod pages;
mod proxy;
mod refusals;
mod slow;
mod tls;
mod upstream;

use std::{io::Write, path::PathBuf, sync::Arc};

use axum::body::Body;
use flate2::{Compression, write::GzEncoder};
use http::Response;
use serde_json::{Value, json};

use remora_compile::document;

use self::{
    cluster::Cluster,
    upstream::{Asked, Certificate, Leading, Upstream},
};
use super::{
    AllowedOrigins, CaFile, CachedVersion, Error, FetchHints, Fetched, Fetcher, FetcherOptions, Lookup, Origin,
    Proxies, ProxyRule,
};
use crate::api::FeatureEnvironmentSpec;

/// Text that no error may contain. Every answer that a test expects to be refused contains it.
const CANARY: &str = "canary-7f3a";
const KEY: &str = "ser.canary-key";
const SETTLED: &str = "2026-11-20T00:00:00.5+00:00";

fn environment(updated_at: &str, identities: &[&str]) -> Value {
    let overrides: Vec<Value> =
        identities.iter().map(|who| json!({"identifier": who, "identity_features": []})).collect();
    json!({"id": 1, "api_key": "client", "updated_at": updated_at, "project": {}, "feature_states": [], "identity_overrides": overrides})
}

fn json_answer(body: &Value) -> Response<Body> {
    Response::new(Body::from(body.to_string()))
}

fn status(code: u16) -> Response<Body> {
    Response::builder().status(code).body(Body::from(CANARY)).unwrap()
}

fn compressed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn gzipped(compressed: Vec<u8>) -> Response<Body> {
    Response::builder().header("content-encoding", "gzip").body(Body::from(compressed)).unwrap()
}

/// A fetcher's configuration, its source, and its fake cluster.
struct Scene {
    cluster: Cluster,
    origins: Vec<Origin>,
    lookup: Arc<dyn Lookup>,
    api_url: String,
    bundle: bool,
    ca_file: Option<PathBuf>,
    timeout: &'static str,
    limit: usize,
}

impl Scene {
    /// Creates a scene with the server `upstream.test`, over plain HTTP at this port, as an origin that an
    /// administrator named.
    fn at(upstream: &Upstream) -> Self {
        Self::url(&format!("http://upstream.test:{}", upstream.port))
    }

    fn url(origin: &str) -> Self {
        let cluster = Cluster::default();
        cluster.secret("flagsmith", "environment-key", KEY);
        Self {
            cluster,
            origins: vec![origin.parse().unwrap()],
            lookup: Leading::to(&["127.0.0.1"]),
            api_url: format!("{origin}/api/v1"),
            bundle: false,
            ca_file: None,
            timeout: "10s",
            limit: 1 << 20,
        }
    }

    fn trusting(mut self, pem: &str) -> Self {
        self.cluster.config_map("corp-ca", "1", "ca.crt", pem);
        self.bundle = true;
        self
    }

    fn spec(&self) -> FeatureEnvironmentSpec {
        let mut flagsmith = json!({"apiUrl": self.api_url, "environmentKeySecretRef": {"name": "flagsmith"}});
        if self.bundle {
            flagsmith["caBundleRef"] = json!({"configMapName": "corp-ca"});
        }
        serde_json::from_value(json!({"source": {"flagsmith": flagsmith}, "refresh": {"timeout": self.timeout}}))
            .unwrap()
    }

    fn fetcher(&self) -> Fetcher {
        self.fetcher_through(&[])
    }

    /// Creates a fetcher that connects through these proxies.
    fn fetcher_through(&self, proxies: &[ProxyRule]) -> Fetcher {
        // reqwest uses the process-wide crypto provider.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let allowed = AllowedOrigins::new(&self.origins).unwrap();
        let ca_file = self.ca_file.as_deref().map(|path| CaFile::open(path).unwrap());
        let options = FetcherOptions { allowed, proxies: Proxies::new(proxies), ca_file, limit: self.limit };
        Fetcher::new(self.cluster.client(), options, Arc::clone(&self.lookup))
    }

    async fn fetch(&self) -> Result<Fetched, Error> {
        self.fetcher().fetch("shop", &self.spec(), &FetchHints::default()).await
    }

    /// Returns the error of a fetch that must fail, and asserts that it contains neither the server's answer nor the
    /// key.
    async fn failure(&self) -> Error {
        let error = self.fetch().await.expect_err("this must not be fetched");
        for text in [error.to_string(), format!("{error:?}")] {
            assert!(!text.contains("canary"), "{text}");
        }
        error
    }
}

fn identities(fetched: Fetched) -> Vec<String> {
    match fetched {
        Fetched::Document(arrived) => {
            let pages = arrived.pages.iter().map(|page| document::parse(page).unwrap());
            pages.flat_map(|page| page.identity_overrides).map(|identity| identity.identifier).collect()
        }
        other => panic!("no document: {other:?}"),
    }
}

fn cached_version(fetched: Fetched) -> CachedVersion {
    match fetched {
        Fetched::Document(arrived) => {
            let parsed = document::parse(&arrived.pages[0]).unwrap();
            arrived.arrival.cached_version(parsed.updated_at())
        }
        other => panic!("no document: {other:?}"),
    }
}
