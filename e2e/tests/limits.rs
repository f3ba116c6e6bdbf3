//! The operator under attack within the chart's memory limits: the real program in a cgroup of that size.
//!
//! Needs root, for the cgroup; no cluster.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that panics has failed, as it should"
)]

use std::collections::VecDeque;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use axum::body::Body;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use remora_e2e::harness::{eventually, program, root, say};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

const CAP: Duration = Duration::from_secs(120);
const SERVER: &str = "remora-webhook.remora-system.svc";

/// Memory cgroup, version 1 or 2.
struct Cgroup {
    directory: PathBuf,
    is_unified: bool,
}

impl Cgroup {
    /// Creates a cgroup below that of this process. A version 2 cgroup with processes cannot have children, so the new
    /// one is then at the top.
    fn new(limit: u64) -> anyhow::Result<Self> {
        let mounted = Path::new("/sys/fs/cgroup");
        let of_process = fs::read_to_string("/proc/self/cgroup")?;
        let is_unified = mounted.join("cgroup.controllers").exists();
        let parent = if is_unified {
            fs::write(mounted.join("cgroup.subtree_control"), "+memory")
                .map_err(|error| anyhow::anyhow!("no cgroup can be given a limit of memory: {error} at {}; run this as root where /sys/fs/cgroup is writable", mounted.display()))?;
            mounted.to_owned()
        } else {
            let own = of_process.lines().find_map(|line| line.split_once(":memory:")).map_or("/", |(_, path)| path);
            mounted.join("memory").join(own.trim_start_matches('/'))
        };
        let directory = parent.join(format!("remora-limits-{}", std::process::id()));
        fs::create_dir(&directory).map_err(|error| {
            anyhow::anyhow!(
                "no cgroup can be made: {error} at {}; run this as root where it is writable",
                directory.display()
            )
        })?;
        let file = if is_unified { "memory.max" } else { "memory.limit_in_bytes" };
        fs::write(directory.join(file), limit.to_string())?;
        Ok(Self { directory, is_unified })
    }

    /// Returns the bytes that the program has allocated and touched, without file pages.
    fn allocated(&self) -> u64 {
        let key = if self.is_unified { "anon " } else { "total_rss " };
        let stat = fs::read_to_string(self.directory.join("memory.stat")).unwrap();
        stat.lines().find_map(|line| line.strip_prefix(key)).unwrap().parse().unwrap()
    }
}

/// Running program, which ends with the test.
struct Running {
    child: Child,
    cgroup: Cgroup,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir(&self.cgroup.directory);
    }
}

impl Running {
    fn is_alive(&mut self) {
        assert_eq!(self.child.try_wait().unwrap(), None, "the program ended: it had too much memory, most likely");
    }
}

/// Returns the memory limit in the chart of a part of the operator.
fn chart_limit(part: &str) -> u64 {
    let values: Value =
        serde_yaml::from_str(&fs::read_to_string(root().join("charts/remora/values.yaml")).unwrap()).unwrap();
    let limit = values[part]["resources"]["limits"]["memory"].as_str().unwrap().to_owned();
    limit.strip_suffix("Mi").expect("a limit in Mi").parse::<u64>().unwrap() << 20
}

/// Returns the environment variables of the chart's pods that configure the heap.
fn chart_heap() -> Vec<(String, String)> {
    let template = fs::read_to_string(root().join("charts/remora/templates/_pod.tpl")).unwrap();
    let lines: Vec<&str> = template.lines().map(str::trim).collect();
    let heap = lines.windows(2).filter_map(|pair| {
        let name = pair[0].strip_prefix("- name: ").filter(|name| name.starts_with("MALLOC_"))?;
        Some((name.to_owned(), pair[1].strip_prefix("value: ")?.trim_matches('"').to_owned()))
    });
    heap.collect()
}

