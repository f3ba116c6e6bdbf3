//! Test that an environment at ten times Flagsmith's default limits is compiled, published in parts, mounted by a pod, and
//! answered.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../../../operator/tests/reconcile/cluster.rs"]
#[allow(dead_code, reason = "this test needs a part of the API server")]
mod cluster;

use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use cluster::{Cluster, watch};
use remora_bench::load::ask;
use remora_bench::population;
use remora_bench::prepared::Prepared;
use remora_bench::profile::{ENVIRONMENT, LEGAL_MAXIMUM};
use remora_bench::request::to;
use remora_operator::api::names::EnvironmentName;
use remora_operator::api::{ObjectKind, Revision};
use remora_operator::injection::{Layout, Size, Slots};
use remora_operator::memory::Memory;
use remora_operator::publish::{Destination, File, Owner, Permits, Publisher, Snapshot, WriteCache};
use remora_sidecar::{Options, Server};
use remora_snapshot::files;
use remora_snapshot::{RequestState, Role};
use serde_json::json;

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

/// Returns the compiled files as one snapshot. The directory of the profile has the core in parts.
fn compiled(prepared: &Prepared) -> Snapshot {
    let directory = std::fs::read_dir(prepared.directory.join(ENVIRONMENT).join("..data")).unwrap();
    let mut named: Vec<(String, Vec<u8>)> = directory
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap()))
        .collect();
    named.sort();
    let parts = named.iter().filter(|(name, _)| files::is_core_part(name));
    let core: Vec<u8> = parts.flat_map(|(_, bytes)| bytes.clone()).collect();
    let overrides = named.into_iter().filter(|(name, _)| files::is_overrides(name));
    let all = overrides.chain([(files::CORE.to_owned(), core)]).map(|(name, bytes)| File::new(name, bytes)).collect();
    Snapshot::new(Revision::new(prepared.snapshot.revision().to_string()), all)
}

/// Publishes a snapshot as the operator does. Returns the API server that has the objects.
async fn publish(snapshot: &Snapshot, environment: &EnvironmentName) -> Cluster {
    let cluster = Cluster::default();
    let (objects, mut writer) = watch();
    cluster.observe(&mut writer);
    let reference = json!({
        "apiVersion": "remora.dev/v1alpha1", "kind": "FeatureEnvironment", "name": environment.as_str(), "uid": "uid-1",
        "controller": true, "blockOwnerDeletion": true,
    });
    let owner = Owner {
        namespace: "shop".to_owned(),
        environment: environment.clone(),
        reference: serde_json::from_value(reference).unwrap(),
    };
    let destination =
        Destination { owner, object_kind: ObjectKind::ConfigMap, may_have_other_kind: false, has_unfinished: false };
    let publisher =
        Publisher::new(cluster.client(), objects, Duration::MAX, Permits::default(), Memory::new(usize::MAX));
    let published = publisher.publish(&destination, snapshot, None, &mut WriteCache::default()).await.unwrap();
    assert_eq!(published.objects.len(), snapshot.overrides_files() + snapshot.core_parts() + 1);
    cluster
}

/// Writes the volume of a pod that is admitted now, as kubelet does: a file for each published object that it names.
fn mount(cluster: &Cluster, snapshot: &Snapshot, environment: &EnvironmentName, place: &Path) {
    let size = Size {
        overrides: snapshot.overrides_files(),
        core: snapshot.core_bytes(),
        others: (snapshot.size() - snapshot.core_bytes()) as u128,
    };
    let layout = Layout::new(ObjectKind::ConfigMap, Slots::default(), size);
    assert!(layout.bytes >= snapshot.volume_bytes() as u128, "{} bytes do not fit", snapshot.volume_bytes());
    let volume = place.join(ENVIRONMENT);
    let data = volume.join("..2026_11_23_20_00_00.1");
    std::fs::create_dir_all(&data).unwrap();
    for source in layout.volume(environment)["projected"]["sources"].as_array().unwrap() {
        let object = source["configMap"]["name"].as_str().and_then(|name| cluster.get(name));
        for item in source["configMap"]["items"].as_array().into_iter().flatten() {
            // Kubelet leaves out optional objects that do not exist.
            let Some(object) = &object else { continue };
            let content = object["binaryData"][item["key"].as_str().unwrap()].as_str().unwrap();
            let file = data.join(item["path"].as_str().unwrap());
            std::fs::write(file, BASE64_STANDARD.decode(content).unwrap()).unwrap();
        }
    }
    symlink(data.file_name().unwrap(), volume.join("..data")).unwrap();
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

#[tokio::test]
async fn environment_at_ten_times_the_default_limits_is_published_and_answered() {
    let place = Place::new();
    let prepared = Prepared::new(LEGAL_MAXIMUM, &place.0).unwrap();
    let snapshot = &prepared.snapshot;
    assert_eq!((snapshot.features(), snapshot.segments()), (10_000, 5_000));
    assert_eq!(snapshot.identity_overrides(), 8_700);

    let whole = compiled(&prepared);
    assert!(whole.core_parts() > 8, "{} bytes in {} parts", whole.core_bytes(), whole.core_parts());
    let environment = ENVIRONMENT.parse().unwrap();
    let cluster = publish(&whole, &environment).await;
    let mounted = place.0.join("mounted");
    mount(&cluster, &whole, &environment, &mounted);
    let sizes = std::fs::read_dir(mounted.join(ENVIRONMENT).join("..data")).unwrap();
    let sizes: Vec<u64> = sizes.map(|file| file.unwrap().metadata().unwrap().len()).collect();
    assert_eq!(sizes.len(), whole.overrides_files() + whole.core_parts() + 1);
    assert!(sizes.iter().all(|size| *size <= files::MAX_FILE_BYTES as u64), "{sizes:?}");

    let address = start(&mounted);
    let answer = ask(address, &to("GET", "/api/v1/flags/", "", "")).unwrap();
    assert_eq!((answer.status, answer.body == snapshot.flags(Role::Client)), (200, true));
    let mut different = std::collections::HashSet::new();
    for person in population::people(&LEGAL_MAXIMUM).iter().take(ASKED) {
        let mut expected = b",\"flags\":".to_vec();
        let mut identity = RequestState::default();
        person.give(snapshot, &mut identity);
        snapshot.write_flags(&mut identity, Role::Client, &mut expected);
        assert_eq!(snapshot.overrun(&identity), None);
        expected.push(b'}');
        let answer = ask(address, &to("POST", "/api/v1/identities/", "", &person.identity_body())).unwrap();
        assert!(answer.status == 200 && answer.body.ends_with(&expected), "{}", person.identifier);
        different.insert(expected);
    }
    assert_eq!(different.len(), ASKED, "people get different flags");
}
