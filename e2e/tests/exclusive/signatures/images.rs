//! Signed images in a registry, and images of the same names that somebody altered.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::Context as _;
use remora_e2e::harness::root;
use serde_json::Value;
use tokio::process::Command;

use crate::registry::server::{Registry, output};

/// Programs that sign and copy images, and the directory of the keys.
pub(super) struct Signing {
    /// Search path on which cosign and crane are the first.
    path: String,
    directory: PathBuf,
}

/// Key without a password.
pub(super) struct Key(PathBuf);

impl Key {
    /// Returns the public key in PEM.
    pub(super) fn public(&self) -> anyhow::Result<String> {
        Ok(std::fs::read_to_string(self.0.with_extension("pub"))?)
    }
}

impl Signing {
    pub(super) async fn new(directory: &Path) -> anyhow::Result<Signing> {
        let release = root().join("e2e/release");
        let mut programs = Vec::new();
        for (script, program) in [("cosign.sh", None), ("tools.sh", Some("crane"))] {
            let mut found = Command::new(release.join(script));
            let found = found.args(program).stderr(Stdio::inherit()).output().await?;
            anyhow::ensure!(found.status.success(), "{script} failed: see above");
            programs.push(String::from_utf8(found.stdout)?.trim_end().to_owned());
        }
        programs.push(std::env::var("PATH")?);
        Ok(Signing { path: programs.join(":"), directory: directory.to_owned() })
    }

    /// Creates a pair of keys.
    pub(super) async fn key(&self, name: &str) -> anyhow::Result<Key> {
        let directory = self.directory.join(name);
        std::fs::create_dir_all(&directory)?;
        self.run(Command::new("cosign").arg("generate-key-pair").current_dir(&directory)).await?;
        Ok(Key(directory.join("cosign")))
    }

    /// Returns the variables with which the project's scripts sign by this key.
    pub(super) fn variables(&self, key: &Key) -> [(&'static str, String); 3] {
        let file = key.0.with_extension("key").display().to_string();
        [("PATH", self.path.clone()), ("COSIGN_KEY", file), ("COSIGN_PASSWORD", String::new())]
    }

    /// Signs an image in the form in which the project's script signs.
    pub(super) async fn sign(&self, image: &str, key: &Key) -> anyhow::Result<()> {
        let form = ["--new-bundle-format=false", "--use-signing-config=false", "--tlog-upload=false"];
        let mut cosign = Command::new("cosign");
        cosign.args(["sign", "--yes", "--allow-http-registry"]).args(form);
        self.run(cosign.arg("--key").arg(key.0.with_extension("key")).arg(image)).await?;
        Ok(())
    }

    /// Returns the digest of an image.
    pub(super) async fn digest(&self, image: &str) -> anyhow::Result<String> {
        Ok(self.crane(&["digest", image]).await?.trim().to_owned())
    }

    /// Pushes an image that does the same as the release's, under its name and with another digest, which nobody has
    /// signed. Returns the digest.
    pub(super) async fn alter(&self, registry: &Registry, name: &str) -> anyhow::Result<String> {
        let place = format!("{}/{name}", registry.place());
        // The release has an index of one image for each architecture.
        let index: Value =
            serde_json::from_str(&self.crane(&["manifest", &format!("{place}:{}", env!("CARGO_PKG_VERSION"))]).await?)?;
        let image = index["manifests"][0]["digest"].as_str().context("an index without images")?;
        let altered = format!("{place}:altered");
        self.crane(&["mutate", &format!("{place}@{image}"), "--label", "altered=yes", "--tag", &altered]).await?;
        self.digest(&altered).await
    }

    /// Puts the signature of an image beside another image of the same name.
    pub(super) async fn copy_signature(&self, place: &str, from: &str, to: &str) -> anyhow::Result<()> {
        let tag = |digest: &str| format!("{place}:{}.sig", digest.replace(':', "-"));
        self.crane(&["copy", &tag(from), &tag(to)]).await?;
        Ok(())
    }

    async fn crane(&self, words: &[&str]) -> anyhow::Result<String> {
        let ended = Command::new("crane").env("PATH", &self.path).arg("--insecure").args(words).output().await?;
        let said = String::from_utf8_lossy(&ended.stderr);
        anyhow::ensure!(ended.status.success(), "crane {words:?}: {said}");
        Ok(String::from_utf8(ended.stdout)?)
    }

    async fn run(&self, command: &mut Command) -> anyhow::Result<String> {
        output(command.env("PATH", &self.path).env("COSIGN_PASSWORD", "")).await
    }
}
