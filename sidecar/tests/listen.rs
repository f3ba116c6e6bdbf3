//! Tests of other ways to the sidecar: containers through a Unix socket, and pages in a browser.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use remora_sidecar::{Options, Server};
use support::client::{call, get, request};
use support::environment::{CLIENT_KEY, client_flags, written};
use support::server::{Running, start};
use support::volume::Directory;

const FLAGS: &str = "/api/v1/flags/";
const KEY: (&str, &str) = ("x-environment-key", CLIENT_KEY);

fn serving(change: impl FnOnce(&mut Options)) -> (Directory, Running) {
    let directory = Directory::new();
    directory.volume("shop").publish_written(&written(1));
    let running = start(directory.path(), change);
    (directory, running)
}

fn ask(path: &Path, request: &[u8]) -> String {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.write_all(request).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn unix_socket_gives_the_answers_of_the_port() {
    let sockets = Directory::new();
    let path = sockets.path().join("remora.sock");
    // The socket of a process that ended without removing it.
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let (_directory, server) = serving(|options| options.listen_unix = Some(path.clone()));
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o666);
    let close = [KEY, ("connection", "close")];
    let answer = ask(&path, &request("GET", FLAGS, &close, None));
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with(&client_flags(1)), "{answer}");
    let body = br#"{"identifier":"x"}"#;
    let answer = ask(&path, &request("POST", "/api/v1/identities/", &close, Some(body)));
    assert!(answer.contains("\"identifier\":\"x\""), "{answer}");
    assert_eq!(get(server.data, FLAGS, &[KEY]).body, client_flags(1));
    server.stop();
    assert!(!path.exists(), "the socket remains after the process");
}

#[test]
fn unix_socket_of_another_process_is_not_replaced() {
    let (directory, _server) = serving(|_| {});
    let start = |path: &Path| {
        let mut options = Options::new(directory.path().to_owned());
        options.listen.set_port(0);
        options.admin.set_port(0);
        options.listen_unix = Some(path.to_owned());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { Server::start(&options).await.err().unwrap().to_string() })
    };
    let sockets = Directory::new();
    let taken = sockets.path().join("taken.sock");
    let _other = UnixListener::bind(&taken).unwrap();
    assert!(start(&taken).contains("another process listens there"));
    let file = sockets.path().join("file");
    std::fs::write(&file, "mine").unwrap();
    assert!(start(&file).contains("--listen-unix"));
    assert_eq!(std::fs::read(&file).unwrap(), b"mine");
    assert!(start(&sockets.path().join("nowhere/x.sock")).contains("its directory must exist"));
}

#[test]
fn page_may_read_answers_only_from_an_allowed_origin() {
    const PAGE: (&str, &str) = ("origin", "http://localhost:3000");
    const ASKED: [(&str, &str); 3] = [
        PAGE,
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "x-environment-key,content-type"),
    ];
    let allowed = "access-control-allow-origin";
    let (_directory, server) = serving(|_| {});
    let answer = get(server.data, FLAGS, &[KEY, PAGE]);
    assert!(answer.status == 200 && answer.header(allowed).is_none(), "{answer:?}");
    assert_eq!(call(server.data, "OPTIONS", FLAGS, &ASKED, None).status, 405);

    for origins in [["http://localhost:3000", "https://x.test"], ["https://y.test", "*"]] {
        let (_directory, server) =
            serving(|options| options.cors_origins = origins.iter().map(|origin| (*origin).to_owned()).collect());
        let answer = get(server.data, FLAGS, &[KEY, PAGE]);
        assert_eq!((answer.body.as_str(), answer.header(allowed)), (client_flags(1).as_str(), Some(PAGE.1)));
        assert_eq!(answer.header("vary"), Some("Origin"));
        assert!(answer.header("access-control-expose-headers").unwrap().contains("ETag"));
        // Pages can read refusals, too.
        assert_eq!(get(server.data, FLAGS, &[PAGE]).header(allowed), Some(PAGE.1));
        let answer = call(server.data, "OPTIONS", "/ofrep/v1/evaluate/flags", &ASKED, None);
        assert_eq!((answer.status, answer.header(allowed)), (204, Some(PAGE.1)));
        assert_eq!(answer.header("access-control-allow-headers"), Some(ASKED[2].1));
        assert!(answer.header("access-control-allow-methods").unwrap().contains("POST"));
        let other = get(server.data, FLAGS, &[KEY, ("origin", "https://evil.test")]);
        assert_eq!(other.header(allowed).is_some(), origins.contains(&"*"));
        assert!(get(server.data, FLAGS, &[KEY]).header(allowed).is_none(), "no browser");
    }
}
