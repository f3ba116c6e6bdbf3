//! Sigstore's policy-controller checks signatures in the cluster: by the policy of the chart's README it admits a release
//! that `publish.sh` has signed, with the sidecars that the webhook adds, and refuses images of the same names that the
//! publisher has not signed.

mod checker;
mod images;

use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{Api, ListParams};
use remora_e2e::app::History;
use remora_e2e::harness::{
    App, Case, PodPort, Release, SYSTEM, alone_in_namespace, and_restoration, eventually, root, say, storefront, until,
};
use serde_json::json;
use tokio::process::Command;

use self::checker::{Checker, include, policy};
use self::images::{Key, Signing};
use super::given_certificate::CAP;
use super::node::Node;
use super::registry::server::{Registries, output};
use super::registry::{EXAMPLE, environment, installation, pulled, run};

/// Message of policy-controller about an image for which no signature fits its policy.
const DENIED: &str =
    "admission webhook \"policy.sigstore.dev\" denied the request: validation failed: failed policy: remora";

/// Release in a registry with the publisher's signatures, and the application beside it, which nobody has signed.
struct Published<'a> {
    registries: &'a Registries,
    signing: &'a Signing,
    publisher: Key,
    stranger: Key,
    /// Reference of the chart by its digest.
    chart: String,
    /// Image of the application.
    app: String,
}

impl<'a> Published<'a> {
    async fn new(registries: &'a Registries, signing: &'a Signing) -> anyhow::Result<Self> {
        let (publisher, stranger) = (signing.key("publisher").await?, signing.key("stranger").await?);
        let chart = registries.publish(&signing.variables(&publisher)).await?;
        let app = format!("{}/shop/app:1", registries.open.address());
        let push = r#"cd "$0" && . ./env.sh && ctr images push --plain-http "$1" "$REMORA_IMAGE_PREFIX/remora-e2e:$REMORA_IMAGE_TAG""#;
        output(Command::new("bash").args(["-euc", push]).arg(root().join("e2e/cluster")).arg(&app)).await?;
        Ok(Self { registries, signing, publisher, stranger, chart, app })
    }

    fn app(&self, name: &str) -> App {
        App::new(name).image(&self.app).flag("banner")
    }

    /// Upgrades the release with another digest for an image. Helm reuses the values of the last upgrade that succeeded.
    async fn upgrade(&self, image: &str, digest: &str) -> anyhow::Result<()> {
        let upgrade = format!(
            "helm upgrade remora oci://{} --namespace {SYSTEM} --reuse-values --set image.{image}.digest={digest}",
            self.chart
        );
        run(&self.registries.open, &upgrade).await?;
        Ok(())
    }
}

/// Checks that an attempt is refused with all these words.
fn refused(what: &str, attempt: anyhow::Result<()>, words: &[&str]) -> anyhow::Result<()> {
    let said = attempt.err().map(|error| format!("{error:#}")).unwrap_or_default();
    anyhow::ensure!(words.iter().all(|word| said.contains(word)), "{what} is not refused with {words:?}: {said:?}");
    say(&format!("{what}: {}", said.split("admission webhook").last().unwrap_or_default().trim()));
    Ok(())
}

/// Installs the signed release. A pod gets its flags, and the notification of a change, which is a change of the pod that
/// the controller checks again.
async fn admitted(case: &Case, published: &Published<'_>) -> anyhow::Result<PodPort> {
    let [install, _] = installation()?;
    run(&published.registries.open, &install).await?;
    Release::of(&case.cluster).settled().await?;
    environment(case).await?;
    let pod = case.pod(&published.app("shop").inject("storefront")).await?;
    case.answer(&pod, "banner is Welcome", |answer| answer["value"] == "Welcome").await?;
    pulled(case, &published.registries.open, "shop").await?;

    let revision = |pod: &Pod| pod.metadata.annotations.as_ref()?.get("remora.dev/revision.storefront").cloned();
    let before = revision(&case.api::<Pod>().get("shop").await?);
    let mut document = storefront(&case.client_key(), 1);
    document["feature_states"][1]["feature_state_value"] = json!("Goodbye");
    let data = json!({"environment.json": document.to_string()});
    case.apply(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "flags"}, "data": data})).await?;
    until(&case.api::<Pod>(), "shop", "the pod is notified", CAP, |pod| revision(pod) != before).await?;
    case.answer(&pod, "banner is Goodbye", |answer| answer["value"] == "Goodbye").await?;
    Ok(pod)
}

