//! Registries on the node of the local cluster. A registry stops when its value is dropped.

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use remora_e2e::harness::{eventually, root};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

const CAP: Duration = Duration::from_secs(60);
/// User and password of the private registry.
pub(crate) const USER: [&str; 2] = ["puller", "not-secret"];

/// Two registries with one content: one answers everybody, the other one its user only.
pub(crate) struct Registries {
    directory: PathBuf,
    pub(crate) open: Registry,
    pub(crate) private: Registry,
}

/// Registry at an address of this machine.
pub(crate) struct Registry {
    address: String,
    _process: Child,
}

impl Registries {
    pub(crate) async fn start() -> anyhow::Result<Registries> {
        let directory = std::env::temp_dir().join(format!("remora-registry-{}", std::process::id()));
        std::fs::create_dir_all(&directory)?;
        let (open, private) = tokio::try_join!(Registry::start(&directory, &[]), Registry::start(&directory, &USER))?;
        Ok(Registries { directory, open, private })
    }

    /// Publishes a release of the programs that the cluster's images have, with these variables of the scripts, and
    /// returns the chart's reference by digest.
    pub(crate) async fn publish(&self, variables: &[(&str, String)]) -> anyhow::Result<String> {
        let mut trial = Command::new(root().join("e2e/release/trial.sh"));
        trial.arg(self.directory.join("release")).env("REGISTRY", self.open.place()).env("PLAIN_HTTP", "true");
        trial.envs(variables.iter().map(|(name, value)| (name, value)));
        let said = output(trial.env_remove("CI")).await?;
        let chart = said.split_whitespace().find(|word| word.contains("/charts/remora@sha256:"));
        Ok(chart.with_context(|| format!("no chart was published: {said}"))?.to_owned())
    }

    /// Returns the directory of the registries' files, which is deleted with this value.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Changes a byte of the one stored file that begins with these bytes, as an attacker with access to the registry's
    /// disk could.
    pub(crate) fn alter(&self, beginning: &[u8]) -> anyhow::Result<Altered> {
        let mut found = Vec::new();
        files(&self.directory.join("content"), &mut found)?;
        let read = found.into_iter().map(|path| std::fs::read(&path).map(|content| (path, content)));
        let mut stored = read.collect::<Result<Vec<_>, _>>()?;
        stored.retain(|(_, content)| content.starts_with(beginning));
        anyhow::ensure!(stored.len() == 1, "{} stored files begin with {beginning:?}", stored.len());
        let (path, content) = stored.remove(0);
        let mut changed = content.clone();
        let byte = changed.last_mut().context("an empty file")?;
        *byte = !*byte;
        std::fs::write(&path, changed)?;
        Ok(Altered { path, content })
    }
}

impl Drop for Registries {
    fn drop(&mut self) {
        // A directory that stays does not justify another failure.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

impl Registry {
    async fn start(directory: &Path, user: &[&str]) -> anyhow::Result<Registry> {
        // The port is free again when the registry binds it.
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let log = std::fs::File::create(directory.join(format!("log-{port}")))?;
        let mut registry = Command::new(root().join("e2e/release/registry.sh"));
        registry.arg(directory).arg(port.to_string()).args(user);
        registry.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let process = registry.kill_on_drop(true).spawn()?;
        let address = format!("127.0.0.1:{port}");
        eventually("the registry answers", CAP, async || Ok(TcpStream::connect(&address).await.ok())).await?;
        Ok(Registry { address, _process: process })
    }

    /// Returns the address of the registry.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Returns the place of the images and the chart.
    pub(crate) fn place(&self) -> String {
        format!("{}/remora", self.address)
    }
}

/// Stored file with a changed byte.
pub(crate) struct Altered {
    path: PathBuf,
    content: Vec<u8>,
}

impl Altered {
    pub(crate) fn restore(self) -> anyhow::Result<()> {
        std::fs::write(&self.path, &self.content).with_context(|| self.path.display().to_string())
    }
}

/// Appends the files below a directory.
fn files(directory: &Path, found: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(directory).with_context(|| directory.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            files(&path, found)?;
        } else {
            found.push(path);
        }
    }
    Ok(())
}

/// Runs a command and returns what it prints.
pub(crate) async fn output(command: &mut Command) -> anyhow::Result<String> {
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output().await?;
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    anyhow::ensure!(output.status.success(), "{:?}: {said}", command.as_std());
    Ok(said)
}
