//! Tests that the dependencies of all crates follow `deny.toml`: licences, versions and sources. cargo-deny reads the same
//! file and checks more; this test needs nothing but cargo.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use remora_testing::not_run;
use semver::{Version, VersionReq};
use serde::Deserialize;
use spdx::{Expression, ParseMode};

/// The parts of `deny.toml` that this test applies.
#[derive(Deserialize)]
struct Policy {
    licenses: Licenses,
    bans: Bans,
}

#[derive(Deserialize)]
struct Licenses {
    allow: Vec<String>,
}

#[derive(Deserialize)]
struct Bans {
    skip: Vec<Skip>,
}

/// A version that may exist beside another one.
#[derive(Deserialize)]
struct Skip {
    /// `name:requirement`.
    #[serde(rename = "crate")]
    package: String,
    reason: String,
}

/// Output of `cargo metadata`.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
}

#[derive(Clone, Deserialize)]
struct Package {
    id: String,
    name: String,
    version: Version,
    license: Option<String>,
    /// `None` for the crates of this workspace.
    source: Option<String>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn policy() -> Policy {
    toml::from_str(&std::fs::read_to_string(root().join("deny.toml")).unwrap()).unwrap()
}

/// Returns the crates of others that are built for this machine. Reports the calling test as not run if their sources
/// are not complete.
#[track_caller]
fn dependencies() -> Option<Vec<Package>> {
    let version = Command::new("rustc").arg("-vV").output().unwrap();
    let version = String::from_utf8(version.stdout).unwrap();
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).expect("rustc names its host");
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--locked", "--offline", "--filter-platform", host])
        .current_dir(root())
        .output()
        .unwrap();
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr).trim().replace('\n', " ");
        not_run(&format!("the sources of all crates (cargo fetch --locked): {error}"));
        return None;
    }
    let metadata: Metadata = serde_json::from_slice(&output.stdout).unwrap();
    let built: BTreeSet<String> = metadata.resolve.nodes.into_iter().map(|node| node.id).collect();
    let others = |package: &Package| package.source.is_some() && built.contains(&package.id);
    let packages: Vec<Package> = metadata.packages.into_iter().filter(others).collect();
    assert!(packages.len() > 100, "only {} crates", packages.len());
    Some(packages)
}

/// Returns true if the allowed licences fulfil a crate's licence expression.
fn is_allowed(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let expression = Expression::parse_mode(expression, ParseMode::LAX).unwrap_or_else(|error| panic!("{error}"));
    expression.evaluate(|requirement| allowed.contains(&requirement.to_string()))
}

/// Returns the versions that are neither the newest of their crate nor skipped, and the skips that no version needs.
fn duplicates(versions: &[(String, Version)], skips: &[Skip]) -> (Vec<String>, Vec<String>) {
    let mut by_name: BTreeMap<&str, BTreeSet<&Version>> = BTreeMap::new();
    for (name, version) in versions {
        by_name.entry(name).or_default().insert(version);
    }
    let skips = skips.iter().map(|skip| skip.package.split_once(':').unwrap_or_else(|| panic!("{}", skip.package)));
    let skips: Vec<(&str, VersionReq)> = skips.map(|(name, version)| (name, version.parse().unwrap())).collect();
    let mut needed = vec![false; skips.len()];
    let mut found = Vec::new();
    for (name, versions) in by_name {
        for version in versions.iter().rev().skip(1) {
            match skips.iter().position(|(skipped, versions)| *skipped == name && versions.matches(version)) {
                Some(place) => needed[place] = true,
                None => found.push(format!("{name} {version}")),
            }
        }
    }
    let unneeded =
        skips.iter().zip(needed).filter(|(_, needed)| !needed).map(|((name, version), _)| format!("{name}:{version}"));
    (found, unneeded.collect())
}

#[test]
fn licences_of_dependencies_are_allowed() {
    let Some(packages) = dependencies() else { return };
    let allowed: BTreeSet<String> = policy().licenses.allow.into_iter().collect();
    let refused: Vec<String> = packages
        .iter()
        .filter(|package| !package.license.as_deref().is_some_and(|license| is_allowed(license, &allowed)))
        .map(|package| format!("{} {}: {:?}", package.name, package.version, package.license))
        .collect();
    assert!(refused.is_empty(), "deny.toml does not allow the licences of\n{}", refused.join("../.."));
}

#[test]
fn dependencies_come_from_registry() {
    let Some(packages) = dependencies() else { return };
    let is_registry = |source: &str| source.starts_with("registry+") || source.starts_with("sparse+");
    let others: Vec<_> =
        packages.iter().filter(|package| !package.source.as_deref().is_some_and(is_registry)).collect();
    assert!(others.is_empty(), "{:?}", others.iter().map(|package| &package.id).collect::<Vec<_>>());
}

#[test]
fn second_versions_of_crate_have_reason() {
    let Some(packages) = dependencies() else { return };
    let skips = policy().bans.skip;
    assert!(skips.iter().all(|skip| skip.reason.len() > 20), "a skip without a reason");
    let versions: Vec<_> = packages.into_iter().map(|package| (package.name, package.version)).collect();
    let (found, unneeded) = duplicates(&versions, &skips);
    assert!(
        found.is_empty(),
        "older versions beside newer ones: {}. Use one version, or add the older one to bans.skip in deny.toml with the \
         reason",
        found.join("../..")
    );
    assert!(unneeded.is_empty(), "bans.skip in deny.toml has entries that no crate needs: {}", unneeded.join("../.."));
}

#[test]
fn licence_expression_needs_one_allowed_alternative() {
    let allowed = BTreeSet::from(["MIT".to_owned(), "Apache-2.0 WITH LLVM-exception".to_owned()]);
    for (expression, expected) in [
        ("MIT OR GPL-3.0-only", true),
        ("MIT/Apache-2.0", true),
        ("MIT AND BSD-3-Clause", false),
        ("Apache-2.0", false),
        ("Apache-2.0 WITH LLVM-exception", true),
    ] {
        assert_eq!(is_allowed(expression, &allowed), expected, "{expression}");
    }
}

#[test]
fn older_version_is_found_unless_skipped() {
    let versions: Vec<(String, Version)> = [("a", "1.0.0"), ("a", "2.1.0"), ("b", "1.0.0")]
        .map(|(name, version)| (name.to_owned(), version.parse().unwrap()))
        .into();
    let skip = |package: &str| Skip { package: package.to_owned(), reason: String::new() };
    assert_eq!(duplicates(&versions, &[]), (vec!["a 1.0.0".to_owned()], vec![]));
    assert_eq!(duplicates(&versions, &[skip("a:^1")]), (vec![], vec![]));
    assert_eq!(duplicates(&versions, &[skip("a:^2")]), (vec!["a 1.0.0".to_owned()], vec!["a:^2".to_owned()]));
}
