//! Tests with many hostile clients at once: good requests are answered nevertheless, on new connections and on open
//! ones.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Instant;

use support::client::{Connection, request};
use support::environment::{CLIENT, CLIENT_KEY, client_flags, environment, written};
use support::flood::Flood;
use support::program::{Program, sidecar, sidecar_by};
use support::server::{Running, await_condition, serving, start};
use support::volume::Directory;

const FLAGS: &str = "/api/v1/flags/";
const IDENTITIES: &str = "/api/v1/identities/";

/// Beginnings of requests that never end.
const HALVES: [&[u8]; 3] = [
    b"",
    b"GET /api/v1/flags/ HTTP/1.1\r\nhost: localhost\r\n",
    b"POST /api/v1/identities/ HTTP/1.1\r\nhost: localhost\r\nx-environment-key: client-key\r\ncontent-length: 99\r\n\r\n{",
];

/// Opens a connection from a loopback address.
fn open_from(source: Ipv4Addr, address: SocketAddr) -> Connection {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((source, 0)).into()).unwrap();
    socket.connect(&address.into()).unwrap();
    Connection::over(TcpStream::from(socket))
}

fn is_good(connection: &mut Connection) -> bool {
    connection.request("GET", FLAGS, &CLIENT, None).is_some_and(|answer| answer.body == client_flags(1))
}

