//! An upstream that serves environment documents as Flagsmith's API does, and fails on request.
//!
//! Two sides. The *public* one is what an operator talks to: over HTTP and HTTPS, with the API's key check, its validators,
//! its redirect, its pages and its event stream. The *control* one is what a test talks to: it puts documents, flips flags,
//! scripts faults and reads which requests came.
//!
//! `remora-e2e upstream` runs it as a program; a Rust test starts it inside itself:
//!
//! ```no_run
//! # async fn example() -> anyhow::Result<()> {
//! use remora_e2e::upstream::{Options, Upstream};
//! let upstream = Upstream::start(&Options::local()).await?;
//! upstream.book().put("ser.key", r#"{"id": 1, "api_key": "client", "feature_states": []}"#)?;
//! println!("{}", upstream.api_url());
//! # Ok(())
//! # }
//! ```

mod answer;
mod authority;
mod book;
mod control;
mod date;
mod document;
mod fault;
mod head;
mod members;
mod public;

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

pub use answer::Answer;
pub use authority::Authority;
pub use book::{Book, Seen, Settings};
pub use document::{Document, FlagChange};
pub use fault::{Fault, Scripted};

/// Where the stub listens, and which names its certificate bears.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// The address of the plain public side.
    #[arg(long, default_value = "0.0.0.0:8000")]
    pub http: SocketAddr,
    /// The address of the public side behind TLS.
    #[arg(long, default_value = "0.0.0.0:8443")]
    pub https: SocketAddr,
    /// The address of the control side.
    #[arg(long, default_value = "0.0.0.0:8001")]
    pub control: SocketAddr,
    /// A DNS name or an address that the certificate is for; may be given several times.
    #[arg(long = "name", value_name = "NAME")]
    pub names: Vec<String>,
}

impl Options {
    /// Three free ports on the loopback.
    #[must_use]
    pub fn local() -> Self {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        Self { http: any, https: any, control: any, names: Vec::new() }
    }
}

/// A running stub. It ends when this is dropped.
pub struct Upstream {
    book: Arc<Book>,
    authority: Authority,
    http: SocketAddr,
    https: SocketAddr,
    control: SocketAddr,
    tasks: JoinSet<anyhow::Result<()>>,
}

impl Upstream {
    /// Makes a certificate, binds the three ports and serves them.
    ///
    /// # Errors
    ///
    /// When a port cannot be bound or no certificate can be made for the names.
    pub async fn start(options: &Options) -> anyhow::Result<Self> {
        let book = Arc::new(Book::default());
        let authority = Authority::new(&options.names)?;
        let bind = async |what, address| {
            TcpListener::bind(address).await.with_context(|| format!("the {what} side cannot listen on {address}"))
        };
        let http = bind("plain", options.http).await?;
        let https = bind("TLS", options.https).await?;
        let control = bind("control", options.control).await?;
        let (http_address, https_address, control_address) =
            (http.local_addr()?, https.local_addr()?, control.local_addr()?);

        let mut tasks = JoinSet::new();
        tasks.spawn(public::serve(http, None, book.clone()));
        tasks.spawn(public::serve(https, Some(authority.acceptor()), book.clone()));
        let router = control::router(book.clone(), authority.pem().to_owned());
        tasks.spawn(async move { axum::serve(control, router).await.context("the control side") });
        Ok(Self { book, authority, http: http_address, https: https_address, control: control_address, tasks })
    }

    /// The documents, faults and requests, for a test in the same process.
    #[must_use]
    pub fn book(&self) -> &Book {
        &self.book
    }

    /// The certificate of the authority that signed the TLS side's, as PEM.
    #[must_use]
    pub fn authority_pem(&self) -> &str {
        self.authority.pem()
    }

    /// What goes into `spec.source.flagsmith.apiUrl`.
    #[must_use]
    pub fn api_url(&self) -> String {
        format!("http://{}/api/v1/", self.http)
    }

    /// The same behind TLS.
    #[must_use]
    pub fn api_url_tls(&self) -> String {
        format!("https://{}/api/v1/", self.https)
    }

    /// The base of the event streams' addresses.
    #[must_use]
    pub fn realtime_url(&self) -> String {
        format!("http://{}/", self.http)
    }

    /// Where the control side listens.
    #[must_use]
    pub fn control_address(&self) -> SocketAddr {
        self.control
    }

    /// Serves until one of the sides fails; they do not end by themselves.
    ///
    /// # Errors
    ///
    /// What the side failed with.
    pub async fn run(mut self) -> anyhow::Result<()> {
        match self.tasks.join_next().await {
            Some(ended) => ended.context("a side of the stub panicked")?,
            None => Ok(()),
        }
    }
}
