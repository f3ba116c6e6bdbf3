//! Relay between the controller and the API server, which cuts the writes of each namespace by its plan.

use std::{collections::BTreeMap, convert::Infallible, io, net::SocketAddr, path::Path, sync::Arc};

use http::{Request, Response, header};
use http_body_util::{BodyExt as _, Full, combinators::UnsyncBoxBody};
use hyper::{
    body::{Bytes, Incoming},
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use kube::{
    Client,
    client::Body,
    config::{KubeConfigOptions, Kubeconfig},
};
use parking_lot::Mutex;
use tokio::{net::TcpListener, sync::watch, task::JoinHandle};

/// Fate of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The controller is killed before the API server gets the write.
    Before,
    /// The controller is killed after the API server has answered.
    After,
    /// The API server answers, and the connection breaks before the controller has the answer.
    Lost,
    /// The API server does not get the write, and the controller gets an error.
    Refused,
}

impl Fate {
    pub(crate) const ALL: [Fate; 4] = [Fate::Before, Fate::After, Fate::Lost, Fate::Refused];
}

/// Plan for one namespace: the number of the write, from 1, and its fate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan(Option<(usize, Fate)>);

impl Plan {
    pub(crate) fn undisturbed() -> Self {
        Self(None)
    }

    pub(crate) fn cut(write: usize, fate: Fate) -> Self {
        Self(Some((write, fate)))
    }
}

/// What happened to a namespace's writes.
#[derive(Default)]
struct Seen {
    plan: Option<(usize, Fate)>,
    writes: Vec<String>,
}

type Answer = Response<UnsyncBoxBody<Bytes, kube::Error>>;

/// The relay. Its connections have no TLS.
pub(crate) struct Relay {
    address: SocketAddr,
    seen: Arc<Mutex<BTreeMap<String, Seen>>>,
    /// Number of times that the controller was to be killed.
    kills: watch::Sender<usize>,
    task: JoinHandle<()>,
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Relay {
    /// Relays requests to the API server with the account of this kubeconfig.
    pub(crate) async fn start(kubeconfig: &Path) -> anyhow::Result<Self> {
        let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
        let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        config.default_retry = false;
        (config.read_timeout, config.write_timeout) = (None, None);
        let client = Client::try_from(config)?;
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let seen = Arc::default();
        let kills = watch::Sender::new(0);
        let way = Way { client, seen: Arc::clone(&seen), kills: kills.clone() };
        let task = tokio::spawn(async move {
            loop {
                let Ok((connection, _)) = listener.accept().await else { continue };
                let way = way.clone();
                tokio::spawn(async move {
                    let service = service_fn(|request| way.clone().pass(request));
                    // The controller ends, or its connection is cut.
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(connection), service)
                        .await;
                });
            }
        });
        Ok(Self { address, seen, kills, task })
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// Cuts the writes to a namespace from now on.
    pub(crate) fn follow(&self, namespace: &str, Plan(plan): Plan) {
        self.seen.lock().insert(namespace.to_owned(), Seen { plan, writes: Vec::new() });
    }

    /// Returns a receiver that changes when the controller is to be killed.
    pub(crate) fn kills(&self) -> watch::Receiver<usize> {
        self.kills.subscribe()
    }

    /// Returns the writes to a namespace.
    pub(crate) fn writes(&self, namespace: &str) -> Vec<String> {
        self.seen.lock().get(namespace).map(|seen| seen.writes.clone()).unwrap_or_default()
    }

    /// Lists the plans that no write has met.
    pub(crate) fn unused_plans(&self) -> Vec<(usize, Fate)> {
        self.seen.lock().values().filter_map(|seen| seen.plan.filter(|(write, _)| seen.writes.len() < *write)).collect()
    }
}

#[derive(Clone)]
struct Way {
    client: Client,
    seen: Arc<Mutex<BTreeMap<String, Seen>>>,
    kills: watch::Sender<usize>,
}

impl Way {
    async fn pass(self, request: Request<Incoming>) -> Result<Answer, io::Error> {
        match self.fate(&request) {
            None => self.forward(request).await,
            Some(Fate::Before) => {
                self.kill();
                Err(io::Error::other("the controller ends"))
            }
            Some(Fate::After) => {
                self.forward(request).await?;
                self.kill();
                Err(io::Error::other("the controller ends"))
            }
            Some(Fate::Lost) => {
                self.forward(request).await?;
                Err(io::Error::other("the connection breaks"))
            }
            Some(Fate::Refused) => {
                let status =
                    r#"{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"InternalError","code":500}"#;
                let body = Full::new(Bytes::from(status)).map_err(|never: Infallible| match never {});
                let answer = Response::builder().status(500).header(header::CONTENT_TYPE, "application/json");
                answer.body(UnsyncBoxBody::new(body)).map_err(io::Error::other)
            }
        }
    }

    /// Returns the fate of a write, and counts it. Leases and Events have no plans.
    fn fate(&self, request: &Request<Incoming>) -> Option<Fate> {
        let path = request.uri().path();
        if request.method() == http::Method::GET || path.contains("/events") || path.contains("/leases") {
            return None;
        }
        let (_, rest) = path.split_once("/namespaces/")?;
        let (namespace, object) = rest.split_once('/')?;
        let mut seen = self.seen.lock();
        let seen = seen.get_mut(namespace)?;
        seen.writes.push(format!("{} {object}", request.method()));
        seen.plan.filter(|(write, _)| *write == seen.writes.len()).map(|(_, fate)| fate)
    }

    fn kill(&self) {
        self.kills.send_modify(|kills| *kills += 1);
    }

    async fn forward(&self, request: Request<Incoming>) -> Result<Answer, io::Error> {
        let (mut parts, body) = request.into_parts();
        let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
        // The relay's own account and connection.
        for name in [header::AUTHORIZATION, header::HOST, header::CONTENT_LENGTH, header::ACCEPT_ENCODING] {
            parts.headers.remove(name);
        }
        let request = Request::from_parts(parts, Body::from(body));
        let answer = self.client.send(request).await.map_err(io::Error::other)?;
        let (mut parts, body) = answer.into_parts();
        for name in [header::CONTENT_LENGTH, header::TRANSFER_ENCODING, header::CONNECTION] {
            parts.headers.remove(name);
        }
        Ok(Response::from_parts(parts, UnsyncBoxBody::new(body)))
    }
}
