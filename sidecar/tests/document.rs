//! Tests of the environment's document, for SDKs that evaluate locally.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::time::Duration;

use remora_compile::Compiled;
use remora_compile::document::{self, Original};
use remora_compile::prune::{Rules, prune};
use remora_snapshot::Document;
use remora_testing::not_run;
use serde_json::{Value, json};
use support::cgroup::Cgroup;
use support::client::{Answer, Connection, call, get, request};
use support::document::source;
use support::program::{Program, read_only, sidecar_by};
use support::server::{Running, await_condition, start};
use support::volume::{Directory, Volume, create_unreadable, make_readable};

const PATH: &str = "/api/v1/environment-document/";
const KEY: &str = "x-environment-key";
const SERVER: (&str, &str) = (KEY, "ser.server");
const GZIP: (&str, &str) = ("accept-encoding", "gzip, deflate");

fn compiled(source: &Value, served: bool) -> Compiled {
    let bytes = serde_json::to_vec(source).unwrap();
    let pruned = prune(document::parse(&bytes).unwrap(), &Rules::default());
    let original = served.then(|| Original::new(bytes));
    let options = remora_compile::Options {
        environment: "shop",
        server_keys: &["ser.server"],
        document: original.as_ref(),
        ..remora_compile::Options::default()
    };
    remora_compile::compile_to_files_of(30_000, &pruned, &options).unwrap()
}

fn publish(volume: &mut Volume, compiled: &Compiled) {
    volume.publish(compiled.files.iter().map(|file| (file.name.as_str(), file.bytes.as_slice())));
}

fn serving(compiled: &Compiled) -> (Directory, Volume, Running) {
    let directory = Directory::new();
    let mut volume = directory.volume("shop");
    publish(&mut volume, compiled);
    let running = start(directory.path(), |_| {});
    (directory, volume, running)
}

/// Returns the compressed bytes that the files hold.
fn stored(compiled: &Compiled) -> Vec<u8> {
    let parts = compiled.files.iter().filter(|file| file.name.starts_with("document"));
    let parts: Vec<Vec<u8>> = parts.map(|file| file.bytes.clone()).collect();
    let core = remora_snapshot::Snapshot::read(compiled.files[0].bytes.clone()).unwrap();
    let document: Document<Vec<u8>> = core.document(parts).unwrap();
    (0..document.files().len())
        .flat_map(|file| document.files()[file][document.range(file).unwrap()].to_vec())
        .collect()
}

fn detail(answer: &Answer) -> (u16, String) {
    let body: Value = serde_json::from_str(&answer.body).unwrap();
    (answer.status, body["detail"].as_str().or(body["message"].as_str()).unwrap().to_owned())
}

#[test]
fn document_is_sent_compressed_or_inflated_by_accept_encoding() {
    let source = source(1, 2_000);
    let compiled = compiled(&source, true);
    assert!(compiled.files.iter().any(|file| file.name == "document-01"), "more than one file");
    let (_directory, _volume, server) = serving(&compiled);
    let stored = stored(&compiled);
    for path in [PATH, "/api/v1/environment-document"] {
        let compressed = get(server.data, path, &[SERVER, GZIP]);
        assert_eq!(compressed.status, 200);
        assert_eq!(compressed.header("content-encoding"), Some("gzip"));
        assert_eq!(compressed.header("content-type"), Some("application/json"));
        assert_eq!(compressed.header("vary"), Some("Accept-Encoding"));
        assert!(
            compressed.bytes == stored,
            "the body has {} bytes, the files have {}",
            compressed.bytes.len(),
            stored.len()
        );
        let inflated = get(server.data, path, &[SERVER]);
        assert_eq!((inflated.status, inflated.header("content-encoding")), (200, None));
        let document: Value = serde_json::from_slice(&inflated.bytes).unwrap();
        assert!(document == source, "another document");
    }
    for (headers, length) in [(vec![SERVER, GZIP], stored.len()), (vec![SERVER], source.to_string().len())] {
        let head = call(server.data, "HEAD", PATH, &headers, None);
        assert_eq!((head.status, head.header("content-length")), (200, Some(length.to_string().as_str())));
    }
    assert_eq!(call(server.data, "POST", PATH, &[SERVER], None).status, 405);
    // The connection stays usable after both forms of the document.
    let mut connection = Connection::open(server.data);
    for headers in [&[SERVER][..], &[SERVER, GZIP], &[SERVER]] {
        assert_eq!(connection.request("GET", PATH, headers, None).unwrap().status, 200);
    }
    server.await_metric("remora_sidecar_requests_total{route=\"environment_document\",status=\"2xx\"}", |n| n == 9.0);
}

