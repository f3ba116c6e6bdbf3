//! Tests of limits: the effect of bad clients on good ones, and how the server starts and stops.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader};
use std::os::unix::ffi::OsStrExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use support::client::{Connection, get, post, request};
use support::environment::{CLIENT, client_flags, written};
use support::program::sidecar;
use support::server::{assert_serves_first_revision, await_condition, serving, start};
use support::volume::Directory;

const IDENTITIES: &str = "/api/v1/identities/";

/// Longest time of an end. A server that waits for its clients would never end; a busy machine takes a second more.
const SOON: Duration = Duration::from_secs(10);

#[test]
fn connection_answers_pipelined_requests_in_order() {
    let (_directory, server) = serving();
    let mut connection = Connection::open(server.data);
    for _ in 0..100 {
        let answer = connection.request("GET", "/api/v1/flags/", &CLIENT, None).unwrap();
        assert_eq!(answer.body, client_flags(1));
        let answer = connection.request("POST", IDENTITIES, &CLIENT, Some(b"{\"identifier\":\"x\"}")).unwrap();
        assert_eq!(answer.status, 200);
    }
    let mut pipeline = Vec::new();
    for _ in 0..50 {
        pipeline.extend(request("GET", "/api/v1/flags/", &CLIENT, None));
        pipeline.extend(request("POST", IDENTITIES, &CLIENT, Some(b"{\"identifier\":\"x\"}")));
    }
    connection.send(&pipeline).unwrap();
    for _ in 0..50 {
        assert_eq!(connection.receive(false).unwrap().body, client_flags(1));
        assert!(connection.receive(false).unwrap().body.starts_with("{\"identifier\":\"x\""));
    }
}

#[test]
fn body_beyond_1_mib_is_refused() {
    let (_directory, server) = serving();
    // A body of the largest size: in portions, with a declared length and without.
    let mut body = b"{\"identifier\":\"x\"".to_vec();
    body.resize(1024 * 1024 - 1, b' ');
    body.push(b'}');
    let mut connection = Connection::open(server.data);
    assert_eq!(connection.request("POST", IDENTITIES, &CLIENT, Some(&body)).unwrap().status, 200);
    let chunked = [CLIENT[0], ("transfer-encoding", "chunked")];
    let mut portions = request("POST", IDENTITIES, &chunked, None);
    for portion in body.chunks(70_000) {
        portions.extend(format!("{:x}\r\n", portion.len()).bytes());
        portions.extend_from_slice(portion);
        portions.extend(b"\r\n");
    }
    let end = portions.len();
    portions.extend(b"0\r\n\r\n");
    connection.send(&portions).unwrap();
    assert_eq!(connection.receive(false).unwrap().status, 200);

    // One byte more.
    portions.truncate(end);
    portions.extend(b"1\r\n \r\n0\r\n\r\n");
    connection.send(&portions).unwrap();
    assert_eq!(connection.receive(false).unwrap().status, 413);
    let declared = [CLIENT[0], ("content-length", "1048577"), ("expect", "100-continue")];
    let mut connection = Connection::open(server.data);
    assert_eq!(connection.request("POST", IDENTITIES, &declared, None).unwrap().status, 413);
    let huge = [CLIENT[0], ("content-length", "9999999999999")];
    let mut connection = Connection::open(server.data);
    assert_eq!(connection.request("POST", IDENTITIES, &huge, None).unwrap().status, 413);
    assert_serves_first_revision(server.data);
}

#[test]
fn head_beyond_its_limits_is_refused() {
    let (_directory, server) = serving();
    let long = "x".repeat(20_000);
    let mut connection = Connection::open(server.data);
    let answer = connection.request("GET", "/api/v1/flags/", &[CLIENT[0], ("x-long", &long)], None).unwrap();
    assert_eq!(answer.status, 431);
    let names: Vec<String> = (0..200).map(|number| format!("x-{number}")).collect();
    let many: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "y")).collect();
    let mut connection = Connection::open(server.data);
    assert_eq!(connection.request("GET", "/api/v1/flags/", &many, None).unwrap().status, 431);
    assert_serves_first_revision(server.data);
}