#[test]
fn data_port_flooded_with_half_open_requests_answers_every_good_one() {
    let (_directory, server) = serving();
    let mut kept: Vec<Connection> = (0..20).map(|_| Connection::open(server.data)).collect();
    assert!(kept.iter_mut().all(is_good));
    let body = vec![b' '; 100_000];
    let mut failures = 0;
    for count in [32, 512] {
        for half in HALVES {
            let mut flood = Flood::of(server.data, count, half);
            for _ in 0..20 {
                let mut new = Connection::open(server.data);
                failures += usize::from(!is_good(&mut new));
                let posted = [br#"{"identifier":"x""#.as_slice(), &body, b"}"].concat();
                let answer = new.request("POST", IDENTITIES, &CLIENT, Some(&posted));
                failures += usize::from(answer.is_none_or(|answer| answer.status != 200));
                failures += kept.iter_mut().map(is_good).filter(|good| !good).count();
                flood.add(server.data);
            }
            assert!(flood.open() <= 256, "{} of {count} are open", flood.open());
        }
    }
    assert_eq!(failures, 0);
}

/// Prometheus and the controller have other addresses than the client that floods the port. The startup probe may have the
/// same: it runs in the pod.
#[test]
fn admin_port_flooded_with_half_open_requests_answers_every_good_one() {
    let (_directory, server) = serving();
    let from = |source: [u8; 4]| open_from(source.into(), server.admin);
    let is_ready = |connection: &mut Connection| {
        connection.request("GET", "/startupz", &[], None).is_some_and(|answer| answer.status == 200)
    };
    // Prometheus keeps its connection idle between two requests.
    let mut prometheus = from([127, 0, 0, 2]);
    assert!(is_ready(&mut prometheus));
    let mut failures = 0;
    for count in [32, 512] {
        for half in HALVES {
            let mut flood = Flood::of(server.admin, count, half);
            for _ in 0..50 {
                failures += usize::from(!is_ready(&mut from([127, 0, 0, 3])));
                failures += usize::from(!is_ready(&mut Connection::open(server.admin)));
                flood.add(server.admin);
            }
            assert!(flood.open() <= 32, "{} of {count} are open", flood.open());
        }
    }
    failures += usize::from(!is_ready(&mut prometheus));
    assert_eq!(failures, 0);
}

#[test]
fn half_request_to_the_admin_port_is_closed_within_seconds() {
    let (_directory, server) = serving();
    let began = Instant::now();
    let mut flood = Flood::of(server.admin, 8, HALVES[1]);
    await_condition("the end of half requests", || flood.open() == 0);
    // The deadline of heads on this port is 2 s, and that of applications' requests 10 s.
    assert!(began.elapsed().as_secs() < 10, "{:?}", began.elapsed());
}

/// Serves an answer of some 200 kB to every client.
fn serving_large_answers() -> (Directory, Running) {
    let mut environment = environment("shop", CLIENT_KEY, 1);
    environment.features[0].default.value = format!("\"{}\"", "x".repeat(200_000));
    let directory = Directory::new();
    directory.volume("shop").publish_written(&remora_snapshot::write(&environment, 1_000_000).unwrap());
    let running = start(directory.path(), |_| {});
    (directory, running)
}

#[test]
fn data_port_flooded_by_clients_that_do_not_read_answers_every_good_request() {
    let (_directory, server) = serving_large_answers();
    let body = br#"{"identifier":"somebody-else"}"#;
    let requests = request("POST", IDENTITIES, &CLIENT, Some(body)).repeat(20);
    let mut kept = Connection::open(server.data);
    let mut failures = 0;
    let mut ask = |connection: &mut Connection| {
        let answer = connection.request("POST", IDENTITIES, &CLIENT, Some(body));
        failures += usize::from(answer.is_none_or(|answer| answer.status != 200 || answer.body.len() < 200_000));
    };
    ask(&mut kept);
    let mut flood = Flood::of(server.data, 512, &requests);
    for _ in 0..50 {
        ask(&mut kept);
        ask(&mut Connection::open(server.data));
        flood.add(server.data);
    }
    assert_eq!(failures, 0);
}

/// A process in the pod can connect from another loopback address each time.
#[test]
fn data_port_flooded_from_many_addresses_sends_every_answer_under_way() {
    const CONNECTIONS: u32 = 300;
    const ANSWERS: usize = 50;
    let (_directory, server) = serving_large_answers();
    let requests = request("GET", FLAGS, &CLIENT, None).repeat(ANSWERS);
    let mut kept: Vec<Connection> = (0..5).map(|_| Connection::open(server.data)).collect();
    for connection in &mut kept {
        connection.send(&requests).unwrap();
    }
    let mut flood = Vec::new();
    for number in 0..CONNECTIONS {
        let source = Ipv4Addr::from(u32::from(Ipv4Addr::new(127, 1, 0, 1)) + number);
        let mut connection = open_from(source, server.data);
        let answer = connection.request("GET", "/api/v1/flags/?feature=limit", &CLIENT, None);
        assert_eq!(answer.map(|answer| answer.status), Some(200), "{source}");
        // Its client keeps the connection, which is idle from now on.
        flood.push(connection);
    }
    for connection in &mut kept {
        let whole = (0..ANSWERS).filter_map(|_| connection.receive(false)).filter(|answer| answer.body.len() > 200_000);
        assert_eq!(whole.count(), ANSWERS);
    }
}

#[test]
fn data_port_flooded_with_unfinished_bodies_answers_every_large_body() {
    let (_directory, server) = serving();
    let mut body = br#"{"identifier":"x""#.to_vec();
    body.resize(1024 * 1024 - 1, b' ');
    body.push(b'}');
    let whole = request("POST", IDENTITIES, &CLIENT, Some(&body));
    let mut flood = Flood::of(server.data, 512, &whole[..whole.len() - 1]);
    (0..100).for_each(|_| flood.push());
    let mut kept = Connection::open(server.data);
    for _ in 0..10 {
        assert_eq!(kept.request("POST", IDENTITIES, &CLIENT, Some(&body)).map(|answer| answer.status), Some(200));
        let mut new = Connection::open(server.data);
        assert_eq!(new.request("POST", IDENTITIES, &CLIENT, Some(&body)).map(|answer| answer.status), Some(200));
        assert!(is_good(&mut new));
        flood.add(server.data);
        flood.push();
    }
}

/// More connections than the process may have file descriptors: some of them are evicted.
#[test]
fn request_is_answered_with_all_file_descriptors_in_use() {
    let directory = Directory::new();
    directory.volume("shop").publish_written(&written(1));
    let few = ["prlimit", "--nofile=48:48"];
    let program = Program::start(sidecar_by(&few, directory.path()));
    let mut flood = Flood::of(program.data, 200, HALVES[1]);
    for _ in 0..20 {
        assert!(is_good(&mut program.connect()));
        flood.add(program.data);
    }
    assert!(flood.open() < 48, "{}", flood.open());
    let log = program.stop();
    let complaints = log.iter().filter(|line| line.contains("cannot accept a connection")).count();
    assert_eq!(complaints, 1, "{log:#?}");
}

#[test]
fn program_with_half_open_connections_ends_in_time() {
    let directory = Directory::new();
    directory.volume("shop").publish_written(&written(1));
    for half in HALVES {
        let mut program = Program::start(sidecar(directory.path()));
        let mut flood = Flood::of(program.data, 300, half);
        assert!(is_good(&mut program.connect()));
        let ended = program.terminate();
        assert!(ended.success(), "{ended:?}");
        assert_eq!(flood.open(), 0);
    }
}

/// Pipelined requests whose answers no client fetches: the server does not read them either.
#[test]
fn requests_behind_an_unread_answer_stay_in_the_socket() {
    let (_directory, server) = serving();
    let many = request("GET", FLAGS, &CLIENT, None).repeat(100_000);
    let mut flood = Flood::of(server.data, 64, &many);
    assert!(is_good(&mut Connection::open(server.data)));
    await_condition("the last answer that is taken", || {
        let before = server.metric(r#"remora_sidecar_requests_total{route="flags",status="2xx"}"#);
        std::thread::sleep(std::time::Duration::from_millis(300));
        before == server.metric(r#"remora_sidecar_requests_total{route="flags",status="2xx"}"#)
    });
    let answered = server.metric(r#"remora_sidecar_requests_total{route="flags",status="2xx"}"#).unwrap();
    assert!(answered < 64.0 * 100_000.0, "{answered}");
    assert!(is_good(&mut Connection::open(server.data)));
    assert!(flood.open() <= 64);
}