#[test]
fn document_without_server_key_is_refused_like_flagsmith() {
    let (_directory, mut volume, server) = serving(&compiled(&source(1, 0), true));
    let lower = (403, "Invalid or missing Environment key".to_owned());
    assert_eq!(detail(&get(server.data, PATH, &[])), lower);
    assert_eq!(detail(&get(server.data, PATH, &[(KEY, "client")])), lower);
    assert_eq!(detail(&get(server.data, PATH, &[(KEY, "nope")])), lower);
    let unknown = detail(&get(server.data, PATH, &[(KEY, "ser.nope")]));
    assert_eq!(unknown, (403, "Invalid or missing Environment Key".to_owned()));
    assert_eq!(get(server.data, PATH, &[SERVER]).status, 200);

    publish(&mut volume, &compiled(&source(1, 0), false));
    await_condition("it is no longer served", || get(server.data, PATH, &[SERVER]).status == 404);
    assert!(detail(&get(server.data, PATH, &[SERVER])).1.contains("spec.serve.environmentDocument"));
    assert_eq!(detail(&get(server.data, PATH, &[(KEY, "client")])), lower);
}

#[test]
fn document_with_matching_validator_answers_304() {
    let (_directory, mut volume, server) = serving(&compiled(&source(1, 10), true));
    let first = get(server.data, PATH, &[SERVER, GZIP]);
    let (tag, date) = (first.header("etag").unwrap().to_owned(), first.header("last-modified").unwrap().to_owned());
    assert!(date.ends_with(" GMT"), "{date}");
    let plain = get(server.data, PATH, &[SERVER]).header("etag").unwrap().to_owned();
    assert_ne!(plain, tag, "two forms, two tags");
    let known = |name: &str, value: &str| get(server.data, PATH, &[SERVER, GZIP, (name, value)]);
    let any = "*".to_owned();
    let tags = [&tag, &plain, &any].map(|tag| ("if-none-match", tag));
    for (name, value) in tags.into_iter().chain([("if-modified-since", &date)]) {
        let answer = known(name, value);
        assert_eq!((answer.status, answer.bytes.len()), (304, 0), "{name}: {value}");
        assert_eq!(answer.header("etag"), Some(tag.as_str()));
        assert_eq!(answer.header("last-modified"), Some(date.as_str()));
    }
    for (name, value) in [
        ("if-none-match", "\"other\""),
        ("if-modified-since", "Thu, 01 Jan 1970 00:00:00 GMT"),
        // The date of a process that ran before the clock was set back.
        ("if-modified-since", "Fri, 31 Dec 2100 00:00:00 GMT"),
        ("if-modified-since", "yesterday"),
    ] {
        assert_eq!(known(name, value).status, 200, "{name}: {value}");
    }
    let both = [SERVER, ("if-none-match", "\"other\""), ("if-modified-since", &date)];
    assert_eq!(get(server.data, PATH, &both).status, 200, "the tag goes before the date");

    // Another document has another tag and another second, even if it is published within the same second.
    publish(&mut volume, &compiled(&source(2, 10), true));
    await_condition("the next document", || known("if-none-match", &tag).status == 200);
    assert_eq!(known("if-modified-since", &date).status, 200);
    let second = get(server.data, PATH, &[SERVER]);
    let again = second.header("last-modified").unwrap().to_owned();

    // The core has changed, but the document and its date are the same.
    publish(&mut volume, &compiled(&source(2, 10), true));
    assert_eq!(known("if-modified-since", &again).status, 304);
}

