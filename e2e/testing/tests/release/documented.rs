//! What the documents say about signatures fits the workflow and `publish.sh`.

use crate::packed::{VERSION, root};
use crate::workflows::workflow;

/// Issuer of the identity of a workflow.
const ISSUER: &str = "https://token.actions.githubusercontent.com";

/// Returns the documented commands by which cosign and openssl verify something.
pub(crate) fn documented() -> Vec<String> {
    let text = std::fs::read_to_string(root().join("SECURITY.md")).unwrap().replace("\\\n", " ");
    let mut commands: Vec<String> =
        text.lines().filter_map(|line| line.strip_prefix("    ")).map(str::to_owned).collect();
    commands.retain(|command| ["cosign ", "openssl dgst "].iter().any(|begin| command.starts_with(begin)));
    commands
}

/// A signature without a key proves nothing if the identity in its certificate is not compared.
#[test]
fn documented_verification_fits_workflow_and_publication() {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).unwrap();
    let commands = documented();
    for command in ["cosign verify-blob checksums.txt ", "cosign verify registry.", "cosign verify-attestation "] {
        for option in ["--key ", "--certificate-identity "] {
            let found = commands.iter().any(|line| line.starts_with(command) && line.contains(option));
            assert!(found, "no {command} with {option}: {commands:?}");
        }
    }
    for command in commands.iter().filter(|command| !command.contains("PUBLIC_KEY")) {
        let words: Vec<&str> = command.split_whitespace().collect();
        let option = |name: &str| words[words.iter().position(|word| *word == name).unwrap() + 1];
        let identity = option("--certificate-identity");
        assert!(identity.ends_with(&format!("/.github/workflows/release.yaml@refs/tags/v{VERSION}")), "{command}");
        assert_eq!(option("--certificate-oidc-issuer"), ISSUER);
    }
    let kind = "--type slsaprovenance1 ";
    assert!(read("e2e/release/publish.sh").contains(kind) && commands.iter().any(|command| command.contains(kind)));
    assert!(workflow("release.yaml").contains("id-token: write"));
}

/// `SECURITY.md` has the commands for all that is published; these documents repeat some of them.
#[test]
fn repeated_commands_of_cosign_name_version() {
    for path in ["README.md", "charts/remora/README.md"] {
        let text = std::fs::read_to_string(root().join(path)).unwrap().replace("\\\n", " ");
        let commands: Vec<&str> = text.lines().filter(|line| line.starts_with("cosign verify ")).collect();
        assert!(!commands.is_empty(), "{path}");
        for command in commands {
            assert!(command.contains(&format!(":{VERSION} ")), "{path}: {command}");
            let tag = command.split_once("@refs/tags/v").map(|(_, rest)| rest.split(' ').next());
            assert!(tag.is_none_or(|tag| tag == Some(VERSION)), "{path}: {command}");
        }
    }
}

/// The policies name the same workflow and issuer, for every tag of a version.
#[test]
fn documented_policies_of_clusters_name_workflow_and_issuer() {
    let text = std::fs::read_to_string(root().join("charts/remora/README.md")).unwrap();
    let blocks = text.split("```yaml\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let policies: Vec<&str> =
        blocks.filter(|block| block.contains("ImagePolicy") || block.contains("ImageValidatingPolicy")).collect();
    assert_eq!(policies.len(), 2);
    for policy in policies {
        let _it_is_yaml: serde_json::Value = serde_yaml::from_str(policy).unwrap();
        assert!(policy.contains(&format!("issuer: {ISSUER}\n")), "{policy}");
        assert!(policy.replace('\\', "").contains("/.github/workflows/release.yaml@refs/tags/v"), "{policy}");
    }
}
