//! The workflows call make only, and give rights to nothing that builds.

use serde_json::Value;

use crate::packed::root;

const WORKFLOWS: [&str; 4] = ["advisories.yaml", "checks.yaml", "release.yaml", "searches.yaml"];

pub(crate) fn workflow(name: &str) -> String {
    std::fs::read_to_string(root().join(".github/workflows").join(name)).unwrap()
}

/// A developer can run every step of a workflow with the same make targets.
#[test]
fn workflows_run_make_targets_only() {
    let makefile = std::fs::read_to_string(root().join("Makefile")).unwrap();
    for name in WORKFLOWS {
        let workflow: Value = serde_yaml::from_str(&workflow(name)).unwrap();
        let commands: Vec<String> = workflow["jobs"].as_object().unwrap().values().flat_map(commands).collect();
        assert!(!commands.is_empty(), "{name}");
        for command in commands {
            let mut words = command.split(' ');
            assert!(words.any(|word| word == "make") && !command.contains('\n'), "{name}: {command}");
            let target = words.next().unwrap();
            assert!(makefile.contains(&format!("\n{target}: ")), "{name}: there is no target {target}");
        }
    }
}

/// Returns the commands of a job, for each target that its matrix names.
fn commands(job: &Value) -> Vec<String> {
    // A job that calls another workflow has no steps.
    let steps = job["steps"].as_array().into_iter().flatten();
    let targets: Vec<&str> = job["strategy"]["matrix"]["target"]
        .as_array()
        .map_or_else(|| vec![""], |targets| targets.iter().map(|target| target.as_str().unwrap()).collect());
    let commands = steps.filter_map(|step| step["run"].as_str());
    commands.flat_map(|run| targets.iter().map(move |target| run.replace("${{ matrix.target }}", target))).collect()
}

/// SECURITY.md says which versions of cosign check signatures rightly.
#[test]
fn workflows_install_the_version_of_cosign_that_users_are_asked_for() {
    let security = std::fs::read_to_string(root().join("SECURITY.md")).unwrap();
    for name in ["checks.yaml", "release.yaml"] {
        let text = workflow(name);
        let version = text.lines().find_map(|line| line.trim().strip_prefix("cosign-release: v")).unwrap();
        assert!(security.contains(&format!("cosign {version} or later")), "{name}: {version}");
        assert!(text.contains("sigstore/cosign-installer@"), "{name}");
    }
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
        let builds = steps.any(|step| step["run"] == "make release" || step["run"] == "make arm64");
        if builds || job.get("uses").is_some() {
            assert!(rights.values().all(|right| right == "read"), "{name}: {rights:?}");
            built += usize::from(builds);
        }
    }
    assert_eq!(built, 2);
}

/// Returns the jobs that a job needs, and those that they need.
fn needed<'a>(jobs: &'a Value, job: &str) -> Vec<&'a str> {
    let needs = &jobs[job]["needs"];
    let next = needs.as_str().into_iter().chain(needs.as_array().into_iter().flatten().filter_map(Value::as_str));
    next.flat_map(|next| [vec![next], needed(jobs, next)].concat()).collect()
}

/// A release has programs for arm64, and the checks run on amd64 only.
#[test]
fn publication_needs_tests_of_arm64() {
    let release: Value = serde_yaml::from_str(&workflow("release.yaml")).unwrap();
    let steps = release["jobs"]["arm64"]["steps"].as_array().unwrap();
    assert!(steps.iter().any(|step| step["run"] == "make arm64"), "{steps:?}");
    assert!(needed(&release["jobs"], "publish").contains(&"arm64"));
    let toolchain = std::fs::read_to_string(root().join("rust-toolchain.toml")).unwrap();
    let channel = toolchain.lines().find_map(|line| line.strip_prefix("channel = \"")?.strip_suffix('"')).unwrap();
    assert_eq!(release["jobs"]["arm64"]["container"]["image"], format!("rust:{channel}-trixie"));
}

/// An empty version is the one of `e2e/cluster/go/kube`, the oldest that the chart supports.
#[test]
fn checks_run_on_oldest_and_newest_kubernetes() {
    let checks: Value = serde_yaml::from_str(&workflow("checks.yaml")).unwrap();
    let versions = checks["jobs"]["test"]["strategy"]["matrix"]["include"].as_array().unwrap();
    let versions: Vec<&str> = versions.iter().map(|entry| entry["kubernetes"].as_str().unwrap()).collect();
    let minor = |name: &str| name.strip_prefix("1.").and_then(|minor| minor.parse::<u32>().ok());
    let folders = std::fs::read_dir(root().join("e2e/cluster/kubernetes")).unwrap();
    let names = folders.map(|folder| folder.unwrap().file_name().into_string().unwrap());
    let newest = names.max_by_key(|name| minor(name).unwrap_or_else(|| panic!("{name} is no version"))).unwrap();
    assert_eq!(versions, ["", &newest]);
    let security = std::fs::read_to_string(root().join("SECURITY.md")).unwrap();
    assert!(security.contains(&format!(", and on {newest}, the newest version")), "SECURITY.md names another version");
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
    assert!(run.starts_with("sudo --preserve-env=PATH,HOME,CI,KUBERNETES,REMORA_CONFORMANCE_DIR make test "), "{run}");
    let expected = serde_json::json!({"KUBERNETES": "${{ matrix.kubernetes }}", "REMORA_CONFORMANCE_DIR": "none"});
    assert_eq!(step["env"], expected);
}
