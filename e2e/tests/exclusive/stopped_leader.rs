//! The leader's process is stopped for longer than its lease and then continues: it receives an answer of its source
//! that another leader has overtaken in the meantime.

use std::collections::BTreeMap;

use anyhow::Context as _;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::api::Api;
use remora_e2e::harness::{Case, Release, SYSTEM, alone_in_namespace, eventually, say, storefront};
use serde_json::json;

use super::absent::restarts;
use super::handover::{CAP, versions};
use super::node::{Node, Stopped, process};

/// Delay in milliseconds, longer than the time to stop the process after its request arrived.
const ANSWERED_LATER_MILLIS: u64 = 5_000;

async fn lease(case: &Case) -> anyhow::Result<Lease> {
    let leases: Api<Lease> = Api::namespaced(case.cluster.client.clone(), SYSTEM);
    Ok(leases.get("remora-controller").await?)
}

/// Returns the holder of the lease, and the number of its transitions.
async fn term(case: &Case) -> anyhow::Result<(String, i32)> {
    let spec = lease(case).await?.spec.context("a lease without a spec")?;
    Ok((spec.holder_identity.unwrap_or_default(), spec.lease_transitions.unwrap_or_default()))
}

/// Stops the leader while the answer to its request is delayed: a document that contains `"late"`.
async fn stop_in_mid_request(case: &Case, pid: i32) -> anyhow::Result<Stopped> {
    let key = case.server_key();
    for attempt in 0..5 {
        let seen = case.upstream.requests(&key).await?.len();
        let delay = json!([{"fault": {"kind": "delay", "millis": ANSWERED_LATER_MILLIS}, "times": 1}]);
        let late = json!({"enabled": true, "value": format!("late {attempt}")});
        case.upstream.fail(&key, &delay).await?;
        case.upstream.change(&key, "checkout", &late).await?;
        let asked = eventually("the leader asks", CAP, async || {
            Ok(case.upstream.requests(&key).await?.into_iter().skip(seen).find(|seen| seen.faulty))
        });
        // A request between the two calls gets a 304.
        if asked.await?.status == 200 {
            return Stopped::new(pid);
        }
    }
    anyhow::bail!("the leader was always faster than the change")
}

#[tokio::test]
async fn leader_stopped_beyond_its_lease_writes_nothing_more() -> anyhow::Result<()> {
    alone_in_namespace(async |case| {
        let Some(node) = Node::local("a stopped leader").await? else { return Ok(()) };
        let release = Release::of(&case.cluster);
        release.install_with(&json!({"controller": {"replicas": 2}})).await?;
        case.upstream.serve(&case.server_key(), &storefront(&case.client_key(), 3)).await?;
        case.secret("flagsmith", &case.server_key()).await?;
        // With a short timeout, the stopped leader would give up on its request.
        let spec = json!({"source": case.flagsmith(), "refresh": {"interval": "2s", "timeout": "10m"}});
        let environment = json!({"apiVersion": "remora.dev/v1alpha1", "kind": "FeatureEnvironment", "metadata": {"name": "storefront"}, "spec": spec});
        case.apply(environment).await?;
        case.condition("storefront", "Ready", "True", None).await?;

        let seen: tokio::sync::Mutex<BTreeMap<String, String>> = tokio::sync::Mutex::default();
        let overtaking = async {
            eventually("the watch has begun", CAP, async || Ok((!seen.lock().await.is_empty()).then_some(()))).await?;
            let former = eventually("a replica holds the lease", CAP, async || case.cluster.leader().await).await?;
            let pods: Api<Pod> = Api::namespaced(case.cluster.client.clone(), SYSTEM);
            let pod = pods.get(&former).await?;
            let pid = process(&pod.metadata.uid.unwrap_or_default(), "remora-operator")?;
            let (_, terms) = term(&case).await?;

            let stopped = stop_in_mid_request(&case, pid).await?;
            case.upstream.change(&case.server_key(), "checkout", &json!({"enabled": true, "value": "final"})).await?;
            let next = eventually("the other replica holds the lease", CAP, async || {
                Ok(case.cluster.leader().await?.filter(|next| *next != former))
            })
            .await?;
            eventually("it publishes", CAP, async || Ok((seen.lock().await.len() > 1).then_some(()))).await?;
            drop(stopped);
            eventually("the stopped one finds out, and ends", CAP, async || {
                let pod = pods.get(&former).await?;
                let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
                Ok(containers.into_iter().any(|container| restarts(&pod, &container.name) > 0).then_some(()))
            })
            .await?;
            // The former leader waits for the lease like every replica: the same holder renews it.
            for _ in 0..2 {
                let before = lease(&case).await?.metadata.resource_version;
                eventually("the lease is renewed", CAP, async || {
                    Ok((lease(&case).await?.metadata.resource_version != before).then_some(()))
                })
                .await?;
            }
            let (holder, now) = term(&case).await?;
            anyhow::ensure!(holder.starts_with(&next) && now == terms + 1, "{holder} after {now} changes, {terms} before");
            anyhow::Ok(())
        };
        tokio::select! {
            failed = versions(&case, &seen) => { failed?; anyhow::bail!("the watch ended") }
            done = overtaking => done?,
        }
        let seen = seen.into_inner();
        anyhow::ensure!(seen.len() == 2, "the core was written for more than one change: {seen:?}");
        say("a leader that was stopped beyond its lease ended without a write; the lease changed hands once");
        drop(node);
        release.install().await
    })
    .await
}
