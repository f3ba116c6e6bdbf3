//! What documents tell people to type into a cluster does what it says.

use std::process::Stdio;

use remora_e2e::harness::{Case, Command, documented, root, with_namespace};

/// Runs a command in a shell, where kubectl looks at the case's namespace if it is not told otherwise.
async fn run(case: &Case, command: &str) -> anyhow::Result<String> {
    let script = format!("kubectl() {{ command kubectl --namespace {} \"$@\"; }}\n{command}", case.namespace);
    let mut shell = tokio::process::Command::new("bash");
    shell.args(["-euc", &script]).current_dir(root()).stdin(Stdio::null());
    let output = shell.kill_on_drop(true).output().await?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    anyhow::ensure!(output.status.success(), "{command}: {text}{}", String::from_utf8_lossy(&output.stderr));
    Ok(text)
}

/// A command about somebody's environment, of this one.
fn about(case: &Case, command: &Command, revision: &str) -> String {
    let names = [("shop", case.namespace.as_str()), ("NAMESPACE", &case.namespace)];
    let names = names.into_iter().chain([("NAME", "storefront"), ("REVISION", revision), ("0123456789ab", revision)]);
    names.fold(command.text.clone(), |text, (written, meant)| text.replace(written, meant))
}

/// A command about the installation, which others use: rendered, checked by the API server, and not carried out. To
/// install is only rendered, as there is one already.
fn tried(command: &Command) -> String {
    match command.text.strip_prefix("helm install ") {
        // Where the oldest Kubernetes is that the chart is for.
        Some(install) => format!("helm template {install} --kube-version 1.30.0"),
        None => command.text.clone() + " --dry-run=server",
    }
}

#[tokio::test]
async fn of_the_documents_work() -> anyhow::Result<()> {
    with_namespace(async |case| {
        case.storefront().await?;
        let environment = case.environments().get("storefront").await?;
        let revision = environment.data["status"]["revision"].as_str().unwrap_or_default().to_owned();
        let mut kinds = [0, 0];
        for command in documented()? {
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
        // The last of them went back to a revision, and this one is served.
        case.condition("storefront", "Published", "True", Some("Pinned")).await
    })
    .await
}
