//! Tests of the follower: answers come from a complete snapshot, whichever files a volume has.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use remora_snapshot::{File, write};
use support::client::{Connection, get};
use support::environment::{CLIENT, CLIENT_KEY, client_flags, environment, sharded, written};
use support::server::{Running, await_condition, reloads, start};
use support::volume::{Directory, Volume};

fn flags(server: &Running) -> String {
    get(server.data, "/api/v1/flags/", &CLIENT).body
}

/// Returns the `limit` of an identity: its override, or the environment's value.
fn limit(server: &Running, identifier: &str) -> String {
    let answer = get(server.data, &format!("/api/v1/identities/?identifier={identifier}"), &CLIENT).body;
    let (_, rest) = answer.split_once(r#""limit","type":"STANDARD"},"enabled":true,"feature_state_value":"#).unwrap();
    rest.split('}').next().unwrap().to_owned()
}

#[test]
fn new_revision_is_served_without_waiting_for_a_poll() {
    let directory = Directory::new();
    let mut volume = directory.volume("shop");
    volume.publish_written(&written(1));
    let server = start(directory.path(), |_| {});
    let mut late = 0;
    for revision in 2..30 {
        volume.publish_written(&written(revision));
        let began = Instant::now();
        await_condition("the revision", || flags(&server) == client_flags(revision));
        late += u32::from(began.elapsed().as_secs() >= 1);
    }
    assert!(late <= 3, "{late} of 28 revisions were found by a poll, and not by the watch");
}

/// The cache of keys belongs to the revision that is served.
#[test]
fn key_has_its_role_of_the_served_revision() {
    let directory = Directory::new();
    let mut volume = directory.volume("shop");
    let with_keys = |revision: u32, keys: &[&str]| {
        let mut environment = environment("shop", CLIENT_KEY, revision);
        environment.server_keys = keys.iter().map(|&key| key.to_owned()).collect();
        write(&environment, 1_000_000).unwrap()
    };
    volume.publish_written(&with_keys(1, &["ser.old"]));
    let server = start(directory.path(), |_| {});
    let mut connection = Connection::open(server.data);
    let mut status = |key: &str| {
        let answer = connection.request("GET", "/api/v1/flags/", &[("x-environment-key", key)], None).unwrap();
        // Only server keys see this flag.
        (answer.status, answer.body.contains("secret"))
    };
    for _ in 0..2 {
        assert_eq!([status("ser.old"), status("ser.old"), status("ser.new")], [(200, true), (200, true), (401, false)]);
        assert_eq!(
            [status("ser.new"), status(CLIENT_KEY), status("ser.olD")],
            [(401, false), (200, false), (401, false)]
        );
    }
    assert_eq!(status("ser.old"), (200, true));
    volume.publish_written(&with_keys(2, &["ser.new"]));
    await_condition("the revision", || flags(&server) == client_flags(2));
    assert_eq!(status("ser.old"), (401, false));
    assert_eq!([status("ser.new"), status("ser.new")], [(200, true), (200, true)]);
    volume.publish_written(&with_keys(3, &["ser.old"]));
    await_condition("the revision", || flags(&server) == client_flags(3));
    assert_eq!(status("ser.new"), (401, false));
    assert_eq!(status("ser.old"), (200, true));
}

#[test]
fn volume_that_appears_after_the_start_is_served() {
    let directory = Directory::new();
    let snapshots = directory.path().join("not/yet");
    let server = start(&snapshots, |options| options.environments = vec!["shop".to_owned()]);
    assert_eq!(get(server.data, "/api/v1/flags/", &CLIENT).status, 503);
    fs::create_dir_all(&snapshots).unwrap();
    let made = Directory::new();
    made.volume("shop").publish_written(&written(1));
    symlink(made.path().join("shop"), snapshots.join("shop")).unwrap();
    await_condition("the first revision", || flags(&server) == client_flags(1));
}

#[test]
fn broken_or_missing_volume_leaves_the_last_good_snapshot() {
    let directory = Directory::new();
    let mut volume = directory.volume("shop");
    volume.publish_written(&written(1));
    let server = start(directory.path(), |_| {});
    let good = written(2).files.remove(0).bytes;
    let mut flipped = good.clone();
    flipped[200] ^= 1;
    let mut newer = good.clone();
    newer[8] = 9;
    let mut refused = 0.0;
    for broken in [&b"x"[..], &good[..good.len() - 1], &flipped, &newer, &[0; 4096]] {
        volume.publish([("core", broken)]);
        refused += 1.0;
        server.await_metric(&reloads("refused"), |count| count == refused);
        assert_eq!(flags(&server), client_flags(1));
    }
    volume.publish([("core", &b""[..])]);
    server.await_metric(&reloads("unreadable"), |count| count >= 1.0);
    volume.publish([]);
    server.await_metric(&reloads("missing"), |count| count >= 1.0);
    assert_eq!(flags(&server), client_flags(1));
    assert_eq!(get(server.admin, "/readyz", &[]).status, 200);
    fs::remove_dir_all(&volume.path).unwrap();
    server.await_metric(&reloads("missing"), |count| count >= 2.0);
    assert_eq!(flags(&server), client_flags(1));
    directory.volume("shop").publish_written(&written(3));
    await_condition("the volume that was made again", || flags(&server) == client_flags(3));
}

#[test]
fn broken_overrides_file_leaves_the_last_good_one() {
    let directory = Directory::new();
    let mut volume = directory.volume("shop");
    let one = sharded(1, 2_000);
    assert!(one.files.len() > 2, "several files: {}", one.files.len());
    volume.publish_written(&one);
    let server = start(directory.path(), |_| {});
    let everybody = |expected: &str| {
        for user in 0..100 {
            let own = (user % 7).to_string();
            assert_eq!(limit(&server, &format!("user_{user}")), own, "user_{user}");
        }
        assert_eq!(limit(&server, "nobody"), expected);
    };
    everybody("1");

    // The next core arrives with one damaged overrides file.
    let mut two = sharded(2, 2_000);
    let damaged = two.files.last_mut().unwrap();
    let middle = damaged.bytes.len() / 2;
    damaged.bytes[middle] ^= 1;
    volume.publish_written(&two);
    server.await_metric(&reloads("part_refused"), |count| count == 1.0);
    everybody("2");

    // The damaged file is removed by hand, while the core stays.
    two.files.pop().unwrap();
    volume.publish_written(&two);
    server.await_metric(&reloads("same"), |count| count == 1.0);
    everybody("2");

    // The file returns, and then the operator removes all overrides files.
    volume.publish_written(&sharded(3, 2_000));
    await_condition("the third revision", || limit(&server, "nobody") == "3");
    everybody("3");
    volume.publish_written(&written(4));
    await_condition("the fourth revision", || limit(&server, "user_1") == "4");
}

/// The operator deletes surplus objects after ten minutes. Until then, old files lie beside new ones.
#[test]
fn removed_override_ends_although_its_file_remains() {
    let directory = Directory::new();
    let mut volume = directory.volume("shop");
    let (one, two) = (sharded(1, 2_000), sharded(2, 800));
    assert!(two.files.len() > 2 && one.files.len() > two.files.len(), "{} {}", one.files.len(), two.files.len());
    volume.publish_written(&one);
    let server = start(directory.path(), |_| {});
    assert_eq!(limit(&server, "user_1501"), "3");
    let left_over = one.files.iter().skip(two.files.len());
    volume.publish(two.files.iter().chain(left_over).map(|file| (file.name.as_str(), file.bytes.as_slice())));
    await_condition("the second revision", || limit(&server, "nobody") == "2");
    for user in 0..800 {
        assert_eq!(limit(&server, &format!("user_{user}")), (user % 7).to_string(), "user_{user}");
    }
    for user in 800..2_000 {
        assert_eq!(limit(&server, &format!("user_{user}")), "2", "user_{user} has none any more");
    }
    assert_eq!(server.metric(&reloads("part_refused")), Some(0.0));
}

/// A pod's volume names as many files as were needed when the pod was admitted.
#[test]
fn snapshot_with_more_overrides_files_than_the_volume_leaves_the_last_good() {
    let directory = Directory::new();
    let mut volume = directory.volume("shop");
    let (one, two) = (sharded(1, 400), sharded(2, 2_000));
    assert!(two.files.len() > one.files.len(), "{} {}", one.files.len(), two.files.len());
    volume.publish_written(&one);
    let server = start(directory.path(), |_| {});
    let cut = || two.files.iter().take(one.files.len()).map(|file| (file.name.as_str(), file.bytes.as_slice()));
    volume.publish(cut());
    server.await_metric(&reloads("refused"), |count| count == 1.0);
    assert_eq!(limit(&server, "nobody"), "1");
    for user in 0..400 {
        assert_eq!(limit(&server, &format!("user_{user}")), (user % 7).to_string(), "user_{user}");
    }

    // A sidecar that starts now has no complete snapshot, and reports that. It does not wait for files that the volume
    // does not name.
    let late = start(directory.path(), |options| options.startup_timeout = Duration::from_secs(600));
    assert_eq!(limit(&late, "nobody"), "2");
    assert_eq!(late.metric(&reloads("part_refused")), Some(1.0));
    assert_eq!(get(late.admin, "/startupz", &[]).status, 200);

    volume.publish_written(&two);
    for server in [&server, &late] {
        await_condition("all overrides", || limit(server, "nobody") == "2" && limit(server, "user_1501") == "3");
        for user in 0..2_000 {
            assert_eq!(limit(server, &format!("user_{user}")), (user % 7).to_string(), "user_{user}");
        }
    }
}

/// When a pod starts, a busy kubelet may have seen only some of many objects, and not always the first ones.
#[test]
fn startup_waits_for_all_overrides_files_up_to_its_timeout() {
    let directory = Directory::new();
    let mut volume = directory.volume("shop");
    let written = sharded(1, 2_000);
    let [core, first, second, _, ..] = written.files.as_slice() else { panic!("several files") };
    let publish = |volume: &mut Volume, files: &[&File]| {
        volume.publish(files.iter().map(|file| (file.name.as_str(), file.bytes.as_slice())));
    };
    let without_first: Vec<&File> = written.files.iter().filter(|file| file.name != first.name).collect();
    let without_two: Vec<&File> = without_first.iter().copied().filter(|file| file.name != second.name).collect();
    publish(&mut volume, &without_two);
    let waiting = start(directory.path(), |options| options.startup_timeout = Duration::from_secs(600));
    let timed_out = start(directory.path(), |options| options.startup_timeout = Duration::from_millis(300));
    let startup = |server: &Running| get(server.admin, "/startupz", &[]);
    assert_eq!((startup(&waiting).status, get(waiting.admin, "/readyz", &[]).status), (503, 200));
    assert!(
        startup(&waiting).body.contains("\"shop\": identity overrides or the document are missing"),
        "{}",
        startup(&waiting).body
    );
    await_condition("the startup timeout", || startup(&timed_out).status == 200);
    assert!(startup(&timed_out).body.starts_with("the startup timeout has passed"), "{}", startup(&timed_out).body);

    // More files arrive, though not all: they are served, and so are those that arrived before.
    publish(&mut volume, &without_first);
    // Both have to read this publication before the next replaces it: only this one brings the second file.
    for server in [&waiting, &timed_out] {
        server.await_metric(&reloads("swapped"), |count| count == 2.0);
    }
    assert_eq!(startup(&waiting).status, 503);
    publish(&mut volume, &[core, first]);
    for server in [&waiting, &timed_out] {
        await_condition("nothing to wait for", || startup(server).body == "ok\n");
        for user in 0..2_000 {
            assert_eq!(limit(server, &format!("user_{user}")), (user % 7).to_string(), "user_{user}");
        }
    }
}

#[test]
fn marker_of_a_missing_revision_sets_the_stale_metric() {
    let directory = Directory::new();
    let mut volume = directory.volume("shop");
    let (one, two) = (written(1), written(2));
    let core = |written: &remora_snapshot::Written| written.files[0].bytes.clone();
    let stale = r#"remora_sidecar_stale_seconds{environment="shop"}"#;
    volume.publish([("core", core(&one).as_slice()), ("revision", one.revision.to_string().as_bytes())]);
    let server = start(directory.path(), |_| {});
    assert_eq!(server.metric(stale), Some(0.0));
    volume.publish([("core", core(&one).as_slice()), ("revision", two.revision.to_string().as_bytes())]);
    server.await_metric(stale, |seconds| seconds > 0.0);
    volume.publish([("core", core(&two).as_slice()), ("revision", two.revision.to_string().as_bytes())]);
    await_condition("the second revision", || flags(&server) == client_flags(2));
    server.await_metric(stale, |seconds| seconds == 0.0);
    // A repeated notification, with another text.
    volume.publish([("core", core(&two).as_slice()), ("revision", format!("{} 2", two.revision).as_bytes())]);
    server.await_metric(&reloads("same"), |count| count >= 1.0);
    assert_eq!(server.metric(stale), Some(0.0));
    assert_eq!(get(server.admin, "/revisions", &[]).body, format!("shop {}\n", two.revision));
    let revision = format!(r#"remora_sidecar_revision_info{{environment="shop",revision="{}"}}"#, two.revision);
    assert_eq!(server.metric(&revision), Some(1.0));
}

/// Number of swaps of the volume. `make swaps` sets a million.
fn swaps() -> u32 {
    const FEW: u32 = 1_000;
    std::env::var("REMORA_SWAPS").map_or(FEW, |text| text.parse().expect("REMORA_SWAPS is a number"))
}

/// Swaps the volume as fast as the disk allows while several connections read: every answer is one that was published,
/// none fails, and no connection is lost.
#[test]
fn swaps_under_load_fail_no_request() {
    let swaps = swaps();
    let directory = Directory::new();
    let mut volume = directory.volume("shop");
    let revisions: Vec<_> = (0..16).map(|revision| sharded(revision, 200)).collect();
    let answers: Vec<String> = (0..16).map(client_flags).collect();
    volume.publish_written(&revisions[0]);
    let server = start(directory.path(), |_| {});
    let done = AtomicBool::new(false);
    let read = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for reader in 0..3 {
            let (done, read, answers, server) = (&done, &read, &answers, &server);
            scope.spawn(move || {
                let mut connection = Connection::open(server.data);
                while !done.load(Ordering::Relaxed) {
                    if reader == 0 {
                        let body = br#"{"identifier":"user_3","traits":[{"trait_key":"plan","trait_value":"pro"}]}"#;
                        let answer = connection.request("POST", "/api/v1/identities/", &CLIENT, Some(body)).unwrap();
                        assert_eq!(answer.status, 200);
                        assert!(answer.body.contains(r#""gold""#), "{}", answer.body);
                        assert!(
                            answer
                                .body
                                .contains(r#""limit","type":"STANDARD"},"enabled":true,"feature_state_value":3"#)
                        );
                    } else {
                        let answer = connection.request("GET", "/api/v1/flags/", &CLIENT, None).unwrap();
                        assert!(answers.contains(&answer.body), "{}", answer.body);
                    }
                    read.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for swap in 1..swaps {
            volume.publish_written(&revisions[swap as usize % 16]);
        }
        let began = Instant::now();
        while read.load(Ordering::Relaxed) <= u64::from(swaps) / 10 && began.elapsed() < Duration::from_secs(30) {
            std::thread::sleep(Duration::from_millis(2));
        }
        // Some file systems count time in steps of several milliseconds. A directory that is made in the same step as
        // the last but one may have its inode, and cannot be told from it.
        std::thread::sleep(Duration::from_millis(20));
        volume.publish_written(&revisions[swaps as usize % 16]);
        done.store(true, Ordering::Relaxed);
    });
    await_condition("the last revision", || flags(&server) == answers[swaps as usize % 16]);
    let adopted = server.metric(&reloads("swapped")).unwrap();
    let line = format!("{swaps} swaps, of which {adopted} were adopted, and {} answers", read.load(Ordering::Relaxed));
    writeln!(std::io::stderr(), "{line}").unwrap();
    // Swaps happen faster than checks, but the number of swaps that are served grows with their total.
    assert!(adopted >= f64::from(swaps) / 100.0, "{line}");
    for result in ["refused", "part_refused", "unreadable"] {
        assert_eq!(server.metric(&reloads(result)), Some(0.0), "{result}");
    }
    assert!(read.load(Ordering::Relaxed) > u64::from(swaps) / 10, "{line}");
}

/// A sparse file of any size takes no space on disk. Copying it would take all memory, and very long.
#[test]
fn core_beyond_the_largest_file_size_is_refused_and_the_next_one_served() {
    let directory = Directory::new();
    let mut volume = directory.volume("shop");
    volume.publish_written(&written(1));
    let server = start(directory.path(), |_| {});
    volume.publish([("core", &b"x"[..])]);
    fs::File::options().write(true).open(volume.path.join("..data/core")).unwrap().set_len(5 << 30).unwrap();
    server.await_metric(&reloads("unreadable"), |count| count == 1.0);
    assert_eq!(flags(&server), client_flags(1));
    volume.publish_written(&written(2));
    await_condition("the next revision", || flags(&server) == client_flags(2));
}
