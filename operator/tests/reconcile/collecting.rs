//! An environment that asks for it has the uses of its flags collected, and its status says so.

use std::{slice::from_ref, time::Duration};

use base64::{Engine, prelude::BASE64_STANDARD};
use jiff::{Timestamp, ToSpan, tz::TimeZone};
use remora_operator::{api::ObjectKind, rollout::sidecar::SidecarClient};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::{CORE, Cluster, Operator, document, fenv, flags, object_kinds::pod, pass, settle, upstream::Upstream};

#[tokio::test]
async fn uses_are_collected_while_the_spec_asks_for_it() {
    let cluster = Cluster::default();
    let server = Upstream::start(&document("a")).await;
    let mut operator = Operator::start_with(&cluster, from_ref(&server.origin));
    let mut sending = server.spec();
    sending["source"]["flagsmith"]["sendAnalytics"] = json!(true);
    let mut suspended = sending.clone();
    suspended["suspend"] = json!(true);
    let collecting = json!("collecting");
    for (generation, (spec, analytics)) in (1..).zip([
        (server.spec(), Value::Null),
        (sending.clone(), collecting.clone()),
        (suspended, Value::Null),
        (sending, collecting),
    ]) {
        operator.turn(fenv(generation, &spec)).await;
        assert_eq!(cluster.last_status()["analytics"], analytics, "generation {generation}");
    }
}

#[tokio::test]
async fn idle_flags_survive_restart_and_become_a_finding() {
    let cluster = Cluster::default();
    let server = Upstream::start(&document("a")).await;
    let mut spec = server.spec();
    spec["source"]["flagsmith"]["sendAnalytics"] = json!(true);
    let today = Timestamp::now().to_zoned(TimeZone::UTC).date();
    let day = |ago: i32| (today - ago.days()).to_string();
    Operator::start_with(&cluster, from_ref(&server.origin)).turn(fenv(1, &spec)).await;
    let begun = cluster.last_status();
    let expected = json!({"since": day(0), "until": day(1), "count": 0, "unused": 0});
    assert_eq!((&begun["idleFlags"], &begun["findingCount"]), (&expected, &json!(0)));

    // Without a new generation, a restarted operator would wait with its first fetch.
    let mut object = fenv(2, &spec);
    object["status"] = begun;
    object["status"]["idleFlags"] = json!({
        "since": day(40), "until": day(2), "lastUse": day(2), "count": 1, "unused": 1,
        "flags": [{"flag": "a", "since": day(40)}],
    });
    let mut operator = Operator::start_with(&cluster, from_ref(&server.origin));
    list_of_first_round(&mut operator, &object).await;
    let status = cluster.last_status();
    assert_eq!((&status["idleFlags"]["until"], &status["idleFlags"]["unused"]), (&json!(day(1)), &json!(1)));
    let message = status["findings"][0]["message"].as_str().unwrap();
    assert!(status["findingCount"] == 1 && message.starts_with("no application used 1 flag for 30 days"), "{status}");

    let writes = cluster.statuses();
    operator.turn(fenv(2, &spec)).await;
    assert_eq!(cluster.statuses(), writes, "the status changes once a day");
    operator.turn(fenv(3, &server.spec())).await;
    let status = cluster.last_status();
    assert_eq!((&status["idleFlags"], &status["findingCount"]), (&Value::Null, &json!(0)));
}

