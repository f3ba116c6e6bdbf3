//! Tests of event streams: the events that clients receive, and the cost of many clients for others.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use remora_snapshot::model::{Compressed, Environment};
use remora_snapshot::{Written, write};
use serde_json::Value;
use support::client::{Connection, call, get, post, request};
use support::environment::{CLIENT, CLIENT_KEY, SERVER_KEY, client_flags, environment, written};
use support::server::{Running, await_condition, serving_volume, start};
use support::volume::Directory;

const OFREP: &str = "/ofrep/v1/stream?environment=shop";
const FLAGSMITH: &str = "/sse/environments/client-key/stream";

/// A client of an event stream.
struct Listener {
    stream: BufReader<TcpStream>,
    status: u16,
    head: String,
}

impl Listener {
    fn open(address: SocketAddr, path: &str, headers: &[(&str, &str)]) -> Listener {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let mut stream = BufReader::new(stream);
        stream.get_mut().write_all(&request("GET", path, headers, None)).unwrap();
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(stream.read_line(&mut head).unwrap() > 0, "{head}");
        }
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Listener { stream, status, head: head.to_lowercase() }
    }

    /// Reads the next chunk. `None` at the proper end of the stream.
    fn chunk(&mut self) -> Option<String> {
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        let length = usize::from_str_radix(line.trim(), 16).unwrap_or_else(|_| panic!("no chunk: {line:?}"));
        let mut chunk = vec![0; length + 2];
        self.stream.read_exact(&mut chunk).unwrap();
        chunk.truncate(length);
        (length > 0).then(|| String::from_utf8(chunk).unwrap())
    }

    /// Reads the next event and returns its lines by field. Skips comments.
    fn event(&mut self) -> Vec<(String, String)> {
        loop {
            let chunk = self.chunk().expect("an event");
            if chunk != ":\n\n" {
                let chunk = chunk.strip_suffix("\n\n").unwrap();
                let fields = chunk.lines().map(|line| line.split_once(": ").unwrap());
                return fields.map(|(field, value)| (field.to_owned(), value.to_owned())).collect();
            }
        }
    }
}

fn field<'a>(event: &'a [(String, String)], name: &str) -> Option<&'a str> {
    event.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str())
}

fn data(event: &[(String, String)]) -> Value {
    serde_json::from_str(field(event, "data").unwrap()).unwrap()
}

fn open_streams(server: &Running) -> f64 {
    server.metric("remora_sidecar_streams").unwrap()
}

#[test]
fn flagsmith_stream_sends_an_event_for_every_revision() {
    let (_directory, mut volume, server) = serving_volume();
    let mut listener = Listener::open(server.data, FLAGSMITH, &[("accept", "text/event-stream")]);
    assert_eq!(listener.status, 200);
    assert!(listener.head.contains("content-type: text/event-stream\r\n"), "{}", listener.head);
    assert!(listener.head.contains("cache-control: no-cache\r\n"), "{}", listener.head);
    assert_eq!(listener.chunk().as_deref(), Some(":\n\n"));
    let mut before = 0.0;
    for revision in 1..5 {
        // The client also receives an event for the current revision, because it may have missed that one.
        volume.publish_written(&written(revision));
        let event = listener.event();
        assert_eq!(field(&event, "event"), Some("environment_updated"));
        let updated_at = data(&event)["updated_at"].as_f64().unwrap();
        assert!(updated_at > before && updated_at > 1.7e9 && updated_at < 1e11, "{updated_at} after {before}");
        before = updated_at;
        // The flags have changed when the event arrives.
        assert_eq!(get(server.data, "/api/v1/flags/", &CLIENT).body, client_flags(revision));
    }
}

#[test]
fn ofrep_answer_names_the_stream_whose_event_asks_to_evaluate_again() {
    let (_directory, mut volume, server) = serving_volume();
    let bulk = post(server.data, "/ofrep/v1/evaluate/flags", &[], "{}");
    let bulk: Value = serde_json::from_str(&bulk.body).unwrap();
    let stream = &bulk["eventStreams"][0];
    assert_eq!((&stream["type"], &stream["inactivityDelaySec"]), (&"sse".into(), &120.into()));
    let mut listener = Listener::open(server.data, stream["endpoint"]["requestUri"].as_str().unwrap(), &[]);
    volume.publish_written(&written(2));
    let event = listener.event();
    assert_eq!((field(&event, "event"), &data(&event)["type"]), (None, &"refetchEvaluation".into()));
    assert!(data(&event)["lastModified"].is_u64());
    let bulk = post(server.data, "/ofrep/v1/evaluate/flags?flagConfigEtag=x", &[], "{}");
    let bulk: Value = serde_json::from_str(&bulk.body).unwrap();
    let version = bulk["metadata"]["version"].as_str().unwrap();
    assert_eq!(data(&event)["etag"], format!("\"{version}-{}\"", field(&event, "id").unwrap()));
}

#[test]
fn reconnected_client_gets_the_missed_event_at_once() {
    let (_directory, mut volume, server) = serving_volume();
    let mut listener = Listener::open(server.data, OFREP, &[]);
    volume.publish_written(&written(2));
    let seen = listener.event();
    let seen = field(&seen, "id").unwrap().to_owned();
    drop(listener);
    volume.publish_written(&written(3));
    await_condition("revision 3", || get(server.data, "/api/v1/flags/", &CLIENT).body == client_flags(3));
    for path in [OFREP, FLAGSMITH] {
        let mut again = Listener::open(server.data, path, &[("last-event-id", &seen)]);
        let missed = again.event();
        assert_ne!(field(&missed, "id"), Some(seen.as_str()));
        // A client that has missed nothing receives the next event first.
        let mut current = Listener::open(server.data, path, &[("last-event-id", field(&missed, "id").unwrap())]);
        assert_eq!(current.chunk().as_deref(), Some(":\n\n"));
        let next = if path == OFREP { 4 } else { 5 };
        volume.publish_written(&written(next));
        assert_ne!(field(&current.event(), "id"), field(&missed, "id"));
    }
}