/// Starts an API server with one namespace and no environment.
async fn api_server() -> SocketAddr {
    async fn answer(uri: Uri) -> Response {
        if uri.query().is_some_and(|query| query.contains("watch=true")) {
            return Body::from_stream(futures::stream::pending::<Result<Bytes, std::io::Error>>()).into_response();
        }
        let items = match uri.path() {
            "/api/v1/namespaces" => json!([{"metadata": {"name": "shop"}}]),
            "/apis/remora.dev/v1alpha1/featureenvironments" => json!([]),
            _ => {
                let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404});
                return (StatusCode::NOT_FOUND, axum::Json(status)).into_response();
            }
        };
        axum::Json(json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}))
            .into_response()
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, axum::Router::new().fallback(answer)).await });
    address
}

struct Bench {
    running: Running,
    webhook: SocketAddr,
    admin: SocketAddr,
    client: reqwest::Client,
    directory: PathBuf,
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn free_port() -> SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

async fn start() -> anyhow::Result<Bench> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let program = program("remora-operator")?;
    let directory = std::env::temp_dir().join(format!("remora-limits-{}", std::process::id()));
    fs::create_dir_all(&directory)?;
    let mut parameters = rcgen::CertificateParams::new(vec![SERVER.to_owned()])?;
    parameters.not_after = rcgen::date_time_ymd(2100, 1, 1);
    let key = rcgen::KeyPair::generate()?;
    let certificate = parameters.self_signed(&key)?;
    fs::write(directory.join("tls.crt"), certificate.pem())?;
    fs::write(directory.join("tls.key"), key.serialize_pem())?;
    let (api_server, webhook, admin) = (api_server().await, free_port(), free_port());
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": format!("http://{api_server}")}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "users": [{"name": "test", "user": {}}],
    });
    fs::write(directory.join("kubeconfig"), kubeconfig.to_string())?;

    let cgroup = Cgroup::new(chart_limit("webhook"))?;
    let procs = cgroup.directory.join("cgroup.procs");
    // The shell joins the cgroup before it becomes the program, so that all of the program's memory counts.
    let mut command = Command::new("sh");
    command.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]).arg(procs).arg(program);
    command.args(["run", "--no-controller", "--sidecar-image=sidecar:1", "--log-level=error"]);
    command.arg(format!("--webhook-listen={webhook}")).arg(format!("--admin-listen={admin}"));
    command.arg(format!("--certificate-directory={}", directory.display()));
    command.env("KUBECONFIG", directory.join("kubeconfig")).envs(chart_heap());
    let running = Running { child: command.spawn()?, cgroup };
    let client = reqwest::Client::builder()
        .tls_certs_only([reqwest::Certificate::from_pem(certificate.pem().as_bytes())?])
        .resolve(SERVER, webhook)
        .no_proxy()
        .timeout(CAP)
        .build()?;
    let bench = Bench { running, webhook, admin, client, directory };
    eventually("the webhook is ready", CAP, async || Ok((bench.probe("/readyz").await? == 200).then_some(()))).await?;
    Ok(bench)
}

/// Returns an admission review with this pod.
fn review(pod: &str) -> Bytes {
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "operation": "CREATE", "namespace": "shop", "object": "POD"}});
    review.to_string().replace("\"POD\"", pod).into()
}

const POD: &str = r#"{"metadata":{"annotations":{"remora.dev/inject":"storefront"}},"spec":{"containers":[{"name":"a"}],"x":[MORE]}}"#;

/// Returns an admission review of almost 8 MiB that repeats this text.
fn large(of: &str) -> Bytes {
    let count = ((8 << 20) - 1024) / (of.len() + 1);
    review(&POD.replace("MORE", &vec![of; count].join(",")))
}

impl Bench {
    /// Returns the status of an admin path, over a new connection, as a kubelet's probe does.
    async fn probe(&self, path: &str) -> anyhow::Result<u16> {
        let mut stream = TcpStream::connect(self.admin).await?;
        stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        anyhow::ensure!(answer.len() > 12, "no answer: {answer:?}");
        Ok(answer[9..12].parse()?)
    }

    async fn post(&self, body: Bytes) -> anyhow::Result<(u16, String)> {
        let url = format!("https://{SERVER}:{}/mutate", self.webhook.port());
        let request = self.client.post(url).header("content-type", "application/json").body(body);
        let response = request.send().await?;
        Ok((response.status().as_u16(), response.text().await?))
    }

