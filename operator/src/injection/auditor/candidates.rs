//! Lists the pods that may lack a sidecar, and checks each of them.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Namespace, Pod},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, ListParams},
};
use parking_lot::Mutex;
use serde::Deserialize;

use super::{Error, Options};
use crate::{
    api::names::{annotation, has_label, label},
    api_call::within,
    injection::{
        MissingSidecar, PodContext,
        annotations::{KNOWN, VALUE_MAX},
        is_candidate, missing_sidecar, pods,
    },
    watched::{
        bounded::NAMESPACE_BYTES,
        selection::{Selection, metadata},
    },
};

/// Timeout of one request.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);

/// Number of characters of the inject annotation that messages repeat.
const ENVIRONMENTS_MAX: usize = 512;

/// Memory of a candidate whose texts are empty, in bytes: its structures, its keys in maps, and its verdict.
const CANDIDATE_BYTES: usize = 1 << 10;

/// A pod's metadata, of which what the auditor does not read is skipped while a page is parsed.
#[derive(Clone, Debug, Deserialize)]
struct Listed {
    #[serde(deserialize_with = "metadata::<CandidateSelection, _>")]
    metadata: ObjectMeta,
}

/// Metadata of a pod that the auditor reads.
struct CandidateSelection;

impl Selection for CandidateSelection {
    const CONTROLLER: bool = true;

    fn annotation(key: &str) -> usize {
        if KNOWN.contains(&key) { VALUE_MAX } else { 0 }
    }
}

/// A pod that requests a sidecar and may have none.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) created: Timestamp,
    /// The controller that would replace the pod.
    pub(super) owner: Option<OwnerReference>,
    /// Environments that the pod requests, for messages.
    pub(super) environments: String,
    /// Hash of the pod's annotations that have a meaning.
    pub(super) annotations: u64,
}

/// Memory of the candidates of each namespace, in bytes.
#[derive(Default)]
struct Room(HashMap<String, usize>);

impl Room {
    /// Returns true if the candidate is kept, and false if its namespace has more candidates than there is memory for.
    fn has_room(&mut self, candidate: &Candidate) -> bool {
        let bytes = candidate.bytes();
        match self.0.get_mut(&candidate.namespace) {
            Some(kept) if kept.saturating_add(bytes) > NAMESPACE_BYTES => {
                if *kept <= NAMESPACE_BYTES {
                    tracing::warn!(
                        namespace = candidate.namespace,
                        "the namespace has more pods without a sidecar than the auditor has memory for ({} MiB a namespace): \
                         the others are left out; delete the pods, so that their replacements get sidecars",
                        NAMESPACE_BYTES >> 20
                    );
                }
                // Beyond any size, so that the namespace is reported once.
                *kept = usize::MAX;
                false
            }
            Some(kept) => {
                *kept += bytes;
                true
            }
            None => {
                self.0.insert(candidate.namespace.clone(), bytes);
                true
            }
        }
    }
}

/// Reads candidates from the API server.
pub(super) struct Candidates {
    client: Client,
    options: Options,
}

impl Candidates {
    pub(super) fn new(client: Client, options: Options) -> Candidates {
        Candidates { client, options }
    }

    /// Lists the candidates of all watched namespaces by their metadata.
    pub(super) async fn list(&self) -> Result<Vec<Candidate>, Error> {
        if self.options.watch_namespaces.is_empty() {
            return self.list_of(None).await;
        }
        let mut found = Vec::new();
        for namespace in &self.options.watch_namespaces {
            found.extend(self.list_of(Some(namespace)).await?);
        }
        Ok(found)
    }

    async fn list_of(&self, namespace: Option<&str>) -> Result<Vec<Candidate>, Error> {
        let room = Mutex::new(Room::default());
        let keep = |pod| self.candidate(pod).filter(|candidate| room.lock().has_room(candidate));
        Ok(pods::list(&self.client, namespace, pods::Form::Metadata, pods::not_injected(), keep).await?)
    }

