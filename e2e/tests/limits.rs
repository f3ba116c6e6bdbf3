//! The operator under attack within the chart's memory limits: the real programs in cgroups of that size.
//!
//! Needs root, for the cgroup; no cluster.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that panics has failed, as it should"
)]

#[path = "limits/cluster.rs"]
mod cluster;
#[path = "limits/controller.rs"]
mod controller;
#[path = "limits/program.rs"]
mod program;
#[path = "../../operator/compile/tests/worst_documents/shapes.rs"]
mod shapes;

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use remora_e2e::harness::{eventually, say};
use rustls::pki_types::CertificateDer;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use cluster::Cluster;
use program::{Cgroup, Running, chart_limit, free_port, kubeconfig, probe};

const CAP: Duration = Duration::from_secs(120);
const SERVER: &str = "remora-webhook.remora-system.svc";

struct Bench {
    running: Running,
    webhook: SocketAddr,
    admin: SocketAddr,
    client: reqwest::Client,
    certificate: CertificateDer<'static>,
    directory: PathBuf,
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

async fn start() -> anyhow::Result<Bench> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let program = remora_e2e::harness::program("remora-operator")?;
    let directory = std::env::temp_dir().join(format!("remora-limits-{}", std::process::id()));
    fs::create_dir_all(&directory)?;
    let mut parameters = rcgen::CertificateParams::new(vec![SERVER.to_owned()])?;
    parameters.not_after = rcgen::date_time_ymd(2100, 1, 1);
    let key = rcgen::KeyPair::generate()?;
    let certificate = parameters.self_signed(&key)?;
    fs::write(directory.join("tls.crt"), certificate.pem())?;
    fs::write(directory.join("tls.key"), key.serialize_pem())?;
    let cluster = Cluster::start(Vec::new(), BTreeMap::new()).await;
    let (webhook, admin) = (free_port(), free_port());
    let kubeconfig = kubeconfig(&directory, cluster.address);
    let arguments = [
        "webhook".to_owned(),
        "--sidecar-image=sidecar:1".to_owned(),
        "--log-level=error".to_owned(),
        format!("--webhook-listen={webhook}"),
        format!("--admin-listen={admin}"),
        format!("--certificate-directory={}", directory.display()),
    ];
    let cgroup = Cgroup::new("webhook", chart_limit("webhook"))?;
    let running = Running::start(&program, cgroup, &kubeconfig, &arguments)?;
    let client = reqwest::Client::builder()
        .tls_certs_only([reqwest::Certificate::from_pem(certificate.pem().as_bytes())?])
        .resolve(SERVER, webhook)
        .no_proxy()
        .timeout(CAP)
        .build()?;
    let certificate = certificate.der().clone();
    let bench = Bench { running, webhook, admin, client, certificate, directory };
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
    async fn probe(&self, path: &str) -> anyhow::Result<u16> {
        probe(self.admin, path).await
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

    /// Opens connections that each ask for the largest answer, the one about a pod of the most containers, and read it
    /// too slowly to be done soon, but fast enough not to be cut off. Returns the largest allocated memory in bytes.
    async fn slow_readers(&mut self, count: usize) -> anyhow::Result<u64> {
        let pod = POD.replace(r#"[{"name":"a"}]"#, &format!("[{}]", vec![r#"{"name":"a"}"#; 1000].join(",")));
        let body = review(&pod.replace("MORE", ""));
        let head = "POST /mutate HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: ";
        let request: Bytes = [format!("{head}{}\r\n\r\n", body.len()).as_bytes(), &body].concat().into();
        let mut readers = JoinSet::new();
        let mut most = 0;
        for number in 0..count {
            let mut stream = self.connect().await?;
            stream.write_all(&request).await?;
            let mut start = [0; 12];
            stream.read_exact(&mut start).await?;
            assert_eq!(&start, b"HTTP/1.1 200");
            readers.spawn(async move {
                let mut some = vec![0; 16 << 10];
                while stream.read(&mut some).await.is_ok_and(|read| read > 0) {
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
            });
            if number % 100 == 99 {
                self.works().await;
            }
            most = most.max(self.allocated());
        }
        Ok(most)
    }

    async fn connect(&self) -> anyhow::Result<TlsStream<TcpStream>> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(self.certificate.clone())?;
        let config = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let connector = TlsConnector::from(Arc::new(config));
        Ok(connector.connect(SERVER.try_into()?, TcpStream::connect(self.webhook).await?).await?)
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
            assert!(text.contains("ended before its content-length"), "kind {}: {text}", number % kinds.len());
        }
        // A connection that is refused before its body is read may be reset while it sends, and then there is no
        // status.
        *statuses.entry(answer.map_or(0, |(status, _)| status)).or_default() += 1;
    }
    bench.works().await;
    say(&format!("120 reviews of 8 MiB at once: at most {} MiB; answers {statuses:?}", mib(most)));
    assert!(statuses.keys().all(|status| [0, 200, 400, 408, 503].contains(status)), "{statuses:?}");

    let most = bench.slow_readers(500).await?;
    bench.works().await;
    say(&format!("500 callers that read 80 KiB of their answer each second: at most {} MiB", mib(most)));

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