#[test]
fn startup_waits_until_the_document_is_complete() {
    let whole = compiled(&source(1, 2_000), true);
    let directory = Directory::new();
    let mut volume = directory.volume("shop");
    let cut = whole.files.iter().filter(|file| file.name != "document-01");
    volume.publish(cut.map(|file| (file.name.as_str(), file.bytes.as_slice())));
    let server = start(directory.path(), |options| options.startup_timeout = Duration::from_secs(600));
    let startup = || get(server.admin, "/startupz", &[]).status;
    assert_eq!((get(server.data, "/api/v1/flags/", &[SERVER]).status, startup()), (200, 503));
    publish(&mut volume, &whole);
    await_condition("all of the document", || startup() == 200);
    assert_eq!(get(server.data, PATH, &[SERVER]).status, 200);
}

/// A system that is short of something refuses files for a while. Kubelet does not write the volume again for that.
#[test]
fn document_is_read_again_after_system_refused_a_part() {
    let (directory, elsewhere) = (Directory::new(), Directory::new());
    let whole = compiled(&source(1, 2_000), true);
    let (refused, others): (Vec<_>, Vec<_>) = whole.files.iter().partition(|file| file.name == "document-01");
    let path = elsewhere.path().join("document");
    create_unreadable(&path);
    let others = others.iter().map(|file| (file.name.as_str(), file.bytes.as_slice()));
    directory.volume("shop").publish_with(others, |data| symlink(&path, data.join("document-01")).unwrap());
    let mut command = read_only(directory.path());
    command.env("KUBERNETES_SERVICE_HOST", "10.96.0.1");
    let program = Program::start(command);
    assert_eq!(get(program.data, "/api/v1/flags/", &[SERVER]).status, 200);
    assert_eq!(get(program.data, PATH, &[SERVER]).status, 503);
    make_readable(&path, &refused[0].bytes);
    await_condition("all of the document", || get(program.data, PATH, &[SERVER]).status == 200);
}

/// A change of files between compilation and publication.
type Damage<'a> = dyn Fn(&mut Compiled) + 'a;

#[test]
fn damaged_or_mixed_document_parts_leave_the_last_good_document() {
    let first = compiled(&source(1, 2_000), true);
    let (_directory, mut volume, server) = serving(&first);
    let limit = || -> (Value, u64) {
        let document: Value = serde_json::from_slice(&get(server.data, PATH, &[SERVER]).bytes).unwrap();
        let flags: Value = serde_json::from_str(&get(server.data, "/api/v1/flags/", &[SERVER]).body).unwrap();
        (
            document["feature_states"][0]["feature_state_value"].clone(),
            flags[0]["feature_state_value"].as_u64().unwrap(),
        )
    };
    assert_eq!(limit(), (json!(1), 1));
    let (mut revision, mut refusals) = (1, 0.0);
    let refused = "remora_sidecar_reloads_total{environment=\"shop\",result=\"part_refused\"}";
    let break_one: [(bool, &Damage<'_>); 4] = [
        (true, &|next| next.files.last_mut().unwrap().bytes[200] ^= 1),
        // A missing file is not invalid: it may still arrive.
        (false, &|next| drop(next.files.pop())),
        (true, &|next| next.files.last_mut().unwrap().bytes = first.files.last().unwrap().bytes.clone()),
        (true, &|next| {
            // The checksums are right, but the compressed content is invalid.
            let [core, rest @ ..] = next.files.as_mut_slice() else { panic!() };
            let snapshot = remora_snapshot::Snapshot::read(core.bytes.as_slice()).unwrap();
            assert!(snapshot.serves_document() && !rest.is_empty());
            next.files.retain(|file| !file.name.starts_with("document"));
            next.files.extend(nonsense());
        }),
    ];
    for (is_refused, break_it) in break_one {
        revision += 1;
        let mut next = compiled(&source(revision, 2_000), true);
        break_it(&mut next);
        publish(&mut volume, &next);
        refusals += f64::from(u8::from(is_refused));
        server.await_metric(refused, |count| count == refusals);
        await_condition("new flags and the previous document", || limit() == (json!(1), u64::from(revision)));
    }
    publish(&mut volume, &compiled(&source(9, 2_000), true));
    await_condition("all is good again", || limit() == (json!(9), 9));
}

/// Files of a document of the same environment whose compressed bytes are invalid.
fn nonsense() -> Vec<remora_compile::File> {
    use remora_snapshot::model::{Compressed, Environment};
    let mut gzip = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 255];
    gzip.extend([0xff; 60]);
    gzip.extend([0; 4]);
    gzip.extend(500_u32.to_le_bytes());
    let document = Some(Compressed { gzip, length: 500 });
    let environment = Environment { client_key: "client".to_owned(), document, ..Environment::default() };
    remora_snapshot::write(&environment, 30_000).unwrap().files.split_off(1)
}

