//! Cuts the writes of the controller's program before and after a real API server answers them. The tests of the operator
//! run many more plans against a simulated API server: this test shows that the real one behaves alike.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code, reason = "the measurements of scale use the rest")]
#[path = "../../scale/chart.rs"]
mod chart;
#[allow(dead_code, reason = "the measurements of scale use the rest")]
#[path = "../../scale/control_plane.rs"]
mod control_plane;
mod controller;
#[allow(dead_code, reason = "the measurements of scale use the rest")]
#[path = "../../scale/meter.rs"]
mod meter;
#[allow(dead_code, reason = "the measurements of scale use the rest")]
#[path = "../../scale/pods.rs"]
mod pods;
mod relay;
mod shops;
#[allow(dead_code, reason = "the measurements of scale use the rest")]
#[path = "../../scale/usage.rs"]
mod usage;
mod volumes;
#[path = "../../scale/wait.rs"]
mod wait;

use std::{path::PathBuf, time::Duration};

use control_plane::ControlPlane;
use controller::Controller;
use relay::{Fate, Plan, Relay};
use remora_e2e::harness::{program, say};
use remora_testing::not_run;
use serde_json::json;
use shops::Shops;
use volumes::Volumes;
use wait::until;

/// True in a long run. A short run cuts each write with every other fate.
fn every_fate() -> bool {
    std::env::var_os("REMORA_CUTS_PLANS").is_some()
}

/// Returns the directory with the programs of a control plane, from PATH.
fn control_plane_programs() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let has_all =
        |directory: &PathBuf| ["etcd", "kube-apiserver", "helm"].iter().all(|name| directory.join(name).exists());
    std::env::split_paths(&path).find(has_all)
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_cut_before_a_real_api_server_end_as_undisturbed_run() -> anyhow::Result<()> {
    let Some(bin) = control_plane_programs() else {
        not_run(
            "etcd, kube-apiserver and helm in one directory on PATH: source e2e/cluster/env.sh after make cluster-up",
        );
        return Ok(());
    };
    let _installed_already = rustls::crypto::ring::default_provider().install_default();
    let directory = std::env::temp_dir().join(format!("remora-server-cuts-{}", std::process::id()));
    let plane = ControlPlane::start(&bin, &directory.join("state")).await?;
    let mut objects = vec![json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "remora-system"}})];
    objects.extend(chart::accounts(&bin)?);
    until("the chart's objects are applied", Duration::from_secs(60), async || plane.apply(&objects).map(|()| true))
        .await?;
    let relay = Relay::start(&plane.controller_kubeconfig()?).await?;
    let program = program("remora-operator")?;
    let controller = Controller::start(&program, &relay, plane.client().await?, &directory)?;

    let volumes = Volumes::observe(plane.client().await?, &directory.join("volumes"));

    // One undisturbed environment tells how many writes there are.
    let mut undisturbed = Shops::create(&plane, &relay, vec![("undisturbed".to_owned(), Plan::undisturbed())]).await?;
    undisturbed.follow_script(None).await?;
    let writes = undisturbed.writes();
    anyhow::ensure!(writes >= 8, "the script makes {writes} writes");
    let fates = |write: usize| {
        let all = Fate::ALL.iter().enumerate();
        all.filter(move |(number, _)| every_fate() || (number + write).is_multiple_of(2)).map(|(_, fate)| *fate)
    };
    let plans = (1..=writes).flat_map(|write| {
        fates(write).map(move |fate| (format!("write-{write}-{fate:?}").to_lowercase(), Plan::cut(write, fate)))
    });
    let plans: Vec<_> = plans.collect();
    let count = plans.len();
    say(&format!("{writes} writes, {count} plans at a time"));
    let mut cut = Shops::create(&plane, &relay, plans).await?;
    cut.follow_script(Some(undisturbed.steps())).await?;
    let unused = relay.unused_plans();
    anyhow::ensure!(unused.is_empty(), "no write met the fate of {unused:?}");
    let problems = volumes.problems();
    anyhow::ensure!(problems.is_empty(), "{} problems: {problems:#?}", problems.len());
    let ended = controller.ended();
    anyhow::ensure!(ended > 0, "no controller was killed");
    say(&format!(
        "{count} environments with a cut write ended as the undisturbed one; {ended} controllers were killed"
    ));
    drop(volumes);
    drop((controller, relay, plane));
    std::fs::remove_dir_all(&directory)?;
    Ok(())
}
