//! A sidecar that serves the sample document, as a process.

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

/// Longer than anything here takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) fn document() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/document.json")
}

/// Compiles a document to where a sidecar serves it from.
async fn compile(expected: &Expected, document: &Path, directory: &Path, choices: &[&str]) {
    let mut compile = Command::new(program("remora-operator").unwrap());
    compile.args(["compile", "--name", "production", "--environment-key", expected.key(Role::Server)]);
    compile.arg("--environment-document").args(choices);
    compile.arg("--document").arg(document).arg("--output").arg(directory);
    let compiled = compile.output().await.unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
}

/// Waits until something is so.
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
    /// Where flags are, such as `http://127.0.0.1:4777`.
    pub(crate) data: String,
    admin: String,
}

impl Sidecar {
    /// Compiles the document, and serves it on ports that are free.
    pub(crate) async fn start(expected: &Expected) -> Sidecar {
        Sidecar::start_with(expected, &[]).await
    }

    /// The same, compiled with other choices.
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
        // Nothing is logged per request, but a pipe that nobody empties would be a trap for who adds such a line.
        tokio::spawn(async move { while let Ok(Some(_)) = log.next_line().await {} });
        let _installed_already = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().no_proxy().timeout(PATIENCE).build().unwrap();
        Sidecar { child, directory, http, data, admin }
    }

    /// Has it serve another document, as delivery does.
    pub(crate) async fn publish(&self, expected: &Expected, document: &Value) {
        let path = self.directory.with_extension("json");
        tokio::fs::write(&path, document.to_string()).await.unwrap();
        compile(expected, &path, &self.directory, &[]).await;
        tokio::fs::remove_file(&path).await.unwrap();
    }

    /// Tells it to end, and waits until it has.
    pub(crate) async fn stop(mut self) {
        let id = self.child.id().and_then(|id| rustix::process::Pid::from_raw(id.cast_signed())).expect("it runs");
        rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
        let status = tokio::time::timeout(PATIENCE, self.child.wait()).await.expect("it ends when it is told to");
        assert!(status.unwrap().success(), "it ends well");
    }

    /// How many answers it gave.
    pub(crate) async fn answers(&self, route: &str, class: &str) -> u64 {
        self.metric(&format!("remora_sidecar_requests_total{{route=\"{route}\",status=\"{class}\"}}")).await
    }

    /// A number among its metrics; none is zero.
    async fn metric(&self, name: &str) -> u64 {
        let page = self.http.get(format!("{}/metrics", self.admin)).send().await.unwrap().text().await.unwrap();
        let number = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok();
        page.lines().find_map(number).unwrap_or_default()
    }

    /// Waits until it gave such an answer.
    pub(crate) async fn await_answer(&self, route: &str, class: &str) {
        eventually(&format!("an answer {class} to {route}"), async || self.answers(route, class).await > 0).await;
    }

    /// Waits until somebody listens.
    pub(crate) async fn await_listener(&self) {
        eventually("somebody who listens", async || self.metric("remora_sidecar_streams").await > 0).await;
    }

    /// Where its answers come from.
    pub(crate) fn address(&self) -> SocketAddr {
        self.data.trim_start_matches("http://").parse().expect("an address")
    }

    /// An answer to a plain request, which has to be JSON and 200.
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
        // What is left there is not worth another failure.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
