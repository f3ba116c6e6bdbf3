//! Tests of the program in a faulty environment.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::Path;

use remora_snapshot::Written;
use support::client::{Connection, get};
use support::environment::{CLIENT, client_flags, sharded, written};
use support::program::{Program, read_only, sidecar, sidecar_by};
use support::server::{await_condition, start};
use support::volume::{Directory, create_unreadable, make_readable};

fn flags(connection: &mut Connection) -> String {
    connection.request("GET", "/api/v1/flags/", &CLIENT, None).unwrap().body
}

/// A node can run out of inotify instances. Then the sidecar polls the volumes every few seconds.
#[test]
fn revision_published_without_inotify_is_found_by_polling() {
    let directory = Directory::new();
    let mut volume = directory.volume("shop");
    volume.publish_written(&written(1));
    let none = ["unshare", "-Ur", "sh", "-c", "echo 0 > /proc/sys/user/max_inotify_instances && exec \"$@\"", "sh"];
    let program = Program::start(sidecar_by(&none, directory.path()));
    let mut connection = program.connect();
    for revision in 1..4 {
        volume.publish_written(&written(revision));
        await_condition("the revision", || flags(&mut connection) == client_flags(revision));
    }
    let (log, text) = (program.stop(), "cannot watch directories");
    assert!(log.iter().any(|line| line.contains(text)), "inotify worked: {log:#?}");
}

