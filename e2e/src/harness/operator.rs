//! The operator's own pods: their ports, logs and leader, and clients that act as their service accounts.

use anyhow::Context as _;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, LogParams};
use kube::{Client, Config};

use super::cluster::{Cluster, SYSTEM};
use super::pod_http::PodPort;

impl Cluster {
    /// Returns the admin ports of the pods of one component of the operator: `controller` or `webhook`.
    ///
    /// # Errors
    ///
    /// Returns the API server's error.
    pub async fn operator(&self, part: &str) -> anyhow::Result<Vec<PodPort>> {
        let pods = self.pods(SYSTEM, &format!("app.kubernetes.io/component={part}")).await?;
        Ok(pods.iter().map(|pod| PodPort::new(self.client.clone(), SYSTEM, pod, 8080)).collect())
    }

    /// Returns the full log of an operator pod.
    ///
    /// # Errors
    ///
    /// Returns the API server's error.
    pub async fn operator_log(&self, pod: &str) -> anyhow::Result<String> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), SYSTEM);
        api.logs(pod, &LogParams::default()).await.with_context(|| format!("the log of {pod}"))
    }

    /// Returns the pod that holds the leader lease. Returns `None` between the release of the lease and its next
    /// acquisition.
    ///
    /// # Errors
    ///
    /// Returns the API server's error, or an error if the holder's name does not end in a process number.
    pub async fn leader(&self) -> anyhow::Result<Option<String>> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), SYSTEM);
        let holder = leases.get("remora-controller").await?.spec.and_then(|spec| spec.holder_identity);
        let Some(holder) = holder.filter(|holder| !holder.is_empty()) else { return Ok(None) };
        // The holder is the pod's name followed by a number of the process.
        let (pod, _) = holder.rsplit_once('-').with_context(|| format!("{holder} is a holder without a number"))?;
        Ok(Some(pod.to_owned()))
    }

    /// Returns a client that impersonates a service account of the operator.
    ///
    /// # Errors
    ///
    /// Returns an error if no cluster is reachable.
    pub async fn as_account(&self, name: &str) -> anyhow::Result<Client> {
        let mut config = Config::infer().await?;
        config.default_retry = false;
        config.auth_info.impersonate = Some(format!("system:serviceaccount:{SYSTEM}:{name}"));
        config.auth_info.impersonate_groups =
            Some(vec!["system:serviceaccounts".to_owned(), "system:authenticated".to_owned()]);
        Ok(Client::try_from(config)?)
    }
}
