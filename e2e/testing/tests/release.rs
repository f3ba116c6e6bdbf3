//! Tests of `make release` that need no build: small files stand for the programs, and the workflows only call make.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::process::Command;

use remora_testing::not_run;
use serde_json::Value;

const REGISTRY: &str = "registry.example.org/remora";
const SOURCE: &str = "https://code.example.org/remora";
const ARCHITECTURES: [&str; 2] = ["amd64", "arm64"];
const VERSION: &str = env!("CARGO_PKG_VERSION");
const WORKFLOWS: [&str; 3] = ["advisories.yaml", "checks.yaml", "release.yaml"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Runs a command, and returns its output.
fn run(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() { Ok(text) } else { Err(format!("{command:?}: {text}{said}")) }
}

/// A directory that is removed with this value.
struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        let _a_directory_that_stays_is_no_failure = std::fs::remove_dir_all(&self.0);
    }
}

impl Directory {
    fn new(name: &str) -> Directory {
        let path = std::env::temp_dir().join(format!("remora-release-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Directory(path)
    }

    /// Packs a release of small files, and returns its checksums.
    fn pack(&self) -> String {
        let (release, tools) = (self.0.join("release"), self.0.join("tools"));
        std::fs::create_dir_all(&release).unwrap();
        std::fs::create_dir_all(&tools).unwrap();
        for program in ["remora-operator", "remora-sidecar", "kubectl-remora"] {
            for architecture in ARCHITECTURES {
                let file = format!("{program}-linux-{architecture}");
                std::fs::write(release.join(&file), file).unwrap();
            }
        }
        for script in ["plugin.sh", "images.sh", "chart.sh", "checksums.sh"] {
            let mut command = Command::new(root().join("e2e/release").join(script));
            command.env("RELEASE_DIRECTORY", &release).env("RELEASE_TOOLS", &tools).env("REGISTRY", REGISTRY);
            command.env("SOURCE_URL", SOURCE);
            run(command.env_remove("ARCHITECTURES").env_remove("SIGNING_KEY")).unwrap();
        }
        std::fs::read_to_string(release.join("checksums.txt")).unwrap()
    }

    /// Returns a file of an archive in the release.
    fn unpacked(&self, archive: &str, member: &str) -> String {
        run(Command::new("tar").arg("-xOf").arg(self.0.join("release").join(archive)).arg(member)).unwrap()
    }
}

/// Returns a requirement for packing a release that this machine lacks.
fn lacking() -> Option<String> {
    for (program, argument) in [("go", "version"), ("jq", "--version"), ("tar", "--version"), ("git", "--version")] {
        if run(Command::new(program).arg(argument)).is_err() {
            return Some(format!("{program}, with which a release is packed"));
        }
    }
    let commit = run(Command::new("git").args(["-c", "safe.directory=*", "rev-parse", "HEAD"]).current_dir(root()));
    commit.is_err().then(|| "a checkout with its history, whose time a release has".to_owned())
}

/// Checks the manifest by the rules of krew's own validation (`internal/index/validation` of krew 0.4), and the rules of
/// its index about archives.
#[test]
fn manifest_of_plugin_is_valid_for_krew_and_names_its_archives() {
    if let Some(lacking) = lacking() {
        return not_run(&lacking);
    }
    let directory = Directory::new("plugin");
    let sums = directory.pack();
    let text = std::fs::read_to_string(directory.0.join("release/remora.yaml")).unwrap();
    let manifest: Value = serde_yaml::from_str(&text).unwrap();
    assert_eq!(manifest["apiVersion"], "krew.googlecontainertools.github.com/v1alpha2");
    assert_eq!((&manifest["kind"], &manifest["metadata"]["name"]), (&"Plugin".into(), &"remora".into()));
    let spec = &manifest["spec"];
    assert_eq!(spec["version"], format!("v{VERSION}"));
    let short = spec["shortDescription"].as_str().unwrap();
    assert!((1..=50).contains(&short.len()) && !short.contains(['\r', '\n']) && !short.ends_with('.'), "{short:?}");
    assert!(spec["description"].as_str().is_some_and(|text| !text.is_empty()));
    let known = ["version", "homepage", "shortDescription", "description", "caveats", "platforms"];
    assert!(spec.as_object().unwrap().keys().all(|key| known.contains(&key.as_str())), "{spec}");

    let platforms = spec["platforms"].as_array().unwrap();
    assert_eq!(platforms.len(), ARCHITECTURES.len());
    for (platform, architecture) in platforms.iter().zip(ARCHITECTURES) {
        assert_eq!(platform["selector"], serde_json::json!({"matchLabels": {"os": "linux", "arch": architecture}}));
        let archive = format!("kubectl-remora-linux-{architecture}.tar.gz");
        assert_eq!(platform["uri"], format!("{SOURCE}/releases/download/v{VERSION}/{archive}"));
        let sum = platform["sha256"].as_str().unwrap();
        assert!(sum.len() == 64 && sum.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')), "{sum}");
        assert!(sums.lines().any(|line| line == format!("{sum}  {archive}")), "{sums}");
        // Without `files`, krew takes all files of the archive.
        assert!(platform.get("files").is_none());
        let bin = platform["bin"].as_str().unwrap();
        assert_eq!(directory.unpacked(&archive, bin), format!("kubectl-remora-linux-{architecture}"));
        assert!(directory.unpacked(&archive, "LICENSE").contains("Apache License"));
        let listing = run(Command::new("tar").arg("-tvf").arg(directory.0.join("release").join(&archive))).unwrap();
        assert!(listing.lines().any(|line| line.starts_with("-rwx") && line.ends_with(bin)), "{listing}");
    }
}

#[test]
fn release_is_packed_twice_to_the_same_bytes() {
    if let Some(lacking) = lacking() {
        return not_run(&lacking);
    }
    let (first, second) = (Directory::new("first"), Directory::new("second"));
    let sums = first.pack();
    assert_eq!(sums, second.pack());
    assert_eq!(sums.lines().count(), 12, "{sums}");

    let chart = format!("remora-{VERSION}.tgz");
    let values = first.unpacked(&chart, "remora/values.yaml");
    assert!(values.contains(&format!("\n  registry: {REGISTRY}\n")), "{values}");
    for program in ["remora-operator", "remora-sidecar"] {
        let archive = format!("{program}.oci.tar");
        let layout: Value = serde_json::from_str(&first.unpacked(&archive, "index.json")).unwrap();
        let digest = layout["manifests"][0]["digest"].as_str().unwrap();
        assert!(values.contains(&format!("\n    digest: {digest}\n")), "{program}: {digest}");
        let blob = |digest: &str| first.unpacked(&archive, &format!("blobs/{}", digest.replace(':', "/")));
        let index: Value = serde_json::from_str(&blob(digest)).unwrap();
        assert_eq!(index["annotations"]["org.opencontainers.image.version"], VERSION);
        for (number, architecture) in ["amd64", "arm64"].into_iter().enumerate() {
            let image = &index["manifests"][number];
            assert_eq!(image["platform"]["architecture"], architecture, "{index}");
            let manifest: Value = serde_json::from_str(&blob(image["digest"].as_str().unwrap())).unwrap();
            let configuration: Value =
                serde_json::from_str(&blob(manifest["config"]["digest"].as_str().unwrap())).unwrap();
            assert_eq!(configuration["architecture"], architecture);
            assert_eq!(configuration["config"]["User"], "65532");
            let layer = blob(manifest["layers"][0]["digest"].as_str().unwrap());
            assert!(layer.contains(&format!("{program}-linux-{architecture}")), "another program");
        }
    }
}

fn workflow(name: &str) -> String {
    std::fs::read_to_string(root().join(".github/workflows").join(name)).unwrap()
}

/// A developer can run every step of a workflow with the same make targets.
#[test]
fn workflows_run_make_targets_only() {
    let makefile = std::fs::read_to_string(root().join("Makefile")).unwrap();
    for name in WORKFLOWS {
        let workflow: Value = serde_yaml::from_str(&workflow(name)).unwrap();
        let jobs = workflow["jobs"].as_object().unwrap().values();
        // A job that calls another workflow has no steps.
        let steps = jobs.flat_map(|job| job["steps"].as_array().into_iter().flatten());
        let commands: Vec<&str> = steps.filter_map(|step| step["run"].as_str()).collect();
        assert!(!commands.is_empty(), "{name}");
        for command in commands {
            let mut words = command.split(' ');
            assert!(words.any(|word| word == "make") && !command.contains('\n'), "{name}: {command}");
            let target = words.next().unwrap();
            assert!(makefile.contains(&format!("\n{target}: ")), "{name}: there is no target {target}");
        }
    }
}

/// A signature without a key proves nothing if the identity in its certificate is not compared.
#[test]
fn documented_verification_fits_workflow_and_publication() {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).unwrap();
    let commands = read("SECURITY.md").replace("\\\n", " ");
    let commands: Vec<&str> = commands.lines().filter(|line| line.starts_with("    cosign ")).collect();
    for command in ["cosign verify-blob checksums.txt ", "cosign verify registry.", "cosign verify-attestation "] {
        assert!(commands.iter().any(|line| line.trim().starts_with(command)), "no {command}: {commands:?}");
    }
    for command in commands.iter().filter(|command| !command.contains("--key")) {
        let words: Vec<&str> = command.split_whitespace().collect();
        let option = |name: &str| words[words.iter().position(|word| *word == name).unwrap() + 1];
        let identity = option("--certificate-identity");
        assert!(identity.ends_with(&format!("/.github/workflows/release.yaml@refs/tags/v{VERSION}")), "{command}");
        assert_eq!(option("--certificate-oidc-issuer"), "https://token.actions.githubusercontent.com");
    }
    let kind = "--type slsaprovenance1 ";
    assert!(read("e2e/release/publish.sh").contains(kind) && commands.iter().any(|command| command.contains(kind)));
    assert!(workflow("release.yaml").contains("id-token: write"));
}

/// A tag of an action can be moved to other code, and a commit cannot.
#[test]
fn workflows_name_actions_by_commit_and_version() {
    for name in WORKFLOWS {
        let text = workflow(name);
        let actions: Vec<&str> = text.lines().filter_map(|line| line.trim().strip_prefix("- uses: ")).collect();
        assert!(!actions.is_empty(), "{name}");
        for action in actions {
            let (_, at) = action.split_once('@').unwrap();
            let (commit, version) = at.split_once(" # v").unwrap_or_else(|| panic!("{name}: {action}"));
            assert!(commit.len() == 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit()), "{name}: {action}");
            assert_eq!(version.split('.').count(), 3, "{name}: {action}");
        }
    }
}

/// The crates that a build runs must not sign or publish.
#[test]
fn workflow_of_release_gives_rights_only_to_jobs_that_build_nothing() {
    let workflow: Value = serde_yaml::from_str(&workflow("release.yaml")).unwrap();
    assert_eq!(workflow["permissions"], serde_json::json!({}), "a job without permissions of its own would have these");
    let mut built = 0;
    for (name, job) in workflow["jobs"].as_object().unwrap() {
        let rights = job["permissions"].as_object().unwrap_or_else(|| panic!("{name} states no permissions"));
        let mut steps = job["steps"].as_array().into_iter().flatten();
        let builds = steps.any(|step| step["run"] == "make release");
        if builds || job.get("uses").is_some() {
            assert!(rights.values().all(|right| right == "read"), "{name}: {rights:?}");
            built += usize::from(builds);
        }
    }
    assert_eq!(built, 1);
}

/// Returns the jobs that a job needs, and those that they need.
fn needed<'a>(jobs: &'a Value, job: &str) -> Vec<&'a str> {
    let next = jobs[job]["needs"].as_str();
    next.into_iter().flat_map(|next| [vec![next], needed(jobs, next)].concat()).collect()
}