/// The environment with a document whose last change was at this second, in one block of gzip that is not compressed.
fn with_document(revision: u32, updated_at: u32) -> Written {
    let mut gzip = vec![0x1f, 0x8b, 8, 0];
    gzip.extend(updated_at.to_le_bytes());
    gzip.extend([2, 255, 1, 2, 0, !2, !0]);
    gzip.extend(b"{}");
    gzip.extend([0; 4]);
    gzip.extend(2_u32.to_le_bytes());
    let document = Some(Compressed { gzip, length: 2 });
    write(&Environment { document, ..environment("shop", CLIENT_KEY, revision) }, 1_000_000).unwrap()
}

#[test]
fn flagsmith_event_is_later_than_every_document_that_was_served() {
    // The documents are of a server whose clock is years ahead of the clock of this machine.
    const AHEAD: u32 = 4_000_000_000;
    let directory = Directory::new();
    let mut volume = directory.volume("shop");
    volume.publish_written(&with_document(0, AHEAD));
    let mut newest = f64::from(AHEAD);
    for restart in 0..2 {
        let server = start(directory.path(), |_| {});
        let mut listener = Listener::open(server.data, FLAGSMITH, &[]);
        // The event for the served revision is first. The same time, an earlier one, and none come after it.
        for (revision, document) in [None, Some(AHEAD), Some(AHEAD - 9), None].into_iter().enumerate() {
            if revision > 0 {
                let revision = restart * 10 + revision as u32;
                volume.publish_written(&document.map_or_else(|| written(revision), |at| with_document(revision, at)));
            }
            let updated_at = data(&listener.event())["updated_at"].as_f64().unwrap();
            assert!(updated_at > newest && updated_at < f64::from(AHEAD + 1), "{updated_at} after {newest}");
            newest = updated_at;
        }
        // A process that starts again knows the served document only.
        volume.publish_written(&with_document(restart + 100, AHEAD));
        newest = f64::from(AHEAD);
    }
}

#[test]
fn stream_without_access_is_refused() {
    let (directory, _volume, server) = serving_volume();
    let status =
        |server: &Running, path: &str, headers: &[(&str, &str)]| Listener::open(server.data, path, headers).status;
    assert_eq!(status(&server, "/sse/environments/nope/stream", &[]), 401);
    assert_eq!(status(&server, &format!("/sse/environments/{SERVER_KEY}/stream"), &[]), 401);
    assert_eq!(status(&server, "/ofrep/v1/stream?environment=nope", &[]), 404);
    assert_eq!(status(&server, "/ofrep/v1/stream", &[]), 200);
    for path in [OFREP, FLAGSMITH] {
        let answer = call(server.data, "POST", path, &[], Some(""));
        assert_eq!((answer.status, answer.header("allow")), (405, Some("GET")));
    }

    let other = remora_snapshot::write(&environment("other", "client-other", 5), 1_000_000).unwrap();
    let mut second = directory.volume("other");
    second.publish_written(&other);
    let several = start(directory.path(), |_| {});
    assert_eq!(status(&several, "/ofrep/v1/stream", &[]), 401);
    let mut shop = Listener::open(several.data, OFREP, &[]);
    let mut other = Listener::open(several.data, "/ofrep/v1/stream", &[("x-api-key", "client-other")]);
    second.publish_written(&remora_snapshot::write(&environment("other", "client-other", 6), 1_000_000).unwrap());
    assert_eq!(data(&other.event())["type"], "refetchEvaluation");
    // A change of one environment causes no event for another.
    assert_eq!(shop.chunk().as_deref(), Some(":\n\n"));
    assert_eq!(shop.chunk().as_deref(), Some(":\n\n"), "a heartbeat");
}

#[test]
fn stream_beyond_64_is_refused_and_streams_take_no_connections() {
    let (_directory, mut volume, server) = serving_volume();
    let mut listeners: Vec<Listener> = (0..64).map(|_| Listener::open(server.data, OFREP, &[])).collect();
    assert_eq!(open_streams(&server), 64.0);
    let refused = Listener::open(server.data, FLAGSMITH, &[]);
    assert!(refused.status == 503 && refused.head.contains("retry-after: "), "{}", refused.head);
    drop(refused);
    // All connections are still available, and no stream is evicted for them.
    let mut others: Vec<Connection> = (0..256).map(|_| Connection::open(server.data)).collect();
    for other in &mut others {
        assert_eq!(other.request("GET", "/api/v1/flags/", &CLIENT, None).unwrap().status, 200);
    }
    volume.publish_written(&written(2));
    for listener in &mut listeners {
        assert_eq!(data(&listener.event())["type"], "refetchEvaluation");
    }
    drop(others);
    listeners.truncate(3);
    await_condition("room for listeners", || open_streams(&server) == 3.0);
    assert_eq!(Listener::open(server.data, FLAGSMITH, &[]).status, 200);
}

#[test]
fn streams_end_with_their_last_chunk_at_shutdown() {
    let (_directory, _volume, server) = serving_volume();
    let mut listeners: Vec<Listener> =
        [OFREP, FLAGSMITH].iter().map(|path| Listener::open(server.data, path, &[])).collect();
    server.stop();
    for listener in &mut listeners {
        assert_eq!(listener.chunk().as_deref(), Some(":\n\n"));
        while listener.chunk().is_some() {}
    }
}
