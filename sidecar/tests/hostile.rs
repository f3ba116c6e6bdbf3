//! Tests of hostile requests, one at a time: their answers, and that other clients notice nothing.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use support::client::{Connection, request};
use support::environment::{CLIENT, client_flags, written};
use support::program::{Program, sidecar};
use support::server::{assert_serves_first_revision, serving, start};
use support::volume::Directory;

const FLAGS: &str = "/api/v1/flags/";
const IDENTITIES: &str = "/api/v1/identities/";
const OFREP: &str = "/ofrep/v1/evaluate/flags";

/// Sends bytes as they are, and returns all bytes that arrive until the server closes the connection, or pauses after
/// its first bytes.
fn exchange(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let _ = stream.write_all(bytes);
    let mut answers = Vec::new();
    let mut portion = [0; 4096];
    let began = Instant::now();
    loop {
        match stream.read(&mut portion) {
            Ok(length @ 1..) => answers.extend_from_slice(&portion[..length]),
            // A busy machine may take a while to answer, and the server closes a silent connection itself.
            Err(error) if error.kind() == ErrorKind::WouldBlock && answers.is_empty() => {
                assert!(began.elapsed() < Duration::from_secs(30), "no answer, and the connection is open");
            }
            Ok(_) | Err(_) => break,
        }
    }
    String::from_utf8_lossy(&answers).into_owned()
}

fn statuses(answers: &str) -> Vec<&str> {
    answers.match_indices("HTTP/1.1 ").map(|(at, _)| &answers[at + 9..at + 12]).collect()
}

/// A page whose name resolves to 127.0.0.1 sends that name as the host.
#[test]
fn request_for_another_host_is_refused_with_the_remedy() {
    let (_directory, server) = serving();
    let ask = |line: &str, headers: &str| exchange(server.data, format!("{line}\r\n{headers}\r\n").as_bytes());
    let key = "x-environment-key: client-key\r\nconnection: close\r\n";
    for host in ["evil.test", "evil.test:4777", "127.0.0.1.evil.test", "10.0.0.1:4777", ""] {
        for path in
            [FLAGS, "/api/v1/identities/?identifier=x", "/api/v1/environment-document/", "/ofrep/v1/stream", "/health"]
        {
            let answer = ask(&format!("GET {path} HTTP/1.1"), &format!("host: {host}\r\n{key}"));
            assert_eq!(statuses(&answer), ["421"], "{host} {path}: {answer}");
            assert!(answer.contains("127.0.0.1 or localhost"), "{answer}");
        }
        let body = format!("host: {host}\r\n{key}content-length: 2\r\n\r\n{{}}");
        assert_eq!(statuses(&ask(&format!("POST {OFREP} HTTP/1.1"), &body)), ["421"], "{host}");
        let absolute = ask(&format!("GET http://{host}{FLAGS} HTTP/1.1"), &format!("host: localhost\r\n{key}"));
        assert!(!absolute.contains("\"feature\""), "{host}: {absolute}");
    }
    let twice = ask(&format!("GET {FLAGS} HTTP/1.1"), &format!("host: localhost\r\nhost: evil.test\r\n{key}"));
    assert_eq!(statuses(&twice), ["421"], "{twice}");
    for host in ["localhost", "LOCALHOST:1", "app.localhost", "127.0.0.1:4777", "127.8.8.8", "[::1]:4777"] {
        let answer = ask(&format!("GET {FLAGS} HTTP/1.1"), &format!("host: {host}\r\n{key}"));
        assert_eq!(statuses(&answer), ["200"], "{host}: {answer}");
        let absolute = ask(&format!("GET http://{host}{FLAGS} HTTP/1.1"), &format!("host: {host}\r\n{key}"));
        assert_eq!(statuses(&absolute), ["200"], "{host}: {absolute}");
    }
    // Browsers always send a host. HTTP/1.0 clients need not.
    let old = exchange(server.data, format!("GET {FLAGS} HTTP/1.0\r\n{key}\r\n").as_bytes());
    assert!(old.starts_with("HTTP/1.0 200") || old.starts_with("HTTP/1.1 200"), "{old}");
}

/// The admin port on a loopback address has names of flags, and a page can reach it. In a pod, it has the address of the
/// pod, which probes name.
#[test]
fn request_for_another_host_is_refused_by_local_admin_port() {
    let directory = Directory::new();
    directory.volume("shop").publish_written(&written(1));
    for (address, refused) in [("127.0.0.1:0", true), ("0.0.0.0:0", false)] {
        let server = start(directory.path(), |options| options.admin = address.parse().unwrap());
        let reached = SocketAddr::from(([127, 0, 0, 1], server.admin.port()));
        let get = |host: &str, path: &str| {
            let answer = exchange(
                reached,
                format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n").as_bytes(),
            );
            (statuses(&answer).join(" "), answer)
        };
        for path in ["/metrics", "/revisions", "/uses/shop", "/healthz"] {
            for host in ["evil.test", "10.0.0.1:4778", ""] {
                let (status, answer) = get(host, path);
                assert_eq!(status, if refused { "421" } else { "200" }, "{address} {host} {path}: {answer}");
                assert!(!refused || answer.contains("127.0.0.1 or localhost"), "{answer}");
            }
            assert_eq!(get("localhost:4778", path).0, "200", "{address} {path}");
        }
    }
}

