//! Creations of pods at a steady rate: without injection, with the webhook, and with the admission policies. They are
//! dry runs, which pass the same admission and store nothing.

use std::{
    fmt::Write as _,
    fs,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::{
    chart,
    control_plane::{ControlPlane, Process, free_port},
    fleet::LARGE,
    goals::Goals,
    pods::application,
    say, until,
    usage::Usage,
};

/// Creations per second.
const RATE: u32 = 100;
/// Number of creations.
const COUNT: u32 = 3000;
/// Namespace whose pods are not injected.
const EXCLUDED: &str = "excluded";

/// Answer times of the creations, and what the processes used for them.
struct Run {
    injection: &'static str,
    seconds: f64,
    /// Sorted times in milliseconds, from the time at which a creation was due, also of refused ones.
    times: Vec<f64>,
    /// Number of refused creations.
    refused: usize,
    /// CPU time of the API server in seconds.
    server: f64,
    /// CPU time of the webhook in seconds, and its largest memory in MiB.
    webhook: Option<(f64, f64)>,
}

impl Run {
    fn percentile(&self, hundredths: usize) -> f64 {
        let place = (self.times.len() * hundredths / 100).min(self.times.len().saturating_sub(1));
        self.times.get(place).copied().unwrap_or_default()
    }
}

/// Measures all three, and returns a table. The goals: no creation is refused, and as many are answered as are due.
pub(crate) async fn measure(
    plane: &ControlPlane,
    operator: &Path,
    directory: &Path,
    goals: &mut Goals,
) -> anyhow::Result<String> {
    let client = plane.client().await?;
    let excluded = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": EXCLUDED, "labels": {"remora.dev/admission": "disabled"}},
    });
    let namespaces: Api<Namespace> = Api::all(client.clone());
    namespaces.patch(EXCLUDED, &PatchParams::apply("scale").force(), &Patch::Apply(excluded)).await?;
    let mut runs = Vec::new();

    say("admission: without injection")?;
    runs.push(create(plane, &client, EXCLUDED, "none", None).await?);

    say("admission: webhook")?;
    let (webhook, registration) = Webhook::start(plane, operator, directory)?;
    plane.apply(&registration)?;
    injects(&client, true).await?;
    runs.push(create(plane, &client, LARGE, "webhook", Some(&webhook)).await?);
    plane.delete(&registration)?;
    injects(&client, false).await?;
    drop(webhook);

    say("admission: policies")?;
    let policies = chart::policies(plane.bin(), chart::minor(plane.bin())?)?;
    plane.apply(&policies)?;
    injects(&client, true).await?;
    runs.push(create(plane, &client, LARGE, "policies", None).await?);
    plane.delete(&policies)?;
    for run in &runs {
        goals.at_most(&format!("refused creations, injection by {}", run.injection), 0.0, run.refused as f64);
        // A creation is due each 10 ms.
        let between = run.seconds * 1000.0 / run.times.len().max(1) as f64;
        goals.at_most(&format!("milliseconds between two answers, injection by {}", run.injection), 11.0, between);
    }
    Ok(table(&runs))
}

/// The operator's program as the webhook, with a certificate of this program.
struct Webhook(Process);

impl Webhook {
    /// Starts the program. Returns it and the registration that makes the API server call it.
    fn start(plane: &ControlPlane, operator: &Path, directory: &Path) -> anyhow::Result<(Self, Vec<Value>)> {
        let certificates = directory.join("webhook");
        let authority = certify(&certificates)?;
        let port = free_port()?;
        let mut command = Command::new(operator);
        command
            .args(["webhook", "--sidecar-image=registry.example.org/remora-sidecar:1.0.0"])
            .arg(format!("--webhook-listen=127.0.0.1:{port}"))
            .arg(format!("--admin-listen=127.0.0.1:{}", free_port()?))
            .arg("--certificate-directory")
            .arg(&certificates)
            .env("KUBECONFIG", plane.webhook_kubeconfig()?);
        let process = Process::start_operator(&mut command, &directory.join("webhook.log"))?;
        let mut registration = chart::registration(plane.bin())?;
        for object in &mut registration {
            // The cluster has no Services: the API server calls the program at its address.
            object["webhooks"][0]["clientConfig"] =
                json!({"url": format!("https://127.0.0.1:{port}/mutate"), "caBundle": authority});
        }
        Ok((Self(process), registration))
    }

    fn usage(&self) -> anyhow::Result<Usage> {
        Usage::of(self.0.id()).context("the webhook")
    }
}