#[test]
fn body_nested_deeper_than_64_is_refused() {
    let (_directory, server) = serving();
    let nested =
        |depth: usize| format!("{}{}", "[{\"a\":".repeat(depth / 2), "}]".repeat(depth / 2)).replace(":}", ":0}");
    // A well-behaved client keeps its connection all the time.
    let mut good = Connection::open(server.data);
    let mut bad = Connection::open(server.data);
    for (path, head, tail, refused) in [
        (IDENTITIES, "{\"identifier\":\"x\",\"more\":", "}", 400),
        ("/api/v1/identities/assignment/", "{\"identifier\":\"x\",\"more\":", "}", 400),
        ("/ofrep/v1/evaluate/flags", "{\"context\":{\"targetingKey\":\"x\",\"more\":", "}}", 400),
        ("/ofrep/v1/evaluate/flags/banner", "{\"context\":{\"targetingKey\":\"x\",\"more\":", "}}", 400),
        ("/api/v1/analytics/flags/", "{\"banner\":", "}", 400),
    ] {
        for (depth, status) in [(64, 200), (66, refused), (1_000_000, refused)] {
            let body = [head, &nested(depth), tail].concat();
            let body = &body.as_bytes()[..body.len().min(1024 * 1024)];
            let answer = bad.request("POST", path, &CLIENT, Some(body)).unwrap();
            assert_eq!(answer.status, status, "{path} {depth}: {}", answer.body);
            let names_depth = answer.body.contains("nested deeper than 64 lists and objects");
            assert_eq!(names_depth, status != 200, "{path} {depth}: {}", answer.body);
            let answer = good.request("GET", "/api/v1/flags/", &CLIENT, None).unwrap();
            assert_eq!(answer.body, client_flags(1));
        }
    }
}

#[test]
fn deep_or_long_body_leaves_the_server_responsive() {
    let (_directory, server) = serving();
    let deep = format!("{{\"identifier\":\"x\",\"more\":{}{}}}", "[".repeat(500_000), "]".repeat(500_000));
    assert_eq!(post(server.data, IDENTITIES, &CLIENT, &deep).status, 400);
    assert_eq!(post(server.data, "/ofrep/v1/evaluate/flags", &[], &deep).status, 400);
    let digits = format!("{{\"traits\":[{{\"trait_key\":\"a\",\"trait_value\":{}}}]}}", "9".repeat(900_000));
    assert_eq!(post(server.data, IDENTITIES, &CLIENT, &digits).status, 400);
    let traits: Vec<String> = (0..20_000).map(|number| format!("{{\"trait_key\":\"k{number}\"}}")).collect();
    let many = format!("{{\"identifier\":\"x\",\"traits\":[{}]}}", traits.join(","));
    assert_eq!(post(server.data, IDENTITIES, &CLIENT, &many).status, 200);
    assert_serves_first_revision(server.data);
}

#[test]
fn connection_beyond_the_limit_evicts_the_longest_idle_one() {
    let (_directory, server) = serving();
    // Idle connections are evicted, the longest idle first.
    let ask = |connection: &mut Connection| connection.request("GET", "/api/v1/flags/", &CLIENT, None).is_some();
    let mut idle: Vec<Connection> = (0..256).map(|_| Connection::open(server.data)).collect();
    assert!(idle.iter_mut().all(ask));
    assert!((0..10).all(|_| get(server.data, "/api/v1/flags/", &CLIENT).status == 200));
    assert!(!ask(&mut idle.remove(0)), "the longest idle one");
    assert!(idle.iter_mut().skip(20).all(ask));
    drop(idle);
    assert_serves_first_revision(server.data);
}

#[test]
fn slow_client_delays_no_other_and_is_closed() {
    let (_directory, server) = serving();
    let mut slow = Connection::open(server.data);
    let began = Instant::now();
    slow.send(b"GET /api/v1/flags/ HTT").unwrap();
    let mut drip = Connection::open(server.data);
    drip.send(&request("POST", IDENTITIES, &[CLIENT[0], ("content-length", "100")], None)).unwrap();
    assert_serves_first_revision(server.data);
    assert!(slow.receive(false).is_none(), "closed");
    assert!(drip.send(b" ").is_err() || drip.receive(false).is_none(), "closed");
    let waited = began.elapsed();
    assert!(waited > Duration::from_secs(9) && waited < Duration::from_secs(28), "{waited:?}");
    assert_serves_first_revision(server.data);
}

