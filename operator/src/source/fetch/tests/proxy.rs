//! Fetches through an HTTP proxy on a real socket: the same refusals as without one, and a proxy that sees only TLS.

use std::{io, net::Ipv4Addr, path::PathBuf};

use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional},
    net::{TcpListener, TcpStream},
};

use super::*;
use crate::source::fetch::ProxyRule;

/// A proxy that connects every tunnel to one port of this machine, whatever host the request names.
struct Proxy {
    port: u16,
    heads: Arc<Mutex<Vec<String>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Proxy {
    /// Starts a proxy that answers with this status line.
    async fn to(port: u16, status: &'static str) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let own = listener.local_addr().unwrap().port();
        let heads = Arc::new(Mutex::new(Vec::new()));
        let book = Arc::clone(&heads);
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(serve(client, port, status, Arc::clone(&book)));
            }
        });
        Self { port: own, heads, task }
    }

    fn heads(&self) -> Vec<String> {
        self.heads.lock().clone()
    }

    fn rule(&self) -> String {
        format!("http://proxy.test:{}", self.port)
    }
}

async fn serve(
    mut client: TcpStream,
    port: u16,
    status: &'static str,
    book: Arc<Mutex<Vec<String>>>,
) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await?);
    }
    book.lock().push(String::from_utf8_lossy(&head).into_owned());
    client.write_all(format!("HTTP/1.1 {status}\r\n\r\n").as_bytes()).await?;
    if status.starts_with("200") {
        let mut server = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
        copy_bidirectional(&mut client, &mut server).await?;
    }
    Ok(())
}

/// Resolver that knows the proxy, and these addresses of the server.
struct Names(Vec<&'static str>);

impl Lookup for Names {
    fn lookup(&self, host: String) -> BoxFuture<'static, io::Result<Vec<std::net::IpAddr>>> {
        let found = if host == "proxy.test" { vec!["127.0.0.1"] } else { self.0.clone() };
        Box::pin(async move { Ok(found.into_iter().map(|address| address.parse().unwrap()).collect()) })
    }
}

/// A scene with a server that has no route, except through a proxy: its name has no address here.
fn scene(origin: &str, certificate: &Certificate) -> Scene {
    Scene { lookup: Arc::new(Names(Vec::new())), ..Scene::url(origin).trusting(&certificate.authority()) }
}

async fn fetch(scene: &Scene, rules: &[&str]) -> Result<Fetched, Error> {
    let rules: Vec<ProxyRule> = rules.iter().map(|rule| rule.parse().unwrap()).collect();
    let fetcher = scene.fetcher_through(&rules);
    fetcher.fetch("shop", &scene.spec(), &FetchHints::default()).await
}

async fn upstream(certificate: &Certificate) -> Upstream {
    Upstream::https(certificate, |_, _| json_answer(&environment(SETTLED, &["a"]))).await
}

fn problem(fetched: Result<Fetched, Error>) -> String {
    let error = fetched.expect_err("this must not be fetched");
    assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
    error.to_string()
}

/// Writes the files of a Secret, and returns their directory.
fn credentials(username: &str, password: &str) -> PathBuf {
    let directory = std::env::temp_dir().join(format!("remora-proxy-{:016x}", fastrand::u64(..)));
    std::fs::create_dir(&directory).unwrap();
    std::fs::write(directory.join("username"), username).unwrap();
    std::fs::write(directory.join("password"), password).unwrap();
    directory
}

#[tokio::test]
async fn server_is_reached_through_tunnel_that_hides_key() {
    let certificate = Certificate::of("flags.test");
    let upstream = upstream(&certificate).await;
    let proxy = Proxy::to(upstream.port, "200 OK").await;
    let fetched = fetch(&scene("https://flags.test", &certificate), &[&proxy.rule()]).await.unwrap();
    assert_eq!(identities(fetched), ["a"]);
    assert_eq!(upstream.asked()[0].key.as_deref(), Some(KEY));
    let heads = proxy.heads();
    assert!(heads[0].starts_with("CONNECT flags.test:443 HTTP/1.1\r\n"), "{heads:?}");
    assert!(heads.len() == 1 && !heads[0].contains(KEY) && !heads[0].contains("authorization"), "{heads:?}");
}

