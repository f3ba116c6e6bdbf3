//! The controller with documents that cost the most: it stays within its memory, and its health port answers.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::HeaderMap;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use futures::StreamExt as _;
use remora_e2e::harness::{eventually, program, say};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::cluster::Cluster;
use super::program::{Cgroup, Running, chart_limit, free_port, kubeconfig, probe};
use super::shapes::SHAPES;

/// Longest time for all documents of a test. Only a hang reaches it: a debug build on a busy machine takes minutes.
const CAP: Duration = Duration::from_secs(1800);
/// Bytes of a document in a ConfigMap: as many as an object can have.
const OBJECT: usize = 1_000_000;
/// Bytes of a document from a server: a little less than `controller.maxDocumentBytes`.
const FETCHED: usize = 60 << 20;
/// Shapes of documents in ConfigMaps, of four kinds of content: lists of members, features, overrides, patterns.
const OBJECT_SHAPES: [&str; 4] = ["in-commas", "features", "flags-of-one-identity", "regex-joint"];

fn shape(name: &str, size: usize) -> String {
    SHAPES.iter().find(|(own, _)| *own == name).unwrap_or_else(|| panic!("no shape {name}")).1(size)
}

/// Body of a Flagsmith server's answer.
#[derive(Clone)]
enum Served {
    Whole(Bytes),
    Compressed(Bytes),
    Endless,
}

/// Starts a Flagsmith server. The key of environment `x` is `ser.x`.
async fn flagsmith(bodies: BTreeMap<String, Served>) -> SocketAddr {
    let answer = move |headers: HeaderMap| {
        let key = headers.get("x-environment-key").and_then(|key| key.to_str().ok()).unwrap_or_default();
        let body = match bodies.get(key.trim_start_matches("ser.")).cloned() {
            None => axum::http::StatusCode::UNAUTHORIZED.into_response(),
            Some(Served::Whole(bytes)) => bytes.into_response(),
            Some(Served::Compressed(bytes)) => {
                Response::builder().header("content-encoding", "gzip").body(Body::from(bytes)).unwrap()
            }
            Some(Served::Endless) => {
                let spaces = Bytes::from_static(&[b' '; 64 << 10]);
                Body::from_stream(futures::stream::repeat(spaces).map(Ok::<_, std::io::Error>)).into_response()
            }
        };
        std::future::ready(body)
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, axum::Router::new().fallback(answer)).await });
    address
}

fn environment(name: &str, source: &Value) -> Value {
    json!({
        "apiVersion": "remora.dev/v1alpha1", "kind": "FeatureEnvironment",
        "metadata": {"name": name, "namespace": "shop", "uid": name, "generation": 1, "resourceVersion": "1"},
        "spec": {"source": source, "refresh": {"interval": "1h"}},
    })
}

fn in_config_map(name: &str) -> Value {
    environment(name, &json!({"document": {"configMapKeyRef": {"name": name, "key": "environment.json"}}}))
}

fn of_server(name: &str, server: SocketAddr) -> Value {
    let url = format!("http://{server}/api/v1/");
    environment(name, &json!({"flagsmith": {"apiUrl": url, "environmentKeySecretRef": {"name": name}}}))
}