/// Writes a key and a certificate for the loopback address, and returns the CA as the registration needs it.
fn certify(directory: &Path) -> anyhow::Result<String> {
    let mut ca = CertificateParams::default();
    ca.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    let ca = CertifiedIssuer::self_signed(ca, KeyPair::generate()?)?;
    let mut leaf = CertificateParams::new(["127.0.0.1".to_owned()])?;
    leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate()?;
    fs::create_dir_all(directory)?;
    fs::write(directory.join("tls.crt"), leaf.signed_by(&key, &ca)?.pem())?;
    fs::write(directory.join("tls.key"), key.serialize_pem())?;
    let bytes = serde_json::to_value(k8s_openapi::ByteString(ca.pem().into_bytes()))?;
    Ok(bytes.as_str().context("a text in base64")?.to_owned())
}

/// Waits until new pods of the large environment get a sidecar, or get none.
async fn injects(client: &Client, expected: bool) -> anyhow::Result<()> {
    let api: Api<Pod> = Api::namespaced(client.clone(), LARGE);
    let pod: Pod = serde_json::from_value(application(LARGE, "probe", LARGE))?;
    until(if expected { "pods get a sidecar" } else { "pods get no sidecar" }, Duration::from_secs(60), async || {
        Ok(has_sidecar(&api.create(&dry_run(), &pod).await?) == expected)
    })
    .await
}

/// Creates the pods at the rate, and checks that each has a sidecar exactly if it should.
async fn create(
    plane: &ControlPlane,
    client: &Client,
    namespace: &str,
    injection: &'static str,
    webhook: Option<&Webhook>,
) -> anyhow::Result<Run> {
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let usage = || anyhow::Ok((plane.server_usage()?, webhook.map(Webhook::usage).transpose()?));
    let before = usage()?;
    let began = Instant::now();
    let mut creations = JoinSet::new();
    for number in 0..COUNT {
        // A creation is due at its time, however long others take.
        let due = began + Duration::from_secs(1) * number / RATE;
        tokio::time::sleep_until(due.into()).await;
        let (api, pod) = (api.clone(), application(namespace, &format!("new-{number}"), LARGE));
        let expected = namespace != EXCLUDED;
        creations.spawn(async move {
            let created = api.create(&dry_run(), &serde_json::from_value(pod)?).await;
            let time = due.elapsed().as_secs_f64() * 1e3;
            if let Ok(created) = &created {
                anyhow::ensure!(has_sidecar(created) == expected, "a pod has a sidecar: {}", !expected);
            }
            anyhow::Ok((time, created.is_err()))
        });
    }
    let (mut times, mut refused) = (Vec::new(), 0);
    while let Some(created) = creations.join_next().await {
        let (time, is_refused) = created??;
        times.push(time);
        refused += usize::from(is_refused);
    }
    times.sort_by(f64::total_cmp);
    let seconds = began.elapsed().as_secs_f64();
    let after = usage()?;
    let used = before.1.zip(after.1).map(|(before, after)| (after.cpu - before.cpu, after.peak));
    Ok(Run { injection, seconds, times, refused, server: after.0.cpu - before.0.cpu, webhook: used })
}

fn dry_run() -> PostParams {
    PostParams { dry_run: true, ..PostParams::default() }
}

fn has_sidecar(pod: &Pod) -> bool {
    let containers = pod.spec.iter().flat_map(|spec| spec.init_containers.iter().flatten());
    containers.into_iter().any(|container| container.name == "remora")
}

fn table(runs: &[Run]) -> String {
    let mut text = format!(
        "\n{COUNT} creations of pods (dry runs), {RATE} due each second\n\n| injection | a second | refused | median | 99th percentile | longest | CPU of the API server for a pod | CPU of the webhook for a pod | memory of the webhook (peak) |\n|---|---|---|---|---|---|---|---|---|\n"
    );
    for run in runs {
        let each = |seconds: f64| seconds * 1e3 / f64::from(COUNT);
        let webhook = run.webhook.map_or("| ".to_owned(), |(cpu, peak)| format!("{:.2} ms | {peak:.0} MiB", each(cpu)));
        let _ = writeln!(
            text,
            "| {} | {:.0} | {} | {:.1} ms | {:.1} ms | {:.1} ms | {:.2} ms | {webhook} |",
            run.injection,
            f64::from(COUNT) / run.seconds,
            run.refused,
            run.percentile(50),
            run.percentile(99),
            run.percentile(100),
            each(run.server),
        );
    }
    text
}