    /// Sends a valid review, which must always be answered.
    async fn ask(&self) {
        let (status, text) = self.post(review(&POD.replace("MORE", ""))).await.expect("a good review is answered");
        assert!(status == 200 && text.contains("\"patchType\":\"JSONPatch\""), "{status} {text}");
    }

    /// Checks that both parts are reachable and that the program still runs.
    async fn works(&mut self) {
        self.running.is_alive();
        self.ask().await;
        assert_eq!(self.probe("/healthz").await.expect("health is answered"), 200);
    }

    fn allocated(&self) -> u64 {
        self.running.cgroup.allocated()
    }

    /// Opens connections that each send only these bytes, and checks `works` after every 500. Returns the largest
    /// allocated memory in bytes.
    async fn flood(&mut self, to: SocketAddr, count: usize, addresses: usize, bytes: &[u8]) -> u64 {
        let (mut held, mut most) = (VecDeque::new(), 0);
        for number in 0..count {
            let socket = TcpSocket::new_v4().unwrap();
            let last = u8::try_from(2 + number % addresses).unwrap();
            socket.bind(SocketAddr::from(([127, 0, 0, last], 0))).unwrap();
            let mut stream = socket.connect(to).await.unwrap();
            // The server may have closed the connection already, to make room for the next one.
            let _ = stream.write_all(bytes).await;
            held.push_back(stream);
            if held.len() > 3000 {
                held.pop_front();
            }
            if number % 500 == 499 {
                self.works().await;
                most = most.max(self.allocated());
            }
        }
        most
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_stays_within_the_charts_memory_and_gives_it_back() -> anyhow::Result<()> {
    let mut bench = start().await?;
    for _ in 0..20 {
        bench.ask().await;
    }
    let before = bench.allocated();
    let mib = |bytes: u64| bytes >> 20;

    let (admin, webhook) = (bench.admin, bench.webhook);
    let most = bench.flood(admin, 15_000, 1, b"GET /metrics HTTP/1.1\r\nhost: x\r\nx-slow: ").await;
    say(&format!("15,000 half requests: at most {} MiB, before {} MiB", mib(most), mib(before)));

    let most = bench.flood(webhook, 3_000, 9, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03").await;
    say(&format!("3,000 connections of nine addresses: at most {} MiB", mib(most)));

    // Each kind stresses a different structure: members, lists, numbers, one string, variables.
    let text = format!("\"{}\"", "x".repeat(1 << 20));
    let variable = format!(r#"{{"name":"a","value":"{}"}}"#, "x".repeat(300));
    let kinds = [r#"{"":0}"#, "[]", "0", &text, &variable].map(large);
    let (mut most, mut statuses) = (0, std::collections::BTreeMap::<u16, usize>::new());
    let answers = {
        let asked = (0..120).map(|number| bench.post(kinds[number % kinds.len()].clone()));
        let mut asked = std::pin::pin!(futures::future::join_all(asked));
        loop {
            tokio::select! {
                answers = &mut asked => break answers,
                () = tokio::time::sleep(Duration::from_millis(20)) => most = most.max(bench.allocated()),
            }
        }
    };
    for (number, answer) in answers.into_iter().enumerate() {
        if let Ok((400, text)) = &answer {
            assert!(text.contains("ended early"), "kind {}: {text}", number % kinds.len());
        }
        // A connection that is refused before its body is read may be reset while it sends, and then there is no
        // status.
        *statuses.entry(answer.map_or(0, |(status, _)| status)).or_default() += 1;
    }
    bench.works().await;
    say(&format!("120 reviews of 8 MiB at once: at most {} MiB; answers {statuses:?}", mib(most)));
    assert!(statuses.keys().all(|status| [0, 200, 400, 408, 503].contains(status)), "{statuses:?}");

    // Memory that the allocator retains for reuse counts too: a quarter of the limit is left for it.
    eventually("the memory comes back", CAP, async || {
        let after = bench.allocated();
        anyhow::ensure!(after <= chart_limit("webhook") / 4, "{} MiB, before {} MiB", mib(after), mib(before));
        Ok(Some(()))
    })
    .await?;
    bench.works().await;
    say(&format!("afterwards {} MiB, before {} MiB", mib(bench.allocated()), mib(before)));
    Ok(())
}