/// An operator whose image nobody has signed is not installed, and the one that runs stays.
async fn operator_refused(case: &Case, published: &Published<'_>) -> anyhow::Result<()> {
    let digest = published.signing.alter(&published.registries.open, "remora-operator").await?;
    let upgrade = published.upgrade("operator", &digest).await;
    let place = "spec.template.spec.containers[0].image";
    refused("an operator without a signature", upgrade, &[DENIED, place, &digest, "no signatures found"])?;
    case.pod(&published.app("beside").inject("storefront")).await?.text("/first").await?;
    Ok(())
}

/// Checks that a Deployment is admitted, and that an Event of its ReplicaSet has the refusal of its pods.
async fn replicas_refused(case: &Case, app: &App, image: &str) -> anyhow::Result<()> {
    case.create_deployment(app, 1).await?;
    let events: Api<Event> = case.api();
    let about = ListParams::default().fields("involvedObject.kind=ReplicaSet,reason=FailedCreate");
    eventually("an Event of the ReplicaSet has the refusal", CAP, async || {
        let messages: Vec<String> = events.list(&about).await?.into_iter().filter_map(|event| event.message).collect();
        let is_refusal = |message: &&String| message.contains(DENIED) && message.contains(image);
        let refusal = messages.iter().find(is_refusal);
        Ok(refusal.map(|message| say(&format!("a ReplicaSet: {message}"))))
    })
    .await
}

/// A pod whose sidecar the publisher has not signed is refused, whatever signature the image has. Other pods start, and
/// the one with the right sidecar keeps its flags. The same image is admitted once the publisher signs it.
async fn sidecar_refused(case: &Case, published: &Published<'_>, running: &PodPort) -> anyhow::Result<()> {
    let Published { registries, signing, publisher, stranger, .. } = published;
    let place = format!("{}/remora-sidecar", registries.open.place());
    let right = signing.digest(&format!("{place}:{}", env!("CARGO_PKG_VERSION"))).await?;
    let wrong = signing.alter(&registries.open, "remora-sidecar").await?;
    let image = format!("{place}@{wrong}");
    published.upgrade("sidecar", &wrong).await?;
    Release::of(&case.cluster).settled().await?;

    let pod = published.app("forged").inject("storefront");
    replicas_refused(case, &published.app("replicated").inject("storefront"), &image).await?;
    let denied = async |signature: &str, words: &str| {
        refused(signature, case.create_pod(&pod).await, &[DENIED, "spec.initContainers[0].image", &image, words])
    };
    denied("a sidecar without a signature", "no signatures found").await?;
    signing.sign(&image, stranger).await?;
    denied("a sidecar that a stranger has signed", "no matching signatures").await?;
    signing.copy_signature(&place, &right, &wrong).await?;
    denied("a sidecar with the signature of another digest", "invalid or missing digest in claim").await?;

    let plain = json!({"name": "plain", "image": published.app, "args": ["upstream", "--name", "plain"]});
    case.apply(
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "plain"}, "spec": {"containers": [plain]}}),
    )
    .await?;
    case.started("plain", "plain").await?;
    let history: History = running.get("/watch").await?;
    anyhow::ensure!(history.failed == 0, "{history:?}");

    signing.sign(&image, publisher).await?;
    case.pod(&pod).await?.text("/first").await?;
    Ok(())
}

async fn checked(case: &Case, published: &Published<'_>) -> anyhow::Result<()> {
    let running = admitted(case, published).await?;
    operator_refused(case, published).await?;
    sidecar_refused(case, published, &running).await
}

#[tokio::test]
async fn policy_of_readme_admits_what_publisher_signed_and_nothing_else() -> anyhow::Result<()> {
    if Node::local("signatures that the cluster checks").await?.is_none() {
        return Ok(());
    }
    // Other cases run during the build.
    let checker = Checker::build().await?;
    alone_in_namespace(async |case| {
        let registries = Registries::start().await?;
        let signing = Signing::new(registries.directory()).await?;
        let published = Published::new(&registries, &signing).await?;
        let release = Release::of(&case.cluster);
        release.uninstall().await?;
        let rules = policy(EXAMPLE, &registries.open.place(), &published.publisher.public()?)?;
        let ended = async {
            checker.install(&case, &rules).await?;
            for namespace in [SYSTEM, &case.namespace] {
                include(&case, namespace, true).await?;
            }
            checked(&case, &published).await
        };
        let ended = ended.await;
        let restored = async {
            include(&case, SYSTEM, false).await?;
            checker.remove(&case).await?;
            release.install().await
        };
        and_restoration(ended, restored.await)
    })
    .await
}