/// The sidecar serves copies, so truncating or overwriting files in place changes nothing.
#[test]
fn served_files_truncated_in_place_change_no_answer() {
    let directory = Directory::new();
    let mut volume = directory.volume("shop");
    let one = sharded(1, 800);
    volume.publish_written(&one);
    let program = Program::start(sidecar(directory.path()));
    let mut connection = program.connect();
    for file in &one.files {
        let path = volume.path.join("..data").join(&file.name);
        File::options().write(true).open(&path).unwrap().set_len(1).unwrap();
    }
    for _ in 0..100 {
        assert_eq!(flags(&mut connection), client_flags(1));
    }
    for file in &one.files {
        fs::write(volume.path.join("..data").join(&file.name), vec![0xff; file.bytes.len()]).unwrap();
    }
    for user in 0..800 {
        let path = format!("/api/v1/identities/?identifier=user_{user}");
        let body = connection.request("GET", &path, &CLIENT, None).unwrap().body;
        assert!(body.contains(&format!(r#""feature_state_value":{}}}"#, user % 7)), "{body}");
    }
    volume.publish_written(&written(2));
    await_condition("the second revision", || flags(&mut connection) == client_flags(2));
}

/// Objects are written one after another. A sidecar that starts with a core of one revision and overrides of the next
/// serves both, and then the rest as it arrives.
#[test]
fn sidecar_started_during_a_publication_serves_both_revisions_until_it_ends() {
    let directory = Directory::new();
    let mut volume = directory.volume("shop");
    let (one, two) = (sharded(1, 800), sharded(2, 800));
    let mixed = || one.files.iter().take(1).chain(two.files.iter().skip(1).take(1)).chain(one.files.iter().skip(2));
    volume.publish(mixed().map(|file| (file.name.as_str(), file.bytes.as_slice())));
    let server = start(directory.path(), |_| {});
    assert_eq!(get(server.data, "/api/v1/flags/", &CLIENT).body, client_flags(1));
    for user in 0..800 {
        let body = get(server.data, &format!("/api/v1/identities/?identifier=user_{user}"), &CLIENT).body;
        assert!(body.contains(&format!(r#""feature_state_value":{}}}"#, user % 7)), "{body}");
    }
    volume.publish_written(&two);
    await_condition("the second revision", || get(server.data, "/api/v1/flags/", &CLIENT).body == client_flags(2));
}

/// Row 40 of the fault matrix: on a developer's machine, a directory may be mounted read-only while its owner can still
/// write to it, and its link may look like kubelet's.
#[test]
fn read_only_development_files_truncated_in_place_change_no_answer() {
    let directory = Directory::new();
    let mut volume = directory.volume("shop");
    let one = sharded(1, 800);
    volume.publish_written(&one);
    let mut command = read_only(directory.path());
    command.env_remove("KUBERNETES_SERVICE_HOST");
    let program = Program::start(command);
    let mut connection = program.connect();
    for file in &one.files {
        let path = volume.path.join("..data").join(&file.name);
        File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
    }
    for user in 0..800 {
        let path = format!("/api/v1/identities/?identifier=user_{user}");
        let answer = connection.request("GET", &path, &CLIENT, None).expect("the program is alive");
        assert!(answer.body.contains(&format!(r#""feature_state_value":{}}}"#, user % 7)), "{}", answer.body);
    }
    volume.publish_written(&written(2));
    await_condition("the second revision", || flags(&mut connection) == client_flags(2));
}

/// In a container that kubelet started, the same mount is a volume of kubelet, and no file is copied.
#[test]
fn kubelet_volume_files_are_mapped_in_place() {
    let directory = Directory::new();
    directory.volume("shop").publish_written(&written(1));
    for (variable, how) in [(Some("10.96.0.1"), "mapped in"), (None, "copied in")] {
        let mut command = read_only(directory.path());
        match variable {
            Some(address) => command.env("KUBERNETES_SERVICE_HOST", address),
            None => command.env_remove("KUBERNETES_SERVICE_HOST"),
        };
        let program = Program::start(command);
        assert_eq!(flags(&mut program.connect()), client_flags(1));
        let log = program.stop();
        assert!(log.iter().any(|line| line.contains(how)), "{log:#?}");
    }
}

/// Kubelet writes the directory of an optional ConfigMap that does not exist yet.
#[test]
fn volume_without_a_core_is_reported_once_and_served_when_it_arrives() {
    let directory = Directory::new();
    let mut volume = directory.volume("shop");
    volume.publish([("revision", b"".as_slice())]);
    let mut command = read_only(directory.path());
    command.env("KUBERNETES_SERVICE_HOST", "10.96.0.1");
    let program = Program::start(command);
    let missing = r#"remora_sidecar_reloads_total{environment="shop",result="missing"} 1"#;
    let page = || get(program.admin, "/metrics", &[]).body;
    await_condition("the missing core is counted", || page().lines().any(|line| line == missing));
    volume.publish_written(&written(1));
    await_condition("the first revision", || get(program.data, "/api/v1/flags/", &CLIENT).body == client_flags(1));
    assert!(page().lines().any(|line| line == missing), "{}", page());
    let log = program.stop();
    assert_eq!(log.iter().filter(|line| line.contains("the volume has no file core")).count(), 1, "{log:#?}");
}

/// A system that is short of something refuses files for a while. Kubelet does not write the volume again for that.
#[test]
fn overrides_file_is_read_again_after_system_refused_it() {
    let (directory, elsewhere) = (Directory::new(), Directory::new());
    let mut volume = directory.volume("shop");
    let (one, two) = (sharded(1, 400), sharded(2, 2_000));
    assert!(one.files.len() > 1 && two.files.len() > one.files.len(), "{} {}", one.files.len(), two.files.len());
    let [first, second] = ["first", "second"].map(|name| elsewhere.path().join(name));
    let mut publish = |written: &Written, unreadable: &Path| {
        create_unreadable(unreadable);
        let (last, others) = written.files.split_last().unwrap();
        let others = others.iter().map(|file| (file.name.as_str(), file.bytes.as_slice()));
        volume.publish_with(others, |data| symlink(unreadable, data.join(&last.name)).unwrap());
    };
    let mend = |written: &Written, unreadable: &Path| make_readable(unreadable, &written.files.last().unwrap().bytes);
    publish(&one, &first);
    let mut command = read_only(directory.path());
    command.env("KUBERNETES_SERVICE_HOST", "10.96.0.1");
    let program = Program::start(command);
    let mut connection = program.connect();
    let mut has_limit = |identifier: &str, limit: u32| {
        let path = format!("/api/v1/identities/?identifier={identifier}");
        let body = connection.request("GET", &path, &CLIENT, None).unwrap().body;
        body.contains(&format!(r#""feature_state_value":{limit}}}"#))
    };
    let mut has_overrides = |users: u32| (0..users).all(|user| has_limit(&format!("user_{user}"), user % 7));
    assert!(!has_overrides(400), "the file cannot be read");
    mend(&one, &first);
    await_condition("all overrides of the first revision", || has_overrides(400));

    // The last file of this revision has no predecessor in the first one.
    publish(&two, &second);
    let unreadable = r#"remora_sidecar_reloads_total{environment="shop",result="unreadable"} 1"#;
    let page = || get(program.admin, "/metrics", &[]).body;
    await_condition("the second revision cannot be read", || page().lines().any(|line| line == unreadable));
    assert!(has_overrides(400), "the first revision stays");
    mend(&two, &second);
    await_condition("all overrides of the second revision", || has_overrides(2_000));
}

#[test]
fn directory_whose_name_is_not_utf8_is_skipped_with_a_warning() {
    let directory = Directory::new();
    directory.volume("shop").publish_written(&written(1));
    fs::create_dir(directory.path().join(OsStr::from_bytes(b"shop\xff"))).unwrap();
    let program = Program::start(sidecar(directory.path()));
    let page = get(program.admin, "/metrics", &[]).body;
    assert!(page.contains(r#"environment="shop""#) && !page.contains("shop\u{fffd}"), "{page}");
    let log = program.stop();
    assert!(log.iter().any(|line| line.contains(r#"directory "shop\xFF" is not UTF-8"#)), "{log:#?}");
}
