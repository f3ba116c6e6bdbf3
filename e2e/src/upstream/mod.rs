//! Upstream that serves environment documents as Flagsmith's API does, and fails on request.
//!
//! The stub has two sides. The operator uses the *public* side: HTTP and HTTPS, with the API's key check, validators,
//! redirect, pages and event stream. A test uses the *control* side: it stores documents, flips flags, scripts faults
//! and reads the log of requests.
//!
//! `remora-e2e upstream` runs the stub as a program; a Rust test starts it in its own process:
//!
//! ```no_run
//! # async fn example() -> anyhow::Result<()> {
//! use remora_e2e::upstream::{Options, Upstream};
//! let upstream = Upstream::start(&Options::local()).await?;
//! upstream.store().put("ser.key", r#"{"id": 1, "api_key": "client", "feature_states": []}"#)?;
//! println!("{}", upstream.api_url());
//! # Ok(())
//! # }
//! ```

mod answer;
mod ca;
mod control;
mod date;
mod document;
mod fault;
mod head;
mod ordered_object;
mod public;
mod silent_change;
mod store;

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

pub use answer::Answer;
pub use ca::Ca;
pub use document::{Document, FlagChange};
pub use fault::{Fault, Scripted};
pub use silent_change::SilentChange;
pub use store::{LoggedRequest, ScenarioStore, Settings};

/// Addresses of the stub, and the names of its certificate.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Address of the public side over plain HTTP.
    #[arg(long, default_value = "0.0.0.0:8000")]
    pub http: SocketAddr,
    /// Address of the public side over TLS.
    #[arg(long, default_value = "0.0.0.0:8443")]
    pub https: SocketAddr,
    /// Address of the control side.
    #[arg(long, default_value = "0.0.0.0:8001")]
    pub control: SocketAddr,
    /// DNS name or address that the certificate is valid for; repeatable.
    #[arg(long = "name", value_name = "NAME")]
    pub names: Vec<String>,
}

impl Options {
    /// Returns options with three free ports on the loopback address.
    #[must_use]
    pub fn local() -> Self {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        Self { http: any, https: any, control: any, names: Vec::new() }
    }
}

/// Running stub. It stops when this value is dropped.
pub struct Upstream {
    store: Arc<ScenarioStore>,
    ca: Ca,
    http: SocketAddr,
    https: SocketAddr,
    control: SocketAddr,
    tasks: JoinSet<anyhow::Result<()>>,
}

impl Upstream {
    /// Creates a certificate, binds the three ports and serves them.
    ///
    /// # Errors
    ///
    /// Returns an error if a port cannot be bound or no certificate can be created for the names.
    pub async fn start(options: &Options) -> anyhow::Result<Self> {
        let store = Arc::new(ScenarioStore::default());
        let ca = Ca::new(&options.names)?;
        let bind = async |what, address| {
            TcpListener::bind(address).await.with_context(|| format!("the {what} side cannot listen on {address}"))
        };
        let http = bind("plain", options.http).await?;
        let https = bind("TLS", options.https).await?;
        let control = bind("control", options.control).await?;
        let (http_address, https_address, control_address) =
            (http.local_addr()?, https.local_addr()?, control.local_addr()?);

        let mut tasks = JoinSet::new();
        tasks.spawn(public::serve(http, None, store.clone()));
        tasks.spawn(public::serve(https, Some(ca.acceptor()), store.clone()));
        let router = control::router(store.clone(), ca.pem().to_owned());
        tasks.spawn(async move { axum::serve(control, router).await.context("the control side") });
        Ok(Self { store, ca, http: http_address, https: https_address, control: control_address, tasks })
    }

    /// Returns the scenario store, for a test in the same process.
    #[must_use]
    pub fn store(&self) -> &ScenarioStore {
        &self.store
    }

    /// Returns the PEM certificate of the CA that signed the TLS side's certificate.
    #[must_use]
    pub fn ca_pem(&self) -> &str {
        self.ca.pem()
    }

    /// Returns the value of `spec.source.flagsmith.apiUrl`.
    #[must_use]
    pub fn api_url(&self) -> String {
        format!("http://{}/api/v1/", self.http)
    }

    /// Returns the same for TLS.
    #[must_use]
    pub fn api_url_tls(&self) -> String {
        format!("https://{}/api/v1/", self.https)
    }

    /// Returns the base URL of the event streams.
    #[must_use]
    pub fn realtime_url(&self) -> String {
        format!("http://{}/", self.http)
    }

    /// Returns the address of the control side.
    #[must_use]
    pub fn control_address(&self) -> SocketAddr {
        self.control
    }

    /// Serves until a side fails; no side ends without a failure.
    ///
    /// # Errors
    ///
    /// Returns the error of the failed side.
    pub async fn run(mut self) -> anyhow::Result<()> {
        match self.tasks.join_next().await {
            Some(ended) => ended.context("a side of the stub panicked")?,
            None => Ok(()),
        }
    }
}
