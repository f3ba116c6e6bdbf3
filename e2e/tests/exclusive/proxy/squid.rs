//! Debian's squid on the machine of the local cluster. It stops when its value is dropped.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use remora_e2e::harness::{eventually, root};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

/// Time in which the proxy starts, with the download of its packages.
const CAP: Duration = Duration::from_secs(300);
/// Address of the cluster's bridge, which pods reach (`REMORA_NODE_IP` in `env.sh`).
const NODE: &str = "10.213.0.1";
/// Name of the server, which only the proxy knows.
pub(super) const SERVER: &str = "flags.remora-e2e.test";
/// User and password of the proxy. A password may have colons and any other characters.
pub(super) const USER: &str = "remora";
const PASSWORD: &str = "not:a@secret/ä";

/// Proxy that opens tunnels to [`SERVER`] for its user, and refuses all others.
pub(super) struct Squid {
    directory: PathBuf,
    address: String,
    _process: Child,
}

impl Squid {
    pub(super) async fn start() -> anyhow::Result<Squid> {
        let directory = std::env::temp_dir().join(format!("remora-squid-{}", std::process::id()));
        std::fs::create_dir_all(&directory)?;
        // The port is free again when the proxy binds it.
        let address = TcpListener::bind((NODE, 0))?.local_addr()?.to_string();
        let log = std::fs::File::create(directory.join("log"))?;
        let mut squid = Command::new(root().join("e2e/cluster/squid.sh"));
        squid.arg(&directory).args([&address, SERVER, USER, PASSWORD]);
        squid.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let mut process = squid.kill_on_drop(true).spawn()?;
        tokio::select! {
            answers = eventually("the proxy answers", CAP, async || Ok(TcpStream::connect(&address).await.ok())) => drop(answers?),
            ended = process.wait() => {
                let said = std::fs::read_to_string(directory.join("log"))?;
                anyhow::bail!("squid.sh ended: {}: {said}", ended?)
            }
        }
        Ok(Squid { directory, address, _process: process })
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(super) fn password(&self) -> &'static str {
        PASSWORD
    }

    /// Returns the log of requests: a line for each tunnel that ended or was refused.
    pub(super) fn log(&self) -> anyhow::Result<String> {
        let path = self.directory.join("access.log");
        std::fs::read_to_string(&path).with_context(|| path.display().to_string())
    }
}

impl Drop for Squid {
    fn drop(&mut self) {
        // A directory that stays does not justify another failure.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