    fn candidate(&self, pod: Listed) -> Option<Candidate> {
        let metadata = pod.metadata;
        let namespace = metadata.namespace?;
        let annotations = metadata.annotations.unwrap_or_default();
        if metadata.deletion_timestamp.is_some()
            || self.options.excluded_namespaces.contains(&namespace)
            || !is_candidate(&annotations, &namespace, &self.options.own_namespace)
        {
            return None;
        }
        let environments = annotations.get(annotation::INJECT).map(String::as_str).unwrap_or_default();
        let mut hasher = DefaultHasher::new();
        annotations.hash(&mut hasher);
        Some(Candidate {
            namespace,
            name: metadata.name?,
            uid: metadata.uid?,
            created: metadata.creation_timestamp?.0,
            owner: metadata.owner_references.into_iter().flatten().find(|owner| owner.controller == Some(true)),
            environments: environments.chars().take(ENVIRONMENTS_MAX).collect(),
            annotations: hasher.finish(),
        })
    }

    /// Reads the pod in full, and checks that it has the sidecar that it requests. Returns `None` if it has one, or if the pod
    /// is gone, was replaced, or is in a namespace that is excluded by its label.
    pub(super) async fn check(&self, candidate: &Candidate) -> Result<Option<MissingSidecar>, Error> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let namespace = within(TIMEOUT, namespaces.get_metadata_opt(&candidate.namespace))
            .await
            .map_err(|source| Error::ReadNamespace { namespace: candidate.namespace.clone(), source })?;
        let metadata = namespace.map(|namespace| namespace.metadata).unwrap_or_default();
        // The label excludes the whole namespace from injection.
        let labels = metadata.labels.as_ref();
        if has_label(labels, label::ADMISSION, label::DISABLED) {
            return Ok(None);
        }

        // A list with one item, because `get` on pods would need another permission.
        let resource = ApiResource::erase::<Pod>(&());
        let pods: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &candidate.namespace, &resource);
        let this = ListParams::default().fields(&format!("metadata.name={}", candidate.name));
        let found = within(TIMEOUT, pods.list(&this)).await.map_err(|source| Error::ReadPod {
            namespace: candidate.namespace.clone(),
            name: candidate.name.clone(),
            source,
        })?;
        let same = found.items.into_iter().find(|pod| pod.metadata.uid.as_ref() == Some(&candidate.uid));
        let Some(pod) = same else {
            return Ok(None);
        };
        let context = PodContext {
            defaults: metadata.annotations.as_ref(),
            allows_overrides: has_label(labels, label::ALLOW_OVERRIDES, "true"),
            ..PodContext::new(&candidate.namespace)
        };
        Ok(missing_sidecar(&serde_json::to_value(&pod)?, &context, &self.options.own_namespace))
    }
}

impl Candidate {
    /// Returns the memory that the candidate takes, in bytes, with its verdict.
    fn bytes(&self) -> usize {
        let owner = self
            .owner
            .as_ref()
            .map_or(0, |owner| owner.api_version.len() + owner.kind.len() + owner.name.len() + owner.uid.len());
        CANDIDATE_BYTES + self.namespace.len() + self.name.len() + 2 * self.uid.len() + self.environments.len() + owner
    }

    /// Returns the value of the inject annotation, for messages.
    pub(super) fn environments(&self) -> &str {
        &self.environments
    }
}

#[cfg(test)]
impl Candidate {
    /// A pod of which only names and UID are known.
    pub(super) fn named(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: format!("uid-{name}"),
            created: Timestamp::UNIX_EPOCH,
            owner: None,
            environments: String::new(),
            annotations: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(namespace: &str, number: usize, length: usize) -> Candidate {
        let text = || "x".repeat(length);
        let owner = OwnerReference {
            api_version: text(),
            kind: text(),
            name: text(),
            uid: text(),
            ..OwnerReference::default()
        };
        Candidate { owner: Some(owner), environments: text(), ..Candidate::named(namespace, &format!("pod-{number}")) }
    }

    #[test]
    fn candidates_of_one_namespace_take_bounded_memory_and_keep_those_of_no_other_out() {
        let mut room = Room::default();
        let kept =
            (0..50_000).map(|number| candidate("noisy", number, 500)).filter(|candidate| room.has_room(candidate));
        let kept: usize = kept.map(|candidate| candidate.bytes()).sum();
        assert!((NAMESPACE_BYTES - 8_000..=NAMESPACE_BYTES).contains(&kept), "{kept} bytes");
        assert!((0..1_000).all(|number| room.has_room(&candidate("quiet", number, 20))));
        assert!(!room.has_room(&candidate("noisy", 50_000, 0)), "a small one is left out as well");
    }
}