#[tokio::test]
async fn credentials_are_read_again_for_each_fetch() {
    let certificate = Certificate::of("flags.test");
    let upstream = upstream(&certificate).await;
    let proxy = Proxy::to(upstream.port, "200 OK").await;
    let directory = credentials("remora", "first-secret\n");
    let rule = format!("https://flags.test={},{}", proxy.rule(), directory.display());
    let scene = scene("https://flags.test", &certificate);
    let fetcher = scene.fetcher_through(&[rule.parse().unwrap()]);
    for (password, encoded) in [("first-secret\n", "cmVtb3JhOmZpcnN0LXNlY3JldA=="), ("other", "cmVtb3JhOm90aGVy")] {
        std::fs::write(directory.join("password"), password).unwrap();
        fetcher.fetch("shop", &scene.spec(), &FetchHints::default()).await.unwrap();
        let last = proxy.heads().pop().unwrap().to_lowercase();
        assert!(last.contains(&format!("\r\nproxy-authorization: basic {}\r\n", encoded.to_lowercase())), "{last}");
    }
    std::fs::remove_dir_all(&directory).unwrap();
    let said = problem(fetcher.fetch("shop", &scene.spec(), &FetchHints::default()).await);
    assert!(said.contains("credentials of its proxy cannot be read"), "{said}");
    assert_eq!(proxy.heads().len(), 2);
}

#[tokio::test]
async fn failures_of_proxy_are_named() {
    let certificate = Certificate::of("flags.test");
    let upstream = upstream(&certificate).await;
    let scene = scene("https://flags.test", &certificate);
    for (status, expected) in [
        ("407 Proxy Authentication Required", "its proxy wants other credentials"),
        ("403 Forbidden", "its proxy refuses the connection"),
        ("canary-7f3a", "its proxy"),
    ] {
        let proxy = Proxy::to(upstream.port, status).await;
        let said = problem(fetch(&scene, &[&proxy.rule()]).await);
        assert!(said.contains(expected) && !said.contains(CANARY), "{said}");
    }
    let closed = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap().local_addr().unwrap().port();
    let said = problem(fetch(&scene, &[&format!("http://proxy.test:{closed}")]).await);
    assert!(said.contains("its proxy cannot be reached"), "{said}");
    assert!(upstream.asked().is_empty());
}

#[tokio::test]
async fn certificate_of_server_is_verified_through_proxy() {
    let other = Certificate::of("other.test");
    let upstream = upstream(&other).await;
    let proxy = Proxy::to(upstream.port, "200 OK").await;
    let error = fetch(&scene("https://flags.test", &other), &[&proxy.rule()]).await.unwrap_err();
    assert!(matches!(error, Error::TlsFailure { .. }), "{error}");
    assert!(upstream.asked().is_empty());
}

/// A name that resolves to a forbidden address here is refused before the proxy hears of it.
#[tokio::test]
async fn addresses_and_origins_are_refused_as_without_proxy() {
    let certificate = Certificate::of("flags.test");
    let upstream = upstream(&certificate).await;
    let proxy = Proxy::to(upstream.port, "200 OK").await;
    let blocked = |origin: &str, addresses: &[&'static str]| Scene {
        lookup: Arc::new(Names(addresses.to_vec())),
        origins: vec![origin.parse().unwrap()],
        ..scene(origin, &certificate)
    };
    let service = "https://edge.api.flagsmith.com";
    for (origin, addresses) in [
        (service, ["10.0.0.1"].as_slice()),
        (service, &["1.1.1.1", "127.0.0.1"]),
        ("https://flags.test", &["169.254.169.254"]),
        ("https://169.254.169.254", &[]),
    ] {
        let error = fetch(&blocked(origin, addresses), &[&proxy.rule()]).await.unwrap_err();
        assert!(matches!(error, Error::AddressBlocked(_)), "{origin}: {error}");
    }
    let scene = Scene { origins: vec![service.parse().unwrap()], ..scene("https://flags.test", &certificate) };
    let error = fetch(&scene, &[&proxy.rule()]).await.unwrap_err();
    assert!(matches!(error, Error::OriginNotAllowed(_)), "{error}");
    assert!(proxy.heads().is_empty(), "{:?}", proxy.heads());
}

#[tokio::test]
async fn direct_origins_and_plain_http_bypass_proxy() {
    let certificate = Certificate::of("flags.test");
    let secure = upstream(&certificate).await;
    let plain = Upstream::http(|_, _| json_answer(&environment(SETTLED, &["b"]))).await;
    let proxy = Proxy::to(secure.port, "200 OK").await;
    let direct = format!("https://flags.test:{}", secure.port);
    let near = |scene: Scene| Scene { lookup: Leading::to(&["127.0.0.1"]), ..scene };
    let rules = [proxy.rule(), format!("{direct}=direct")];
    let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
    assert_eq!(identities(fetch(&near(scene(&direct, &certificate)), &rules).await.unwrap()), ["a"]);
    assert_eq!(identities(fetch(&Scene::at(&plain), &rules).await.unwrap()), ["b"]);
    assert!(proxy.heads().is_empty());
}