/// Opens eight connections that request more inflated documents than the sockets' buffers hold, and read nothing.
fn silent_readers(data: SocketAddr) -> Vec<Connection> {
    let mut silent: Vec<Connection> = (0..8).map(|_| Connection::open(data)).collect();
    for connection in &mut silent {
        for _ in 0..150 {
            connection.send(&request("GET", PATH, &[SERVER], None)).unwrap();
        }
    }
    silent
}

#[test]
fn slow_readers_of_inflated_documents_block_no_other_request() {
    let source = source(1, 2_000);
    let (_directory, _volume, server) = serving(&compiled(&source, true));
    let _silent = silent_readers(server.data);
    await_condition("there is a copy", || get(server.data, PATH, &[SERVER]).status == 200);
    for _ in 0..50 {
        let inflated = get(server.data, PATH, &[SERVER]);
        assert_eq!((inflated.status, inflated.bytes.len()), (200, source.to_string().len()));
        assert_eq!(get(server.data, PATH, &[SERVER, GZIP]).status, 200);
        assert_eq!(get(server.data, "/api/v1/flags/", &[SERVER]).status, 200);
    }
}

#[test]
fn document_without_room_for_copy_is_inflated_for_eight_clients_at_a_time() {
    let cgroup = match Cgroup::with_memory(16 << 20) {
        Ok(cgroup) => cgroup,
        Err(missing) => return not_run(&missing),
    };
    let (directory, _volume, _server) = serving(&compiled(&source(1, 2_000), true));
    let starter = cgroup.starter();
    let mut program = Program::start(sidecar_by(&starter.each_ref().map(String::as_str), directory.path()));
    let silent = silent_readers(program.data);
    // The places stay taken, and not only until the last answer that fits into a buffer is inflated.
    let taken = || (0..50).all(|_| get(program.data, PATH, &[SERVER]).status == 503);
    await_condition("all places are taken", taken);
    let refused = get(program.data, PATH, &[SERVER]);
    assert!(refused.header("retry-after").is_some() && detail(&refused).1.contains("accept gzip"));
    for _ in 0..20 {
        assert_eq!(get(program.data, PATH, &[SERVER, GZIP]).status, 200);
        assert_eq!(get(program.data, "/api/v1/flags/", &[SERVER]).status, 200);
    }
    drop(silent);
    await_condition("the places are free again", || get(program.data, PATH, &[SERVER]).status == 200);
    assert_eq!(cgroup.kills(), 0);
    assert!(program.terminate().success());
}