/// Reconciles until the status has a list that a process has made after its first round.
async fn list_of_first_round(operator: &mut Operator, object: &Value) {
    let before = object["status"]["idleFlags"]["until"].clone();
    operator.turn(object.clone()).await;
    settle().await;
    // The first round begins within six seconds.
    pass(Duration::from_secs(7)).await;
    for _ in 0..200 {
        operator.turn(object.clone()).await;
        if operator.cluster.last_status()["idleFlags"]["until"] != before {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("no list after the first round: {}", operator.cluster.last_status());
}

/// The next process would take a list of today for the decision about yesterday.
#[tokio::test]
async fn process_that_ends_before_its_first_round_decides_about_no_day() {
    let cluster = Cluster::default();
    let server = Upstream::start(&document("a")).await;
    let mut spec = server.spec();
    spec["source"]["flagsmith"]["sendAnalytics"] = json!(true);
    let mut silent = pod(ObjectKind::ConfigMap);
    silent["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
    silent["spec"]["initContainers"] = json!([
        {"name": "remora", "restartPolicy": "Always", "ports": [{"name": "remora-admin", "containerPort": 1}]},
    ]);
    silent["status"] =
        json!({"podIP": "127.0.0.1", "initContainerStatuses": [{"name": "remora", "state": {"running": {}}}]});
    cluster.run(vec![silent]);
    let today = Timestamp::now().to_zoned(TimeZone::UTC).date();
    let day = |ago: i32| (today - ago.days()).to_string();
    let written = json!({
        "since": day(40), "until": day(2), "lastUse": day(2), "count": 1, "unused": 0,
        "flags": [{"flag": "a", "since": day(20)}],
    });
    let mut object = fenv(1, &spec);
    object["status"] = json!({"idleFlags": written});
    for generation in 1..=3 {
        object["metadata"]["generation"] = json!(generation);
        Operator::start_with(&cluster, from_ref(&server.origin)).turn(object.clone()).await;
        object["status"] = cluster.last_status();
        assert_eq!(object["status"]["idleFlags"], written, "process {generation}");
    }
    object["metadata"]["generation"] = json!(4);
    let mut operator = Operator::start_with(&cluster, from_ref(&server.origin));
    list_of_first_round(&mut operator, &object).await;
    let idle = &cluster.last_status()["idleFlags"];
    assert_eq!((&idle["until"], &idle["flags"][0]["since"]), (&json!(day(1)), &json!(day(19))));
}

/// Sends requests to a sidecar, one after another, and returns the status of each answer.
async fn ask(address: std::net::SocketAddr, path: &str, times: usize) -> Vec<String> {
    let mut statuses = Vec::new();
    for _ in 0..times {
        let mut connection = TcpStream::connect(address).await.unwrap();
        let request =
            format!("POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{{}}");
        connection.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).await.unwrap();
        statuses.push(answer.split(' ').nth(1).unwrap().to_owned());
    }
    statuses
}

#[tokio::test]
async fn controller_reads_counters_of_real_sidecar() {
    let cluster = Cluster::default();
    cluster.put(&flags(&document("a")));
    let mut operator = Operator::start(&cluster);
    operator.turn(fenv(1, &json!({}))).await;
    let core = cluster.get(CORE).unwrap()["binaryData"]["core"].as_str().unwrap().to_owned();
    let snapshots = std::env::temp_dir().join(format!("remora-collecting-{:016x}", fastrand::u64(..)));
    std::fs::create_dir_all(snapshots.join("storefront/..data")).unwrap();
    std::fs::write(snapshots.join("storefront/..data/core"), BASE64_STANDARD.decode(core).unwrap()).unwrap();

    let mut options = remora_sidecar::Options::new(snapshots.clone());
    options.listen.set_port(0);
    options.admin.set_port(0);
    let server = remora_sidecar::Server::start(&options).await.unwrap();
    let (data, admin) = (server.data_address().unwrap(), server.admin_address().unwrap());
    let reading = async {
        let sidecars = SidecarClient::new().unwrap();
        assert_eq!(ask(data, "/ofrep/v1/evaluate/flags/a", 3).await, ["200"; 3]);
        let uses = sidecars.uses(admin, "shop", &"storefront".parse().unwrap()).await.unwrap();
        assert_eq!(uses.flags, [("a".to_owned(), 3)]);
        assert_eq!(sidecars.uses(admin, "shop", &"storefront".parse().unwrap()).await.unwrap().process, uses.process);
        assert_eq!(sidecars.uses(admin, "shop", &"another".parse().unwrap()).await, None);
    };
    tokio::select! {
        () = reading => {}
        () = server.run_until(std::future::pending()) => panic!("the sidecar ended"),
    }
    std::fs::remove_dir_all(snapshots).unwrap();
}