fn directory(name: &str) -> PathBuf {
    let directory = std::env::temp_dir().join(format!("remora-{name}-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    directory
}

/// Starts a controller without a webhook, and waits until it answers.
async fn start(name: &str, cluster: &Cluster, origin: Option<SocketAddr>) -> anyhow::Result<(Running, SocketAddr)> {
    let (directory, admin) = (directory(name), free_port());
    let mut arguments =
        vec!["controller".to_owned(), "--log-level=error".to_owned(), format!("--admin-listen={admin}")];
    arguments.extend(origin.map(|origin| format!("--allowed-origin=http://{origin}")));
    let cgroup = Cgroup::new(name, chart_limit("controller"))?;
    let kubeconfig = kubeconfig(&directory, cluster.address);
    let running = Running::start(&program("remora-operator")?, cgroup, &kubeconfig, &arguments)?;
    eventually("the controller answers", CAP, async || Ok((probe(admin, "/readyz").await? == 200).then_some(())))
        .await?;
    fs::remove_dir_all(&directory)?;
    Ok((running, admin))
}

#[tokio::test(flavor = "multi_thread")]
async fn controller_with_the_worst_documents_stays_within_the_charts_memory() -> anyhow::Result<()> {
    let mut bomb = GzEncoder::new(Vec::new(), Compression::fast());
    for _ in 0..1024 {
        bomb.write_all(&[b' '; 1 << 20])?;
    }
    let nested = format!("{{\"api_key\":{}1{}}}", "[".repeat(FETCHED / 2 - 20), "]".repeat(FETCHED / 2 - 20));
    let bodies = BTreeMap::from([
        ("bomb".to_owned(), Served::Compressed(bomb.finish()?.into())),
        ("endless".to_owned(), Served::Endless),
        ("nested".to_owned(), Served::Whole(nested.into())),
        ("identities".to_owned(), Served::Whole(shape("identities-of-one-flag", FETCHED).into())),
        ("commas".to_owned(), Served::Whole(shape("in-commas", FETCHED).into())),
    ]);
    let fetched: Vec<String> = bodies.keys().cloned().collect();
    let server = flagsmith(bodies).await;
    let documents: BTreeMap<String, String> =
        OBJECT_SHAPES.iter().map(|name| ((*name).to_owned(), shape(name, OBJECT))).collect();
    let environments =
        fetched.iter().map(|name| of_server(name, server)).chain(documents.keys().map(|name| in_config_map(name)));
    let cluster = Cluster::start(environments.collect(), documents).await;
    let (mut running, admin) = start("controller", &cluster, Some(server)).await?;

    let names: Vec<&str> = fetched.iter().map(String::as_str).chain(OBJECT_SHAPES).collect();
    let (mut most, began) = (0, Instant::now());
    let outcome = |name: &str| {
        let (fetched, published) = (cluster.condition(name, "Fetched")?, cluster.condition(name, "Published")?);
        // Environments wait for each other's memory.
        let waits = ["Busy", "Pending", "Reconciling"].contains(&fetched.1.as_str()) || published.0 == "Unknown";
        (!waits || fetched.0 == "False" && fetched.1 != "Busy").then_some((fetched, published))
    };
    while names.iter().any(|name| outcome(name).is_none()) {
        running.is_alive();
        assert_eq!(probe(admin, "/healthz").await?, 200);
        most = most.max(running.cgroup.allocated());
        let missing: Vec<&&str> = names.iter().filter(|name| outcome(name).is_none()).collect();
        assert!(began.elapsed() < CAP, "no outcome of {missing:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for name in &names {
        let (fetched, published) = outcome(name).unwrap();
        say(&format!("{name}: {} {}, {} {}", fetched.0, fetched.1, published.0, published.1));
        assert!(!published.2.contains("killed by the system"), "{name}: {}", published.2);
    }
    say(&format!("at most {} MiB of {}", most >> 20, chart_limit("controller") >> 20));
    let reason = |name: &str| outcome(name).unwrap().0.1;
    assert_eq!(["bomb", "endless", "nested"].map(reason), ["BodyTooLarge", "BodyTooLarge", "ParseError"]);
    assert!(most < chart_limit("controller"), "{most}");
    running.is_alive();
    Ok(())
}

/// Returns the compiling child of a process, if there is one.
fn child_of(parent: u32) -> Option<Pid> {
    let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap_or_default();
    let of_threads = fs::read_dir(format!("/proc/{parent}/task"))
        .ok()?
        .filter_map(|task| fs::read_to_string(task.ok()?.path().join("children")).ok());
    let all: String = of_threads.fold(children, |all, more| all + " " + &more);
    all.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok()).find_map(|pid| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let compiles = line.split(|byte| *byte == 0).any(|word| word == b"compile-process");
        compiles.then(|| Pid::from_raw(pid)).flatten()
    })
}

/// Returns the CPU time of a process in clock ticks.
fn ticks(process: Pid) -> Option<u64> {
    let stat = fs::read_to_string(Path::new("/proc").join(process.as_raw_nonzero().to_string()).join("stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    fields.get(11)?.parse().ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_whose_child_spins_answers_health_and_keeps_its_lease() -> anyhow::Result<()> {
    let documents =
        BTreeMap::from([("large".to_owned(), Served::Whole(shape("identities-of-one-flag", FETCHED).into()))]);
    let server = flagsmith(documents).await;
    let cluster = Cluster::start(vec![of_server("large", server)], BTreeMap::new()).await;
    let (mut running, admin) = start("spinning", &cluster, Some(server)).await?;
    let operator = running.id();
    let child = eventually("the child starts", CAP, async || Ok(child_of(operator))).await?;
    let healthy = async || {
        for path in ["/healthz", "/readyz", "/metrics"] {
            assert_eq!(probe(admin, path).await.expect("the admin port answers"), 200, "{path}");
        }
    };
    // The child computes, and the operator answers meanwhile.
    let began = ticks(child);
    eventually("the child computes", CAP, async || {
        healthy().await;
        Ok((ticks(child) > began).then_some(()))
    })
    .await?;
    // A child that is stopped ends no sooner than one that computes for ever; both are killed after the same time.
    kill_process(child, Signal::STOP)?;
    let writes = cluster.lease_writes();
    eventually("the lease is renewed twice", CAP, async || {
        healthy().await;
        Ok((cluster.lease_writes() >= writes + 2).then_some(()))
    })
    .await?;
    assert_eq!(child_of(operator), Some(child), "it was ended meanwhile");
    kill_process(child, Signal::CONT)?;
    eventually("there is an outcome", CAP, async || {
        healthy().await;
        Ok(cluster.condition("large", "Published").filter(|(status, ..)| status != "Unknown"))
    })
    .await?;
    running.is_alive();
    Ok(())
}
