//! A release of small files, for tests.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub(crate) const REGISTRY: &str = "registry.example.org/remora";
pub(crate) const SOURCE: &str = "https://code.example.org/remora";
pub(crate) const ARCHITECTURES: [&str; 2] = ["amd64", "arm64"];
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Runs a command, and returns its output.
pub(crate) fn run(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() { Ok(text) } else { Err(format!("{command:?}: {text}{said}")) }
}

/// A directory that is removed with this value.
pub(crate) struct Directory(pub(crate) PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        let _a_directory_that_stays_is_no_failure = std::fs::remove_dir_all(&self.0);
    }
}

impl Directory {
    pub(crate) fn new(name: &str) -> Directory {
        let path = std::env::temp_dir().join(format!("remora-release-{name}-{}", std::process::id()));
        std::fs::create_dir_all(path.join("release")).unwrap();
        std::fs::create_dir_all(path.join("tools")).unwrap();
        Directory(path)
    }

    /// Returns the directory of the release's files.
    pub(crate) fn release(&self) -> PathBuf {
        self.0.join("release")
    }

    /// Returns the call of a script of the release for a registry.
    pub(crate) fn script(&self, name: &str, registry: &str) -> Command {
        let mut command = Command::new(root().join("e2e/release").join(name));
        command.env("RELEASE_DIRECTORY", self.release()).env("RELEASE_TOOLS", self.0.join("tools"));
        command.env("REGISTRY", registry).env("SOURCE_URL", SOURCE);
        command.env_remove("ARCHITECTURES").env_remove("SIGNING_KEY");
        command
    }

    /// Packs a release of small files, and returns its checksums.
    pub(crate) fn pack(&self) -> String {
        self.pack_for(REGISTRY, "")
    }

    /// Packs a release for a registry, and returns its checksums. The content of its programs ends with the mark.
    pub(crate) fn pack_for(&self, registry: &str, mark: &str) -> String {
        for program in ["remora-operator", "remora-sidecar", "kubectl-remora"] {
            for architecture in ARCHITECTURES {
                let file = format!("{program}-linux-{architecture}");
                std::fs::write(self.release().join(&file), file.clone() + mark).unwrap();
            }
        }
        for script in ["plugin.sh", "images.sh", "chart.sh", "checksums.sh"] {
            run(&mut self.script(script, registry)).unwrap();
        }
        std::fs::read_to_string(self.release().join("checksums.txt")).unwrap()
    }

    /// Writes the provenance of a packed release, and its checksums again.
    pub(crate) fn write_provenance(&self, registry: &str) {
        let provenance = run(&mut self.script("provenance.sh", registry)).unwrap();
        std::fs::write(self.release().join("provenance.intoto.json"), provenance).unwrap();
        run(&mut self.script("checksums.sh", registry)).unwrap();
    }

    /// Packs the chart again with other bytes, and writes the checksums.
    pub(crate) fn alter_chart(&self) {
        let chart = self.release().join(format!("remora-{VERSION}.tgz"));
        let file = std::fs::File::options().append(true).open(&chart).unwrap();
        // Another member of gzip, without content.
        let mut empty = Command::new("gzip");
        empty.args(["--no-name", "--stdout"]).stdin(Stdio::null()).stdout(file);
        assert!(empty.status().unwrap().success());
        run(Command::new(root().join("e2e/release/checksums.sh")).env("RELEASE_DIRECTORY", self.release())).unwrap();
    }

    /// Returns a file of an archive in the release.
    pub(crate) fn unpacked(&self, archive: &str, member: &str) -> String {
        run(Command::new("tar").arg("-xOf").arg(self.release().join(archive)).arg(member)).unwrap()
    }
}

/// Returns a requirement for packing a release that this machine lacks.
pub(crate) fn lacking() -> Option<String> {
    for (program, argument) in [("go", "version"), ("jq", "--version"), ("tar", "--version"), ("git", "--version")] {
        if run(Command::new(program).arg(argument)).is_err() {
            return Some(format!("{program}, with which a release is packed"));
        }
    }
    let commit = run(Command::new("git").args(["-c", "safe.directory=*", "rev-parse", "HEAD"]).current_dir(root()));
    commit.is_err().then(|| "a checkout with its history, whose time a release has".to_owned())
}