#[test]
fn release_needs_checks_of_same_commit() {
    let release: Value = serde_yaml::from_str(&workflow("release.yaml")).unwrap();
    let checks: Value = serde_yaml::from_str(&workflow("checks.yaml")).unwrap();
    assert_eq!(release["jobs"]["checks"]["uses"], "./.github/workflows/checks.yaml");
    assert!(checks["on"].as_object().unwrap().contains_key("workflow_call"));
    for job in release["jobs"].as_object().unwrap().keys().filter(|job| *job != "checks") {
        assert!(needed(&release["jobs"], job).contains(&"checks"), "{job}");
    }
}

/// Without `CI`, a test that lacks something counts as passed.
#[test]
fn checks_except_only_what_is_not_public() {
    let checks: Value = serde_yaml::from_str(&workflow("checks.yaml")).unwrap();
    let steps = checks["jobs"]["test"]["steps"].as_array().unwrap();
    let step = steps.iter().find(|step| step["run"].as_str().is_some_and(|run| run.contains("make test"))).unwrap();
    let run = step["run"].as_str().unwrap();
    assert!(run.starts_with("sudo --preserve-env=PATH,HOME,CI,REMORA_CONFORMANCE_DIR make test "), "{run}");
    assert_eq!(step["env"], serde_json::json!({"REMORA_CONFORMANCE_DIR": "none"}));
}
