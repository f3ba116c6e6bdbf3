//! Secrets and FeatureEnvironments that a case creates, and the objects and conditions that result.

use anyhow::Context as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DynamicObject};
use serde_json::{Value, json};

use super::case::Case;
use super::documents::storefront;
use super::shared_upstream::SharedUpstream;
use super::wait::{CAP, until};

impl Case {
    /// Creates a Secret with an environment key, labelled so that Remora may read it.
    ///
    /// # Errors
    ///
    /// Returns an error if the API server refuses the Secret.
    pub async fn secret(&self, name: &str, key: &str) -> anyhow::Result<()> {
        let metadata = json!({"name": name, "labels": {"remora.dev/environment-key": "true"}});
        self.apply(
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"environment-key": key}}),
        )
        .await?;
        Ok(())
    }

    /// Creates a FeatureEnvironment with this source and an interval of one second, so that cases do not wait long.
    ///
    /// # Errors
    ///
    /// Returns an error if the API server refuses the FeatureEnvironment.
    pub async fn environment(&self, name: &str, source: Value) -> anyhow::Result<()> {
        let spec = json!({"source": source, "refresh": {"interval": "1s", "timeout": "5s"}});
        self.apply(json!({"apiVersion": "remora.dev/v1alpha1", "kind": "FeatureEnvironment", "metadata": {"name": name}, "spec": spec})).await?;
        Ok(())
    }

    /// Returns the source that polls the shared upstream with the key of the Secret `flagsmith`.
    #[must_use]
    pub fn flagsmith(&self) -> Value {
        json!({"flagsmith": {"apiUrl": SharedUpstream::api_url(), "environmentKeySecretRef": {"name": "flagsmith"}}})
    }

    /// Sets up what most cases need: the storefront document at the upstream, its Secret and the FeatureEnvironment
    /// `storefront`. Waits until that is Ready.
    ///
    /// # Errors
    ///
    /// Returns an error if the FeatureEnvironment does not become Ready in time.
    pub async fn storefront(&self) -> anyhow::Result<()> {
        self.upstream.serve(&self.server_key(), &storefront(&self.client_key(), 3)).await?;
        self.secret("flagsmith", &self.server_key()).await?;
        self.environment("storefront", self.flagsmith()).await?;
        self.condition("storefront", "Ready", "True", None).await
    }

    /// Waits until a condition of a FeatureEnvironment has this status, and this reason if one is given, for the
    /// current generation.
    ///
    /// # Errors
    ///
    /// Returns an error if the condition does not become so in time; the error holds the object's status.
    pub async fn condition(
        &self,
        environment: &str,
        kind: &str,
        status: &str,
        reason: Option<&str>,
    ) -> anyhow::Result<()> {
        let what = format!("{kind} is {status} {}", reason.unwrap_or_default());
        until(&self.environments(), environment, &what, CAP, |environment| {
            let conditions = environment.data.pointer("/status/conditions").and_then(Value::as_array);
            let found = conditions.into_iter().flatten().find(|condition| condition["type"] == kind);
            found.is_some_and(|condition| {
                condition["status"] == status
                    && reason.is_none_or(|reason| condition["reason"] == reason)
                    && condition["observedGeneration"].as_i64() == environment.metadata.generation
            })
        })
        .await?;
        Ok(())
    }

    /// Changes a flag upstream (`{"enabled":…,"value":…}`) and waits until the environment's next revision is
    /// published. Returns the time of the change.
    ///
    /// # Errors
    ///
    /// Returns an error if no new revision is published in time.
    pub async fn flip(&self, environment: &str, flag: &str, change: &Value) -> anyhow::Result<Timestamp> {
        let revision = |environment: &DynamicObject| environment.data.pointer("/status/revision").cloned();
        let before = revision(&self.environments().get(environment).await?);
        let at = Timestamp::now();
        self.upstream.change(&self.server_key(), flag, change).await?;
        let what = format!("a revision other than {before:?} is published");
        until(&self.environments(), environment, &what, CAP, |environment| revision(environment) != before).await?;
        Ok(at)
    }

    /// Returns the core ConfigMap of an environment.
    ///
    /// # Errors
    ///
    /// Returns an error if there is none.
    pub async fn core(&self, environment: &str) -> anyhow::Result<ConfigMap> {
        let api: Api<ConfigMap> = self.api();
        api.get(&published(environment, "core")).await.context("the core's ConfigMap")
    }

    /// Waits until the core ConfigMap of an environment satisfies `condition`; it may be absent until then.
    ///
    /// # Errors
    ///
    /// Returns an error if it does not satisfy the condition in time.
    pub async fn core_until(
        &self,
        environment: &str,
        what: &str,
        condition: impl Fn(&ConfigMap) -> bool,
    ) -> anyhow::Result<ConfigMap> {
        until(&self.api(), &published(environment, "core"), what, CAP, condition).await
    }
}

/// Returns the name of the object that holds a file of an environment in the current format.
#[must_use]
pub fn published(environment: &str, file: &str) -> String {
    format!("remora-{environment}-v3-{file}")
}
