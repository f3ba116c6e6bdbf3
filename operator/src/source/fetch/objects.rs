//! Reads the ConfigMaps and Secrets that a source refers to in its own namespace. They are read on demand, never listed,
//! and no object is cached.

use std::time::Duration;

use k8s_openapi::{
    NamespaceResourceScope,
    api::core::v1::{ConfigMap, Secret},
};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;

use super::{error::Error, key::EnvironmentKey};
use crate::{
    api::{
        CaBundleRef, ObjectKeyRef, SecretKeyRef, SigningSecretRef,
        names::{is_object_name, label},
    },
    api_call::{CallError, within},
    source::receiver::SigningSecret,
};

const TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of concurrent reads. The API server bounds an object's data to 1 MiB, which as JSON takes up to six
/// times as much.
const READS: usize = 4;
/// Maximum size of a ConfigMap's or Secret's data in bytes, as bounded by the API server.
pub(super) const DATA_MAX: usize = 1 << 20;

/// Value of a key, and the `resourceVersion` of its object.
pub(super) struct Found {
    pub(super) bytes: Vec<u8>,
    pub(super) version: String,
}

/// Reader of objects. It bounds concurrent reads, because each read returns the whole object.
pub(super) struct Objects {
    client: Client,
    reads: Semaphore,
}

impl Objects {
    pub(super) fn new(client: Client) -> Self {
        Self { client, reads: Semaphore::new(READS) }
    }

    /// Returns the server-side key that a Secret holds.
    pub(super) async fn environment_key(
        &self,
        namespace: &str,
        reference: &SecretKeyRef,
    ) -> Result<EnvironmentKey, Error> {
        let found = self.secret(namespace, &reference.name, &reference.key).await?;
        EnvironmentKey::new(&found.bytes).ok_or_else(|| Error::SecretInvalid {
            name: reference.name.clone(),
            key: reference.key.clone(),
            problem: "the value is not a server-side environment key; write one that begins with \"ser.\"",
        })
    }

    /// Returns the secret that signs webhooks, which a Secret holds.
    pub(super) async fn signing_secret(
        &self,
        namespace: &str,
        reference: &SigningSecretRef,
    ) -> Result<SigningSecret, Error> {
        let found = self.secret(namespace, &reference.name, &reference.key).await?;
        SigningSecret::new(&found.bytes).ok_or_else(|| Error::SecretInvalid {
            name: reference.name.clone(),
            key: reference.key.clone(),
            problem: "the value cannot sign webhooks; write 16 to 1,024 characters, the same as in Flagsmith",
        })
    }

    /// Returns the CA bundle that a ConfigMap holds.
    pub(super) async fn ca_bundle(&self, namespace: &str, reference: &CaBundleRef) -> Result<Vec<u8>, Error> {
        Ok(self.config_map(namespace, &reference.config_map_name, &reference.key).await?.bytes)
    }

    /// Returns the document that a ConfigMap holds.
    pub(super) async fn config_map_document(&self, namespace: &str, reference: &ObjectKeyRef) -> Result<Found, Error> {
        self.config_map(namespace, &reference.name, &reference.key).await
    }

    /// Returns the document that a Secret holds.
    pub(super) async fn secret_document(&self, namespace: &str, reference: &ObjectKeyRef) -> Result<Found, Error> {
        self.secret(namespace, &reference.name, &reference.key).await
    }

    async fn config_map(&self, namespace: &str, name: &str, key: &str) -> Result<Found, Error> {
        let found: Option<ConfigMap> = self.read(namespace, name).await?;
        let found = found.ok_or_else(|| Error::ConfigMapNotFound(name.to_owned()))?;
        let version = found.metadata.resource_version.unwrap_or_default();
        let text = found.data.and_then(|mut data| data.remove(key)).map(String::into_bytes);
        let bytes = text.or_else(|| found.binary_data.and_then(|mut data| data.remove(key)).map(|bytes| bytes.0));
        let bytes = bytes.ok_or_else(|| Error::ConfigMapInvalid {
            name: name.to_owned(),
            key: key.to_owned(),
            problem: "the key does not exist; add it, or correct its name in spec.source",
        })?;
        Ok(Found { bytes, version })
    }

    /// Reads a key of a Secret. The owner's consent is checked before anything else.
    async fn secret(&self, namespace: &str, name: &str, key: &str) -> Result<Found, Error> {
        let found: Option<Secret> = self.read(namespace, name).await?;
        let found = found.ok_or_else(|| Error::SecretNotFound(name.to_owned()))?;
        let consent = found.metadata.labels.as_ref().and_then(|labels| labels.get(label::CONSENT));
        if consent.map(String::as_str) != Some("true") {
            return Err(Error::SecretNotConsented(name.to_owned()));
        }
        let version = found.metadata.resource_version.unwrap_or_default();
        let bytes = found.data.and_then(|mut data| data.remove(key)).ok_or_else(|| Error::SecretInvalid {
            name: name.to_owned(),
            key: key.to_owned(),
            problem: "the key does not exist; add it, or correct its name in spec.source",
        })?;
        Ok(Found { bytes: bytes.0, version })
    }

    async fn read<K>(&self, namespace: &str, name: &str) -> Result<Option<K>, Error>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + std::fmt::Debug + DeserializeOwned,
    {
        let api: Api<K> = Api::namespaced(self.client.clone(), namespace);
        let failed = |problem: String| Error::ReadFailed { what: format!("{} {name}", K::kind(&())), problem };
        // The schema refuses such a name, but an object from before the schema's pattern may have it.
        if !is_object_name(name) {
            return Err(Error::InvalidSource(
                "spec.source names an object by a name that no object can have".to_owned(),
            ));
        }
        // The semaphore is never closed. A task that waits here holds no other permit of this semaphore.
        let _place = self.reads.acquire().await;
        within(TIMEOUT, api.get_opt(name)).await.map_err(|error| match error {
            // The error may quote the response that could not be parsed, which may be a Secret.
            CallError::Unanswered(_) => failed("the API server gave no answer that can be read".to_owned()),
            error => failed(error.to_string()),
        })
    }
}
