//! A sidecar that serves a server's document, as a process.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};

use remora_e2e::harness::program;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

pub(crate) struct Sidecar {
    /// Base URL of the flag API.
    pub(crate) url: String,
    directory: PathBuf,
    #[expect(dead_code, reason = "the process ends with this value")]
    child: Child,
}

impl Sidecar {
    /// Compiles a document and serves it on a free port.
    pub(crate) async fn start(document: &str, server_key: &str) -> Sidecar {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("remora-server-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).unwrap();
        let file = directory.join("document.json");
        std::fs::write(&file, document).unwrap();
        let snapshots = directory.join("snapshots");
        let mut compile = Command::new(program("remora-operator").unwrap());
        compile.args(["compile", "--name", "remora", "--environment-key", server_key, "--document"]).arg(file);
        let compiled = compile.arg("--output").arg(&snapshots).output().await.unwrap();
        assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));

        let mut serve = Command::new(program("remora-sidecar").unwrap());
        serve.arg("--snapshots").arg(snapshots).args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
        let mut child = serve.stderr(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
        let url = loop {
            let line = log.next_line().await.unwrap().expect("the sidecar ended instead of listening");
            if let Some((_, addresses)) = line.split_once("flags on ") {
                let (data, _) = addresses.split_once(',').expect("two addresses");
                break format!("http://{data}/api/v1/");
            }
        };
        tokio::spawn(async move { while let Ok(Some(_)) = log.next_line().await {} });
        Sidecar { url, directory, child }
    }
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