/// Ends a server whose client has sent half of its request. Returns false if this took so long that the server gave up
/// the client, as it should.
fn stop_loses_no_answer() -> bool {
    let (_directory, server) = serving();
    let mut idle = Connection::open(server.data);
    idle.request("GET", "/api/v1/flags/", &CLIENT, None).unwrap();
    let mut busy = Connection::open(server.data);
    let body = b"{\"identifier\":\"x\"}";
    let expecting = [CLIENT[0], ("expect", "100-continue"), ("content-length", "18")];
    busy.send(&request("POST", IDENTITIES, &expecting, None)).unwrap();
    assert_eq!(busy.receive(true).map(|answer| answer.status), Some(100), "the server has read the head");
    let data = server.data;
    let began = Instant::now();
    let ending = std::thread::spawn(move || server.stop());
    await_condition("no new connections", || std::net::TcpStream::connect(data).is_err());
    let sent = busy.send(body);
    let answer = sent.ok().and_then(|()| busy.receive(false));
    let was_slow = began.elapsed() >= Duration::from_millis(800);
    assert!(ending.join().unwrap() < SOON);
    assert!(idle.receive(false).is_none());
    match answer {
        Some(answer) => {
            assert_eq!((answer.status, answer.header("connection")), (200, Some("close")));
            true
        }
        None => {
            assert!(was_slow, "the answer is lost");
            false
        }
    }
}

#[test]
fn shutdown_is_quick_and_loses_no_answer() {
    assert!((0..10).any(|_| stop_loses_no_answer()), "the machine is too slow for this test");
}

#[test]
fn shutdown_with_an_unfinished_request_is_quick() {
    let (_directory, server) = serving();
    let mut stuck = Connection::open(server.data);
    stuck.send(b"GET /api/v1/flags/ HTTP/1.1\r\n").unwrap();
    std::thread::sleep(Duration::from_millis(50));
    assert!(server.stop() < SOON);
}

#[test]
fn version_of_the_program_has_its_name() {
    let output = Command::new(env!("CARGO_BIN_EXE_remora-sidecar")).arg("--version").output().unwrap();
    let expected = concat!("remora-sidecar ", env!("CARGO_PKG_VERSION"), "\n");
    assert_eq!((output.status.success(), String::from_utf8(output.stdout).unwrap().as_str()), (true, expected));
}

#[test]
fn startup_waits_for_data_up_to_its_timeout() {
    let directory = Directory::new();
    let mut volume = directory.volume("shop");
    let waiting = start(directory.path(), |options| options.startup_timeout = Duration::from_secs(600));
    assert_eq!(get(waiting.admin, "/healthz", &[]).status, 200);
    assert_eq!(get(waiting.admin, "/startupz", &[]).status, 503);
    let server = start(directory.path(), |options| options.startup_timeout = Duration::from_millis(300));
    await_condition("the startup timeout", || get(server.admin, "/startupz", &[]).status == 200);
    assert_eq!(get(server.admin, "/readyz", &[]).status, 503);
    volume.publish_written(&written(1));
    await_condition("ready", || get(server.admin, "/readyz", &[]).status == 200);
    assert_eq!(get(server.admin, "/nothing", &[]).status, 404);
    assert_eq!(post(server.admin, "/healthz", &[], "").status, 405);
}