/// The end of a request must not depend on the program that reads it.
#[test]
fn request_with_ambiguous_framing_is_refused_or_ends_its_connection() {
    let (_directory, server) = serving();
    let smuggled = format!("GET {FLAGS} HTTP/1.1\r\nhost: localhost\r\nx-environment-key: client-key\r\n\r\n");
    let post = format!("POST {IDENTITIES} HTTP/1.1\r\nhost: localhost\r\nx-environment-key: client-key\r\n");
    for (head, refused) in [
        ("content-length: 2\r\ncontent-length: 3\r\n\r\n{}", true),
        ("content-length: +2\r\n\r\n{}", true),
        ("content-length: 2, 2\r\n\r\n{}", true),
        ("content-length: 0x2\r\n\r\n{}", true),
        ("transfer-encoding: xchunked\r\n\r\n{}", true),
        ("transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n", true),
        ("transfer-encoding : chunked\r\n\r\n0\r\n\r\n", true),
        ("x: a\r\n transfer-encoding: chunked\r\n\r\n0\r\n\r\n", true),
        ("transfer-encoding: chunked\r\n\r\n-1\r\n\r\n", true),
        ("transfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\n\r\n", true),
        ("transfer-encoding: chunked\r\n\r\n2\r\n{}0\r\n\r\n", true),
        // By its length, the body would end before the next request. By its chunks, it contains that request.
        ("content-length: 4\r\ntransfer-encoding: chunked\r\n\r\n5f\r\n", false),
    ] {
        let answers = exchange(server.data, [post.as_str(), head, &smuggled].concat().as_bytes());
        let answered = statuses(&answers);
        assert!(!answers.contains("\"feature\""), "{head}: {answers}");
        assert!(!refused || answered.is_empty() || answered == ["400"], "{head}: {answers}");
    }
    assert_serves_first_revision(server.data);
}

#[test]
fn head_that_is_not_http_is_refused() {
    let (_directory, server) = serving();
    let long_path = format!("GET /{} HTTP/1.1\r\nhost: localhost\r\n\r\n", "x".repeat(20_000));
    let endless_line = "G".repeat(40_000);
    for (head, expected) in [
        (long_path.as_str(), &["431", "414"][..]),
        (endless_line.as_str(), &["400", "431", "405"]),
        ("GET /api/v1/flags/ HTTP/1.1\r\nhost: localhost\r\nx: a\rb\r\n\r\n", &["400"]),
        ("GET /api/v1/flags/ HTTP/1.1\r\nhost: localhost\r\nx: a\0b\r\n\r\n", &["400"]),
        ("GET /api/v1/flags/ HTTP/1.1\r\nhost: localhost\r\nx-environment-key: a\r\n b\r\n\r\n", &["400"]),
        ("GET /api/v1/flags/ HTTP/2.0\r\nhost: localhost\r\n\r\n", &["400", "505"]),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &["400", "505"]),
        ("GET  /api/v1/flags/ HTTP/1.1\r\nhost: localhost\r\n\r\n", &["400"]),
        ("\u{16}\u{3}\u{1}\u{2}\0\u{1}\0", &["400"]),
        ("\0\0\0\0\r\n\r\n", &["400"]),
    ] {
        let answers = exchange(server.data, head.as_bytes());
        let answered = statuses(&answers);
        assert!(
            answered.len() <= 1 && answered.iter().all(|status| expected.contains(status)),
            "{head:.60}: {answers}"
        );
    }
    assert_serves_first_revision(server.data);
}

#[test]
fn request_to_upgrade_or_to_tunnel_is_answered_as_http() {
    let (_directory, server) = serving();
    for (line, headers, status) in [
        ("GET /api/v1/flags/ HTTP/1.1", "connection: upgrade\r\nupgrade: websocket\r\n", "200"),
        ("GET /api/v1/flags/ HTTP/1.1", "connection: upgrade, http2-settings\r\nupgrade: h2c\r\n", "200"),
        ("CONNECT localhost:22 HTTP/1.1", "", "404"),
        ("TRACE /api/v1/flags/ HTTP/1.1", "", "405"),
    ] {
        let head = format!("{line}\r\nhost: localhost\r\nx-environment-key: client-key\r\n{headers}\r\n");
        let answers = exchange(server.data, head.as_bytes());
        assert_eq!(statuses(&answers), [status], "{line}: {answers}");
        assert!(!answers.to_lowercase().contains("upgrade:"), "{answers}");
    }
}

