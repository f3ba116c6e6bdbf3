//! Tests that everything which states a version states the one of the workspace's `Cargo.toml`. `make generate` writes it
//! to the chart.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::process::Command;

use remora_testing::{assert_generated, not_run};
use semver::Version;

/// Version of the workspace, which this crate inherits.
const VERSION: &str = env!("CARGO_PKG_VERSION");

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns the chart's metadata with this version in each place.
fn with_version(metadata: &str, version: &str) -> String {
    let lines = metadata.lines().map(|line| {
        let key = ["version: ", "appVersion: "].into_iter().find(|key| line.starts_with(key));
        key.map_or_else(|| line.to_owned(), |key| format!("{key}{version}")) + "\n"
    });
    lines.collect()
}

/// Returns the first heading of the changelog's versions: a version and its state.
fn newest(changelog: &str) -> (&str, &str) {
    let heading = changelog.lines().find_map(|line| line.strip_prefix("## ")).expect("a heading");
    heading.split_once(' ').unwrap_or((heading, ""))
}

/// Returns true for the state of a version in the changelog: its date, or that it is not released.
fn is_state(state: &str) -> bool {
    let is_date = |text: &str| {
        let parts: Vec<&str> = text.split('-').collect();
        let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
        lengths == [4, 2, 2] && parts.iter().all(|part| part.bytes().all(|byte| byte.is_ascii_digit()))
    };
    state.strip_prefix('(').and_then(|state| state.strip_suffix(')')).is_some_and(|s| s == "unreleased" || is_date(s))
}

/// Returns the version of the chart at the commit that upgrade tests start from.
fn previous() -> Result<String, String> {
    let script = read("e2e/cluster/previous.sh");
    let commit = script.lines().find_map(|line| line.strip_prefix("commit=")).expect("previous.sh names a commit");
    let mut git = Command::new("git");
    let object = format!("{commit}:charts/remora/Chart.yaml");
    let output = git.args(["-c", "safe.directory=*", "show", &object]).current_dir(root()).output();
    let output = output.map_err(|error| format!("git: {error}"))?;
    if !output.status.success() {
        return Err(format!("the whole history (git fetch --unshallow): {}", String::from_utf8_lossy(&output.stderr)));
    }
    let metadata = String::from_utf8(output.stdout).unwrap();
    let version = metadata.lines().find_map(|line| line.strip_prefix("version: ")).expect("a version");
    Ok(version.to_owned())
}

#[test]
fn every_crate_inherits_version() {
    let workspace: toml::Table = read("Cargo.toml").parse().unwrap();
    let members = workspace["workspace"]["members"].as_array().unwrap();
    assert!(members.len() > 5, "{members:?}");
    for member in members {
        let manifest: toml::Table = read(&format!("{}/Cargo.toml", member.as_str().unwrap())).parse().unwrap();
        let version = &manifest["package"]["version"];
        assert_eq!(version.get("workspace").and_then(toml::Value::as_bool), Some(true), "{member:?}: {version:?}");
    }
}

#[test]
fn chart_has_version_of_workspace() {
    let path = root().join("charts/remora/Chart.yaml");
    let metadata = read("charts/remora/Chart.yaml");
    assert_generated(&path, &with_version(&metadata, VERSION));
    for key in ["version", "appVersion"] {
        assert!(with_version(&metadata, VERSION).contains(&format!("\n{key}: {VERSION}\n")), "the chart has no {key}");
    }
}

#[test]
fn images_of_chart_have_its_version_by_default() {
    let values = read("charts/remora/values.yaml");
    let tags: Vec<&str> = values.lines().filter_map(|line| line.trim().strip_prefix("tag: ")).collect();
    assert_eq!(tags, [r#""""#, r#""""#], "an empty tag is the chart's appVersion");
}

#[test]
fn readme_installs_version() {
    let readme = read("README.md");
    let install = readme.lines().find(|line| line.contains("helm install remora oci://")).expect("an installation");
    assert!(install.contains(&format!(" --version {VERSION} ")), "README.md installs another version: {install}");
}

#[test]
fn chart_needs_oldest_kubernetes_that_tests_run_on() {
    let modules = read("e2e/cluster/go/kube/go.mod");
    let tested = modules.lines().find_map(|line| line.trim().strip_prefix("k8s.io/kubernetes v")).expect("a version");
    let (minor, _) = tested.rsplit_once('.').expect("a patch");
    for (path, words) in [
        ("charts/remora/Chart.yaml", format!("\nkubeVersion: \">={minor}.0-0\"\n")),
        ("README.md", format!("\nRemora needs Kubernetes {minor} or later. ")),
        ("charts/remora/README.md", format!("\nThe chart needs Kubernetes {minor} or later ")),
        ("SECURITY.md", format!("| Kubernetes {minor} or later. All tests run on {minor},")),
    ] {
        assert!(read(path).contains(&words), "{path} does not have {words:?}");
    }
}

#[test]
fn definition_is_annotated_with_version() {
    let annotation = format!("\n    remora.dev/version: {VERSION}\n");
    for path in ["crds/featureenvironments.yaml", "charts/remora/templates/crds.yaml"] {
        assert!(read(path).contains(&annotation), "{path}: make generate");
    }
}

#[test]
fn changelog_begins_with_version() {
    let changelog = read("CHANGELOG.md");
    let (version, state) = newest(&changelog);
    assert_eq!(version, VERSION, "the first section of CHANGELOG.md");
    assert!(is_state(state), "{state:?} is neither (unreleased) nor a date such as (2026-01-31)");
}

#[test]
fn upgrade_from_previous_version_is_documented() {
    let previous = match previous() {
        Ok(previous) => previous,
        Err(missing) => return not_run(&missing),
    };
    let is_older = Version::parse(&previous).unwrap() < Version::parse(VERSION).unwrap();
    assert!(is_older, "upgrade tests start from {previous}, which is not before {VERSION}");
    let readme = read("charts/remora/README.md");
    for row in [format!("| {previous} to {VERSION} |"), format!("| back from {VERSION} to {previous} |")] {
        assert!(readme.contains(&row), "charts/remora/README.md has no row {row}");
    }
}

#[test]
fn readme_says_whether_version_is_released() {
    let changelog = read("CHANGELOG.md");
    let is_released = newest(&changelog).1 != "(unreleased)";
    let says_unreleased = read("README.md").contains(&format!("\nVersion {VERSION} is not released yet"));
    assert_ne!(says_unreleased, is_released, "the section Status of README.md, and the first heading of CHANGELOG.md");
}

#[test]
fn state_is_date_or_unreleased() {
    assert_eq!(newest("# Changelog\n\n## 1.2.3 (unreleased)\n\n## 1.2.2 (2026-01-31)\n"), ("1.2.3", "(unreleased)"));
    for (state, expected) in
        [("(unreleased)", true), ("(2026-01-31)", true), ("(soon)", false), ("2026-01-31", false), ("", false)]
    {
        assert_eq!(is_state(state), expected, "{state}");
    }
}

#[test]
fn version_is_written_to_chart_only_where_it_belongs() {
    let metadata = "apiVersion: v2\nversion: 1.0.0\nappVersion: 0.9.0\nkubeVersion: \">=1.30.0-0\"\n";
    let expected = "apiVersion: v2\nversion: 2.0.0\nappVersion: 2.0.0\nkubeVersion: \">=1.30.0-0\"\n";
    assert_eq!(with_version(metadata, "2.0.0"), expected);
}
