//! Sidecar that serves the sample document, as a process.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use remora_e2e::harness::program;
use reqwest::header::{HeaderMap, HeaderName};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::expected::{Expected, Role};

/// Time limit that is longer than any operation takes here on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) fn document() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/document.json")
}

/// Compiles a document into a directory that a sidecar serves.
async fn compile(expected: &Expected, document: &Path, directory: &Path, choices: &[&str]) {
    let mut compile = Command::new(program("remora-operator").unwrap());
    compile.args(["compile", "--name", "production", "--environment-key", expected.key(Role::Server)]);
    compile.arg("--environment-document").args(choices);
    compile.arg("--document").arg(document).arg("--output").arg(directory);
    let compiled = compile.output().await.unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
}

/// Waits until a condition is true.
pub(crate) async fn eventually(what: &str, is_so: impl AsyncFn() -> bool) {
    let wait = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, wait).await.is_ok(), "not within {PATIENCE:?}: {what}");
}

pub(crate) struct Sidecar {
    child: Child,
    directory: PathBuf,
    http: reqwest::Client,
    /// Base URL of the flag APIs, such as `http://127.0.0.1:4777`.
    pub(crate) data: String,
    admin: String,
}

impl Sidecar {
    /// Compiles the document and serves it on free ports.
    pub(crate) async fn start(expected: &Expected) -> Sidecar {
        Sidecar::start_with(expected, &[]).await
    }

    /// Does the same with other compiler options.
    pub(crate) async fn start_with(expected: &Expected, choices: &[&str]) -> Sidecar {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("remora-clients-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let directory = std::env::temp_dir().join(name);
        compile(expected, &document(), &directory, choices).await;

        let mut serve = Command::new(program("remora-sidecar").unwrap());
        serve.arg("--snapshots").arg(&directory).args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
        let mut child = serve.stderr(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut said = Vec::new();
        let (data, admin) = loop {
            let line = log.next_line().await.unwrap();
            let line = line.unwrap_or_else(|| panic!("the sidecar ended instead of listening: {said:#?}"));
            if let Some((_, addresses)) = line.split_once("flags on ") {
                let (data, admin) = addresses.split_once(", health and metrics on ").expect("both addresses");
                break (format!("http://{data}"), format!("http://{admin}"));
            }
            said.push(line);
        };
        // The sidecar logs nothing per request, but a full pipe would block it if such a line were added.
        tokio::spawn(async move { while let Ok(Some(_)) = log.next_line().await {} });
        let _installed_already = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().no_proxy().timeout(PATIENCE).build().unwrap();
        Sidecar { child, directory, http, data, admin }
    }

    /// Publishes another document to the sidecar, as delivery does.
    pub(crate) async fn publish(&self, expected: &Expected, document: &Value) {
        let path = self.directory.with_extension("json");
        tokio::fs::write(&path, document.to_string()).await.unwrap();
        compile(expected, &path, &self.directory, &[]).await;
        tokio::fs::remove_file(&path).await.unwrap();
    }

    /// Stops the sidecar and waits until it has exited.
    pub(crate) async fn stop(mut self) {
        let id = self.child.id().and_then(|id| rustix::process::Pid::from_raw(id.cast_signed())).expect("it runs");
        rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
        let status = tokio::time::timeout(PATIENCE, self.child.wait()).await.expect("it ends when it is told to");
        assert!(status.unwrap().success(), "it ends well");
    }

    /// Returns the number of answers by route and status class.
    pub(crate) async fn answers(&self, route: &str, class: &str) -> u64 {
        self.metric(&format!("remora_sidecar_requests_total{{route=\"{route}\",status=\"{class}\"}}")).await
    }

    /// Returns the value of a metric; a missing metric counts as zero.
    async fn metric(&self, name: &str) -> u64 {
        let page = self.http.get(format!("{}/metrics", self.admin)).send().await.unwrap().text().await.unwrap();
        let number = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok();
        page.lines().find_map(number).unwrap_or_default()
    }

    /// Waits until the sidecar gave such an answer.
    pub(crate) async fn await_answer(&self, route: &str, class: &str) {
        eventually(&format!("an answer {class} to {route}"), async || self.answers(route, class).await > 0).await;
    }

    /// Waits until a client has an open event stream.
    pub(crate) async fn await_listener(&self) {
        eventually("somebody who listens", async || self.metric("remora_sidecar_streams").await > 0).await;
    }

    /// Returns the address of the flag APIs.
    pub(crate) fn address(&self) -> SocketAddr {
        self.data.trim_start_matches("http://").parse().expect("an address")
    }

    /// Returns the answer to a plain request, which must be JSON with status 200.
    pub(crate) async fn ask(&self, path: &str, headers: &[(&str, &str)], body: Option<&Value>) -> Value {
        let url = format!("{}{path}", self.data);
        let request = body.map_or_else(|| self.http.get(&url), |body| self.http.post(&url).json(body));
        let headers: HeaderMap =
            headers.iter().map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap())).collect();
        let response = request.headers(headers).send().await.unwrap();
        assert_eq!(response.status(), 200, "{path}");
        response.json().await.unwrap()
    }
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        // A leftover directory does not justify another failure.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