#[test]
fn chunked_body_of_any_chunks_ends_at_the_size_limit() {
    let (_directory, server) = serving();
    let chunked = [CLIENT[0], ("transfer-encoding", "chunked")];
    let head = request("POST", IDENTITIES, &chunked, None);
    // One-byte chunks, as many as a body may have.
    let mut tiny = head.clone();
    for byte in br#"{"identifier":"x"}"# {
        tiny.extend(format!("1;x=y\r\n{}\r\n", char::from(*byte)).bytes());
    }
    tiny.extend(b"0\r\nx-trailer: y\r\n\r\n");
    let mut connection = Connection::open(server.data);
    connection.send(&tiny).unwrap();
    assert_eq!(connection.receive(false).map(|answer| answer.status), Some(200));

    let endless = |part: &[u8]| {
        let mut bytes = [head.as_slice(), b"2\r\n{}\r\n0\r\n"].concat();
        bytes.extend(part.repeat(1_000_000 / part.len()));
        let answers = exchange(server.data, &bytes);
        assert!(statuses(&answers).iter().all(|status| *status == "400"), "{answers}");
    };
    endless(b"x-trailer: y\r\n");
    endless(b"x");
    // Chunk extensions are discarded, but their size must be limited, too.
    let extension = [head.as_slice(), b"2;", &[b'x'; 200_000]].concat();
    assert!(statuses(&exchange(server.data, &extension)).iter().all(|status| *status == "400"));
    assert_serves_first_revision(server.data);
}

#[test]
fn continue_is_sent_only_where_a_body_is_read() {
    let (_directory, server) = serving();
    let expecting = [CLIENT[0], ("expect", "100-continue"), ("content-length", "18")];
    let mut connection = Connection::open(server.data);
    connection.send(&request("POST", IDENTITIES, &expecting, None)).unwrap();
    assert_eq!(connection.receive(true).map(|answer| answer.status), Some(100));
    connection.send(br#"{"identifier":"x"}"#).unwrap();
    assert_eq!(connection.receive(false).map(|answer| answer.status), Some(200));
    for (method, path, status) in [("GET", FLAGS, 200), ("POST", FLAGS, 405), ("POST", "/nothing", 404)] {
        let mut connection = Connection::open(server.data);
        connection.send(&request(method, path, &expecting, None)).unwrap();
        assert_eq!(connection.receive(false).map(|answer| answer.status), Some(status), "{method} {path}");
    }
}

/// Row 48 of the fault matrix: each body is refused at once, and the memory of the program does not grow.
#[test]
fn malformed_evaluation_body_is_refused_in_bounded_memory() {
    let directory = Directory::new();
    directory.volume("shop").publish_written(&written(1));
    let program = Program::start(sidecar(directory.path()));
    let mut good = program.connect();
    let mut is_good = move || good.request("GET", FLAGS, &CLIENT, None).unwrap().body == client_flags(1);
    assert!(is_good());
    let deep = |open: &str, close: &str| format!("{}{}", open.repeat(100_000), close.repeat(100_000));
    let value = |value: &str| {
        [
            format!(r#"{{"identifier":"x","traits":[{{"trait_key":"plan","trait_value":{value}}}]}}"#),
            format!(r#"{{"context":{{"targetingKey":"x","plan":{value}}}}}"#),
        ]
    };
    let invalid =
        [b"{\"identifier\":\"\xff\xfe\"}".to_vec(), b"{\"context\":{\"targetingKey\":\"\xc3\x28\"}}".to_vec()];
    let as_bytes = |[one, other]: [String; 2]| [one.into_bytes(), other.into_bytes()];
    let before = program.memory("RssAnon");
    for (bodies, status) in [
        (as_bytes(value(&deep("[", "]"))), 400),
        (as_bytes(value(&deep("{\"a\":", "}"))), 400),
        (invalid, 400),
        (as_bytes(value("NaN")), 400),
        (as_bytes(value("-Infinity")), 400),
        (as_bytes(value("\"\\ud800\"")), 400),
        (as_bytes(value("1e308")), 200),
        (as_bytes(value("1e309")), 400),
        (as_bytes(value("-1")), 200),
        (as_bytes(value("-99999999999999999999999999")), 200),
    ] {
        let [flagsmith, ofrep] = bodies;
        for (path, body) in [(IDENTITIES, flagsmith), (OFREP, ofrep)] {
            let answer = program.connect().request("POST", path, &CLIENT, Some(&body)).unwrap();
            let body = String::from_utf8_lossy(&body);
            assert_eq!(answer.status, status, "{path} {body:.80}: {}", answer.body);
            assert!(is_good());
        }
    }
    // A hundred megabytes, with a declared length and without.
    let declared = [CLIENT[0], ("content-length", "104857600")];
    let answer = program.connect().request("POST", IDENTITIES, &declared, None).unwrap();
    assert_eq!(answer.status, 413);
    let mut undeclared = program.connect();
    let chunked = [CLIENT[0], ("transfer-encoding", "chunked")];
    undeclared.send(&request("POST", IDENTITIES, &chunked, None)).unwrap();
    let chunk = [b"100000\r\n".as_slice(), &vec![b' '; 1 << 20], b"\r\n"].concat();
    let chunks = (0..100).take_while(|_| undeclared.send(&chunk).is_ok()).count();
    assert!(chunks < 100, "the sidecar has read the whole body");
    assert!(is_good());
    let after = program.memory("RssAnon");
    assert!(after < before + (4 << 20), "{before} bytes before, {after} after");
}