#[test]
fn program_with_invalid_arguments_exits_with_the_remedy() {
    let run = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_remora-sidecar")).args(arguments).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap() + &String::from_utf8(output.stdout).unwrap();
        (output.status.code().unwrap(), text)
    };
    let directory = Directory::new();
    let path = directory.path().to_str().unwrap();
    let (code, text) = run(&["--snapshots", path, "--listen", "0.0.0.0:4777"]);
    assert!(code == 64 && text.contains("write a loopback address"), "{code} {text}");
    let (code, text) = run(&["--help"]);
    assert!(code == 0 && text.contains("--await DURATION"), "{code} {text}");
    let (code, text) = run(&["--snapshots", path]);
    assert!(code == 1 && text.contains("remora-operator compile"), "{code} {text}");
    let mut volume = directory.volume("shop");
    volume.publish_written(&written(1));
    let (code, text) = run(&["--snapshots", volume.path.to_str().unwrap()]);
    assert!(code == 1 && text.contains("name its parent directory"), "{code} {text}");
    let holder = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = holder.local_addr().unwrap().to_string();
    for arguments in [["--listen", &taken, "--admin", "127.0.0.1:0"], ["--listen", "127.0.0.1:0", "--admin", &taken]] {
        let (code, text) = run(&[&["--snapshots", path], &arguments[..]].concat());
        let option = if arguments[1] == taken { "(--listen)" } else { "(--admin)" };
        assert!(code == 1 && text.contains(&format!("cannot listen on {taken} {option}")), "{code} {text}");
        assert!(text.contains("check whether another container of the pod uses the port"), "{text}");
    }
    // A file in the place of the directory is no directory that may appear later.
    let core = volume.path.join("..data/core");
    let named = ["--snapshots", core.to_str().unwrap(), "--environment", "shop", "--listen", &taken];
    let (code, text) = run(&named);
    assert!(code == 1 && text.contains("Not a directory"), "{code} {text}");
    drop(holder);
    let output = Command::new(env!("CARGO_BIN_EXE_remora-sidecar"))
        .args([OsStr::from_bytes(b"--snapshots"), OsStr::from_bytes(b"\xff"), OsStr::from_bytes(b"--log-level\xfe")])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(64) && text.contains("is not UTF-8"), "{text}");
    let too_long = format!("/tmp/{}.sock", "x".repeat(200));
    let (code, text) = run(&["--snapshots", path, "--listen-unix", &too_long]);
    assert!(code == 64 && text.contains("a path of at most 107 bytes"), "{code} {text}");
}

/// Row 45 of the fault matrix: a machine whose localhost is IPv6 only.
#[test]
fn ipv6_loopback_serves_both_ports() {
    let directory = Directory::new();
    directory.volume("shop").publish_written(&written(1));
    let server = start(directory.path(), |options| {
        options.listen.set_ip(std::net::Ipv6Addr::LOCALHOST.into());
        options.admin.set_ip(std::net::Ipv6Addr::LOCALHOST.into());
    });
    assert!(server.data.is_ipv6() && server.admin.is_ipv6());
    assert_serves_first_revision(server.data);
    assert_eq!(get(server.admin, "/readyz", &[]).status, 200);
    let other = std::net::SocketAddr::from(([127, 0, 0, 1], server.data.port()));
    assert!(std::net::TcpStream::connect(other).is_err());
}

#[test]
fn program_ends_on_sigterm() {
    let directory = Directory::new();
    directory.volume("shop").publish_written(&written(1));
    let mut program = sidecar(directory.path()).stderr(Stdio::piped()).spawn().unwrap();
    let mut log = BufReader::new(program.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("flags on ") {
        line.clear();
        assert!(log.read_line(&mut line).unwrap() > 0, "it ended");
    }
    let (_, address) = line.trim().split_once("flags on ").unwrap();
    let data = address.split(',').next().unwrap().parse().unwrap();
    assert_eq!(get(data, "/api/v1/flags/", &CLIENT).status, 200);
    let _idle = Connection::open(data);
    let began = Instant::now();
    let id = program.id().to_string();
    assert!(Command::new("kill").arg(&id).status().unwrap().success());
    assert!(program.wait().unwrap().success());
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
}

/// Many environments take so long to load that the signal arrives meanwhile.
#[test]
fn program_that_gets_sigterm_while_it_loads_ends_without_failure() {
    let (directory, written) = (Directory::new(), written(1));
    for number in 0..500 {
        directory.volume(&format!("shop-{number}")).publish_written(&written);
    }
    let mut program = sidecar(directory.path()).stderr(Stdio::piped()).spawn().unwrap();
    let mut log = BufReader::new(program.stderr.take().unwrap()).lines();
    let first = log.next().unwrap().unwrap();
    assert!(first.contains("serves revision"), "{first}");
    assert!(Command::new("kill").arg(program.id().to_string()).status().unwrap().success());
    let lines: Vec<String> = log.map_while(Result::ok).collect();
    assert!(program.wait().unwrap().success(), "{:?}", lines.last());
    assert!(lines.iter().any(|line| line.contains("received SIGTERM")), "{:?}", lines.last());
}
