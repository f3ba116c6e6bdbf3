//! Compares the allocations of a request with those of a bare hyper server that reads a body and answers from memory.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod support;

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::mpsc;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use remora_sidecar::{Options, Server};
use support::client::Connection;
use support::environment::{CLIENT_KEY, written};
use support::volume::Directory;
use tokio::sync::oneshot;

const CLIENT: [(&str, &str); 2] = [("x-environment-key", CLIENT_KEY), ("content-type", "application/json")];
const REQUESTS: u64 = 1_000;

struct Case {
    name: &'static str,
    method: &'static str,
    path: &'static str,
    body: Option<&'static [u8]>,
    /// Number of allocations beyond those of bare hyper.
    allowed: f64,
}

const CASES: [Case; 6] = [
    Case { name: "health", method: "GET", path: "/health", body: None, allowed: 0.0 },
    Case { name: "flags", method: "GET", path: "/api/v1/flags/", body: None, allowed: 0.0 },
    Case { name: "one flag", method: "GET", path: "/api/v1/flags/?feature=banner", body: None, allowed: 0.0 },
    Case {
        name: "identities",
        method: "POST",
        path: "/api/v1/identities/",
        body: Some(br#"{"identifier":"somebody","traits":[{"trait_key":"plan","trait_value":"pro"},{"trait_key":"age","trait_value":31.5}]}"#),
        allowed: 2.0,
    },
    Case {
        name: "OFREP, one flag",
        method: "POST",
        path: "/ofrep/v1/evaluate/flags/banner",
        body: Some(br#"{"context":{"targetingKey":"x","plan":"pro"}}"#),
        allowed: 2.0,
    },
    Case {
        name: "OFREP, all flags",
        method: "POST",
        path: "/ofrep/v1/evaluate/flags",
        body: Some(br#"{"context":{"targetingKey":"x","plan":"pro"}}"#),
        allowed: -2.0,
    },
];

/// Allocations of the serving thread for one request of an open connection: the difference between many requests and
/// none, so that one-time allocations do not count.
fn per_request<F: Future<Output = ()>>(
    case: &Case,
    serve: impl Fn(mpsc::Sender<SocketAddr>, oneshot::Receiver<()>) -> F,
) -> f64 {
    let count = |requests: u64| {
        let (ready, address) = mpsc::channel();
        let (stop, stopped) = oneshot::channel();
        let client = std::thread::spawn({
            let (method, path, body) = (case.method, case.path, case.body);
            move || {
                let mut connection = Connection::open(address.recv().unwrap());
                for _ in 0..requests {
                    assert_eq!(connection.request(method, path, &CLIENT, body).unwrap().status, 200);
                }
                stop.send(()).unwrap();
            }
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let counted = allocation_counter::measure(|| runtime.block_on(serve(ready, stopped)));
        client.join().unwrap();
        counted.count_total
    };
    let warm = count(100);
    (count(100 + REQUESTS).saturating_sub(warm)) as f64 / REQUESTS as f64
}

async fn bare(ready: mpsc::Sender<SocketAddr>, stopped: oneshot::Receiver<()>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    ready.send(listener.local_addr().unwrap()).unwrap();
    let (stream, _) = listener.accept().await.unwrap();
    let answer = Bytes::from(vec![b'x'; 500]);
    let service = service_fn(move |request: Request<Incoming>| {
        let answer = answer.clone();
        async move {
            request.into_body().collect().await.unwrap();
            let mut response = Response::new(Full::new(answer));
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            Ok::<_, Infallible>(response)
        }
    });
    tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    let _ = stopped.await;
}

#[test]
fn request_stays_within_the_allocations_of_bare_hyper() {
    let directory = Directory::new();
    directory.volume("shop").publish_written(&written(1));
    let options = &{
        let mut options = Options::new(directory.path().to_owned());
        options.listen.set_port(0);
        options.admin.set_port(0);
        options
    };
    let ours = |ready: mpsc::Sender<SocketAddr>, stopped: oneshot::Receiver<()>| async move {
        let server = Server::start(options).await.unwrap();
        ready.send(server.data_address().unwrap()).unwrap();
        let stopped = async {
            let _ = stopped.await;
        };
        server.run_until(stopped).await;
    };
    let mut table = String::new();
    let mut over = false;
    for case in &CASES {
        let (bare, ours) = (per_request(case, bare), per_request(case, ours));
        table += &format!("{:<16} {ours:.2} allocations, bare hyper {bare:.2}\n", case.name);
        // An occasional timer or log line does not belong to the request.
        over |= ours > bare + case.allowed + 0.05;
    }
    assert!(!over, "{table}");
    eprintln!("{table}");
}
