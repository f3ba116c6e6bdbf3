//! The commands that documents show for a cluster have the effect that the documents state.

use std::process::Stdio;

use remora_e2e::harness::{Case, Command, documented, root, with_namespace};

/// Runs a command in a shell in which kubectl uses the case's namespace by default.
async fn run(case: &Case, command: &str) -> anyhow::Result<String> {
    let script = format!("kubectl() {{ command kubectl --namespace {} \"$@\"; }}\n{command}", case.namespace);
    let mut shell = tokio::process::Command::new("bash");
    shell.args(["-euc", &script]).current_dir(root()).stdin(Stdio::null());
    let output = shell.kill_on_drop(true).output().await?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    anyhow::ensure!(output.status.success(), "{command}: {text}{}", String::from_utf8_lossy(&output.stderr));
    Ok(text)
}

/// Replaces the names of the example environment by those of this case.
fn about(case: &Case, command: &Command, revision: &str) -> String {
    let names = [("shop", case.namespace.as_str()), ("NAMESPACE", &case.namespace)];
    let names = names.into_iter().chain([("NAME", "storefront"), ("REVISION", revision), ("0123456789ab", revision)]);
    names.fold(command.text.clone(), |text, (written, meant)| text.replace(written, meant))
}

/// Adapts a command that changes the shared installation: it is rendered and checked by the API server, but not
/// executed. An install command is only rendered, because a release exists already.
fn tried(command: &Command) -> String {
    // The test of a release changes nothing.
    if command.text.starts_with("helm test ") {
        return command.text.clone();
    }
    match command.text.strip_prefix("helm install ") {
        // Version 1.34.0 is the oldest Kubernetes version that the chart supports.
        Some(install) => format!("helm template {install} --kube-version 1.34.0"),
        None => command.text.clone() + " --dry-run=server",
    }
}

#[tokio::test]
async fn documented_commands_work() -> anyhow::Result<()> {
    with_namespace(async |case| {
        case.storefront().await?;
        let environment = case.environments().get("storefront").await?;
        let revision = environment.data["status"]["revision"].as_str().unwrap_or_default().to_owned();
        let mut kinds = [0, 0];
        for command in documented()? {
            // The case `registry` runs these against a registry.
            if command.text.contains(" oci://") {
                continue;
            }
            let said = match command.program() {
                "kubectl" => run(&case, &about(&case, &command, &revision)).await?,
                "helm" => run(&case, &tried(&command)).await?,
                _ => continue,
            };
            let asks = command.text.contains(" get ") || command.text.contains(" describe ");
            anyhow::ensure!(!asks || said.contains("storefront"), "{}: {said}", command.text);
            kinds[usize::from(command.program() == "helm")] += 1;
        }
        anyhow::ensure!(kinds.iter().all(|&count| count > 3), "kubectl and helm: {kinds:?} commands");
        // The last command rolls back to a revision, and the environment serves this revision.
        case.condition("storefront", "Published", "True", Some("Pinned")).await
    })
    .await
}
