//! The operator's own pods: what they say, and who may be in their place.

use anyhow::Context as _;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, LogParams};
use kube::{Client, Config};

use super::cluster::{Cluster, SYSTEM};
use super::pod_http::PodPort;

impl Cluster {
    /// The admin ports of the pods of a part of the operator: `controller` or `webhook`.
    ///
    /// # Errors
    ///
    /// What the API server says.
    pub async fn operator(&self, part: &str) -> anyhow::Result<Vec<PodPort>> {
        let pods = self.pods(SYSTEM, &format!("app.kubernetes.io/component={part}")).await?;
        Ok(pods.iter().map(|pod| PodPort::new(self.client.clone(), SYSTEM, pod, 8080)).collect())
    }

    /// All that a pod of the operator has logged.
    ///
    /// # Errors
    ///
    /// What the API server says.
    pub async fn operator_log(&self, pod: &str) -> anyhow::Result<String> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), SYSTEM);
        api.logs(pod, &LogParams::default()).await.with_context(|| format!("the log of {pod}"))
    }

    /// The pod that reconciles; none in the moment in which one has let the lease go and no other has taken it.
    ///
    /// # Errors
    ///
    /// What the API server says, and a holder that is no process of a pod.
    pub async fn leader(&self) -> anyhow::Result<Option<String>> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), SYSTEM);
        let holder = leases.get("remora-controller").await?.spec.and_then(|spec| spec.holder_identity);
        let Some(holder) = holder.filter(|holder| !holder.is_empty()) else { return Ok(None) };
        // Behind the pod's name is a number of the process.
        let (pod, _) = holder.rsplit_once('-').with_context(|| format!("{holder} is a holder without a number"))?;
        Ok(Some(pod.to_owned()))
    }

    /// A client that the API server takes for an account of the operator.
    ///
    /// # Errors
    ///
    /// When there is no cluster to be reached.
    pub async fn as_account(&self, name: &str) -> anyhow::Result<Client> {
        let mut config = Config::infer().await?;
        config.default_retry = false;
        config.auth_info.impersonate = Some(format!("system:serviceaccount:{SYSTEM}:{name}"));
        config.auth_info.impersonate_groups =
            Some(vec!["system:serviceaccounts".to_owned(), "system:authenticated".to_owned()]);
        Ok(Client::try_from(config)?)
    }
}
