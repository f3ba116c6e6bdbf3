//! The operator's own pods, and what they say.

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, LogParams};

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
}
