//! A server that follows a script and records the requests it received.

use std::{
    convert::Infallible,
    io,
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use axum::body::Body;
use futures::future::BoxFuture;
use http::{Request, Response};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use rustls::{ServerConfig, pki_types::PrivatePkcs8KeyDer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
};
use tokio_rustls::TlsAcceptor;

use super::super::Lookup;

/// The parts of a request that tests check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) path: String,
    pub(super) key: Option<String>,
    pub(super) since: Option<String>,
    pub(super) tag: Option<String>,
}

type Script = Arc<dyn Fn(usize, &Asked) -> Response<Body> + Send + Sync>;

pub(super) struct Upstream {
    pub(super) port: u16,
    asked: Arc<Mutex<Vec<Asked>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Upstream {
    /// Starts a server over HTTP. The script receives the request's number, from 0.
    pub(super) async fn http(script: impl Fn(usize, &Asked) -> Response<Body> + Send + Sync + 'static) -> Self {
        Self::start(None, Arc::new(script)).await
    }

    /// Starts a server over HTTPS with this certificate.
    pub(super) async fn https(
        certificate: &Certificate,
        script: impl Fn(usize, &Asked) -> Response<Body> + Send + Sync + 'static,
    ) -> Self {
        Self::start(Some(certificate.acceptor()), Arc::new(script)).await
    }

    async fn start(acceptor: Option<TlsAcceptor>, script: Script) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let book = Arc::clone(&asked);
        let task = tokio::spawn(async move {
            loop {
                let Ok((connection, _)) = listener.accept().await else { return };
                let (acceptor, script, book) = (acceptor.clone(), Arc::clone(&script), Arc::clone(&book));
                tokio::spawn(async move {
                    match acceptor {
                        None => answer(connection, script, book).await,
                        Some(acceptor) => {
                            if let Ok(connection) = acceptor.accept(connection).await {
                                answer(connection, script, book).await;
                            }
                        }
                    }
                });
            }
        });
        Self { port, asked, task }
    }

    pub(super) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().clone()
    }
}

async fn answer<I: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    io: I,
    script: Script,
    book: Arc<Mutex<Vec<Asked>>>,
) {
    let service = service_fn(move |request: Request<Incoming>| {
        let text = |name: &str| request.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
        let asked = Asked {
            path: request.uri().path_and_query().unwrap().to_string(),
            key: text("x-environment-key"),
            since: text("if-modified-since"),
            tag: text("if-none-match"),
        };
        let number = {
            let mut book = book.lock();
            book.push(asked.clone());
            book.len() - 1
        };
        let response = script(number, &asked);
        async move { Ok::<_, Infallible>(response) }
    });
    // Some tests make the client close the connection early.
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(io), service).await;
}

/// A CA, and a certificate that it signed.
pub(super) struct Certificate {
    authority: CertifiedIssuer<'static, KeyPair>,
    params: CertificateParams,
}

impl Certificate {
    pub(super) fn of(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        Self { authority, params: CertificateParams::new(vec![name.to_owned()]).unwrap() }
    }

    pub(super) fn expired(name: &str) -> Self {
        let mut certificate = Self::of(name);
        certificate.params.not_before = date_time_ymd(2020, 1, 1);
        certificate.params.not_after = date_time_ymd(2020, 1, 2);
        certificate
    }

    pub(super) fn of_the_future(name: &str) -> Self {
        let mut certificate = Self::of(name);
        certificate.params.not_before = date_time_ymd(4000, 1, 1);
        certificate.params.not_after = date_time_ymd(4000, 1, 2);
        certificate
    }

    /// Returns the CA's certificate in PEM.
    pub(super) fn authority(&self) -> String {
        self.authority.pem()
    }

    fn acceptor(&self) -> TlsAcceptor {
        let key = KeyPair::generate().unwrap();
        let leaf = self.params.signed_by(&key, &self.authority).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![leaf.der().clone()], PrivatePkcs8KeyDer::from(key.serialize_der()).into())
            .unwrap();
        TlsAcceptor::from(Arc::new(config))
    }
}

/// Resolver that returns these addresses for every name, one after the other, and then repeats the last.
pub(super) struct Leading(Mutex<Vec<IpAddr>>);

impl Leading {
    pub(super) fn to(addresses: &[&str]) -> Arc<dyn Lookup> {
        let addresses = addresses.iter().rev().map(|address| address.parse().unwrap()).collect();
        Arc::new(Self(Mutex::new(addresses)))
    }
}

impl Lookup for Leading {
    fn lookup(&self, _: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        let mut addresses = self.0.lock();
        let next = if addresses.len() > 1 { addresses.pop() } else { addresses.first().copied() };
        Box::pin(async move { Ok(next.into_iter().collect()) })
    }
}
