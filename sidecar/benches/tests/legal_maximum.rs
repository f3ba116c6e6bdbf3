//! Test that an environment at ten times Flagsmith's default limits is compiled, written in parts, and answered.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc;

use remora_bench::load::ask;
use remora_bench::population;
use remora_bench::prepared::Prepared;
use remora_bench::profile::{ENVIRONMENT, LEGAL_MAXIMUM};
use remora_bench::request::to;
use remora_sidecar::{Options, Server};
use remora_snapshot::files::{self, CoreSet};
use remora_snapshot::{RequestState, Role};

/// Number of people who are asked for. Each answer has more than a megabyte.
const ASKED: usize = 40;

/// Directory of the test, which is removed at its end.
struct Place(PathBuf);

impl Place {
    fn new() -> Place {
        let path = std::env::temp_dir().join(format!("remora-legal-maximum-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Place(path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Starts a server that ends with the process of the test. Returns the address of its data port.
fn start(snapshots: &Path) -> SocketAddr {
    let mut options = Options::new(snapshots.to_owned());
    options.listen.set_port(0);
    options.admin.set_port(0);
    let (ready, started) = mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let server = Server::start(&options).await.unwrap();
            ready.send(server.data_address().unwrap()).unwrap();
            server.run_until(std::future::pending()).await;
        });
    });
    started.recv().unwrap()
}

#[test]
fn environment_at_ten_times_the_default_limits_is_compiled_and_answered() {
    let place = Place::new();
    let prepared = Prepared::new(LEGAL_MAXIMUM, &place.0).unwrap();
    let snapshot = &prepared.snapshot;
    assert_eq!((snapshot.features(), snapshot.segments()), (10_000, 5_000));
    assert_eq!(snapshot.identity_overrides(), 8_700);
    let data = prepared.directory.join(ENVIRONMENT).join("..data");
    let parts =
        (0..files::MAX_CORE_PARTS).filter(|part| data.join(files::core_part(CoreSet::A, *part)).exists()).count();
    assert!(parts > 1, "{} bytes in {} files", prepared.published, prepared.files);
    for file in std::fs::read_dir(&data).unwrap() {
        assert!(file.unwrap().metadata().unwrap().len() <= files::MAX_FILE_BYTES as u64);
    }

    let address = start(&prepared.directory);
    let answer = ask(address, &to("GET", "/api/v1/flags/", "", "")).unwrap();
    assert_eq!((answer.status, answer.body == snapshot.flags(Role::Client)), (200, true));
    let mut different = std::collections::HashSet::new();
    for person in population::people(&LEGAL_MAXIMUM).iter().take(ASKED) {
        let mut expected = b",\"flags\":".to_vec();
        let mut subject = RequestState::default();
        person.give(snapshot, &mut subject);
        snapshot.write_flags(&mut subject, Role::Client, &mut expected);
        assert_eq!(snapshot.overrun(&subject), None);
        expected.push(b'}');
        let answer = ask(address, &to("POST", "/api/v1/identities/", "", &person.identity_body())).unwrap();
        assert!(answer.status == 200 && answer.body.ends_with(&expected), "{}", person.identifier);
        different.insert(expected);
    }
    assert_eq!(different.len(), ASKED, "people get different flags");
}
