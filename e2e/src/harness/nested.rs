//! Runs cargo from a test that cargo runs.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use anyhow::Context as _;

/// Removes the variables that cargo sets for a test of its own package. With them, a nested cargo would see another
/// environment than a cargo that is run by hand, and would rebuild some crates (ring and all crates that depend on it)
/// each time.
pub fn forget_package(command: &mut Command) -> &mut Command {
    for (name, _) in std::env::vars_os() {
        let told = name.to_str().unwrap_or_default();
        if told == "OUT_DIR" || told.starts_with("CARGO_PKG_") || told.starts_with("CARGO_MANIFEST_") {
            command.env_remove(name);
        }
    }
    command
}

/// Returns the path of a program of the workspace, built with the profile of this test.
///
/// # Errors
///
/// Returns an error if the build fails; cargo prints the cause.
pub fn program(name: &str) -> anyhow::Result<PathBuf> {
    static BUILT: LazyLock<Result<PathBuf, String>> = LazyLock::new(|| build().map_err(|error| format!("{error:#}")));
    let path = BUILT.as_ref().map_err(|error| anyhow::anyhow!("{error}"))?.join(name);
    anyhow::ensure!(path.is_file(), "cargo built {name}, but it is not at {}", path.display());
    Ok(path)
}

/// Builds the programs and returns their directory.
fn build() -> anyhow::Result<PathBuf> {
    let test = std::env::current_exe()?;
    let directory = test.parent().and_then(Path::parent).context("a test is in target/PROFILE/deps")?;
    let profile = directory.file_name().and_then(|name| name.to_str()).context("a profile has a name")?;
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    cargo.current_dir(env!("CARGO_MANIFEST_DIR")).args(["build", "--quiet"]);
    cargo.args(std::env::var("CARGO_FLAGS").unwrap_or_default().split_whitespace());
    cargo.args(["-p", "remora-operator", "-p", "remora-sidecar", "--bins"]);
    cargo.args(["--profile", if profile == "debug" { "dev" } else { profile }, "--target-dir"]);
    cargo.arg(directory.parent().context("a profile is in target")?);
    let status = forget_package(&mut cargo).status()?;
    anyhow::ensure!(status.success(), "remora-operator and remora-sidecar could not be built: see above");
    Ok(directory.to_owned())
}
