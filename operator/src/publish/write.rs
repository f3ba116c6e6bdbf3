//! Single calls to the API server, each with a timeout, and the translation of their failures.

use std::{collections::BTreeMap, fmt::Debug, time::Duration};

use k8s_openapi::{
    ByteString, NamespaceResourceScope,
    api::core::v1::{ConfigMap, Secret},
};
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
    core::ObjectMeta,
};
use serde::{Serialize, de::DeserializeOwned};

use super::{Error, metadata, object::Wanted, owner::Collection};
use crate::{
    api::{
        ObjectKind,
        names::{FIELD_MANAGER, SNAPSHOT_TYPE},
    },
    api_call::{CallError, within},
};

/// Timeout of one call: enough for 1 MB over a slow connection.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Resource version that no object has, because etcd is at it while it is empty. The API server refuses an apply with it if
/// the object exists, and ignores it if the apply creates the object.
const NO_OBJECT: &str = "1";

/// Kind of object that can carry a file.
trait SnapshotObject:
    Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + Serialize + DeserializeOwned
{
    fn with_content(metadata: ObjectMeta, content: BTreeMap<String, ByteString>) -> Self;
    fn content(self) -> (ObjectMeta, Option<BTreeMap<String, ByteString>>);
}

impl SnapshotObject for ConfigMap {
    fn with_content(metadata: ObjectMeta, content: BTreeMap<String, ByteString>) -> Self {
        Self { metadata, binary_data: Some(content), ..Self::default() }
    }

    fn content(self) -> (ObjectMeta, Option<BTreeMap<String, ByteString>>) {
        (self.metadata, self.binary_data)
    }
}

impl SnapshotObject for Secret {
    fn with_content(metadata: ObjectMeta, content: BTreeMap<String, ByteString>) -> Self {
        // Only Remora uses this Secret type, and the type of a Secret never changes, so no other Secret can be mistaken
        // for one of these.
        Self { metadata, data: Some(content), type_: Some(SNAPSHOT_TYPE.to_owned()), ..Self::default() }
    }

    fn content(self) -> (ObjectMeta, Option<BTreeMap<String, ByteString>>) {
        (self.metadata, self.data)
    }
}

/// Metadata and content of an existing object.
pub(super) struct StoredObject {
    pub(super) metadata: ObjectMeta,
    pub(super) content: BTreeMap<String, ByteString>,
}

/// API calls about the objects of one kind and owner.
pub(super) struct Calls<'a> {
    pub(super) client: &'a Client,
    pub(super) objects: Collection<'a>,
}

/// Purpose of a call, which decides how its failure is reported.
#[derive(Clone, Copy)]
enum Purpose {
    Read,
    Write,
}

impl Calls<'_> {
    /// Applies the object and returns its metadata as the API server stored it. The API server refuses the write if the
    /// object is not as it was `found` any more, or if it exists and was not found.
    pub(super) async fn apply(&self, wanted: &Wanted<'_>, found: Option<&ObjectMeta>) -> Result<ObjectMeta, Error> {
        match self.objects.object_kind {
            ObjectKind::ConfigMap => self.apply_as::<ConfigMap>(wanted, found).await,
            ObjectKind::Secret => self.apply_as::<Secret>(wanted, found).await,
        }
    }

    async fn apply_as<K: SnapshotObject>(
        &self,
        wanted: &Wanted<'_>,
        found: Option<&ObjectMeta>,
    ) -> Result<ObjectMeta, Error> {
        let (metadata, content) = wanted.object(self.objects.owner);
        // With a UID, the API server refuses to create the object again.
        let uid = found.and_then(|found| found.uid.clone());
        let version = found.and_then(|found| found.resource_version.as_deref()).unwrap_or(NO_OBJECT);
        let metadata = ObjectMeta { uid, resource_version: Some(version.to_owned()), ..metadata };
        let object = K::with_content(metadata, content);
        let parameters = PatchParams::apply(FIELD_MANAGER).force();
        let patch = Patch::Apply(&object);
        let api = self.api::<K>();
        let applied =
            self.in_time(Purpose::Write, &wanted.name, api.patch_metadata(&wanted.name, &parameters, &patch)).await?;
        Ok(metadata::selected(applied.metadata))
    }

    /// Gets the object's current metadata from the API server. `None` if the object does not exist.
    pub(super) async fn metadata(&self, name: &str) -> Result<Option<ObjectMeta>, Error> {
        match self.objects.object_kind {
            ObjectKind::ConfigMap => self.metadata_of::<ConfigMap>(name).await,
            ObjectKind::Secret => self.metadata_of::<Secret>(name).await,
        }
    }

    async fn metadata_of<K: SnapshotObject>(&self, name: &str) -> Result<Option<ObjectMeta>, Error> {
        let found = self.in_time(Purpose::Read, name, self.api::<K>().get_metadata_opt(name)).await?;
        Ok(found.map(|found| metadata::selected(found.metadata)))
    }

    /// Gets the object. `None` if it does not exist.
    pub(super) async fn read(&self, name: &str) -> Result<Option<StoredObject>, Error> {
        match self.objects.object_kind {
            ObjectKind::ConfigMap => self.read_as::<ConfigMap>(name).await,
            ObjectKind::Secret => self.read_as::<Secret>(name).await,
        }
    }

    async fn read_as<K: SnapshotObject>(&self, name: &str) -> Result<Option<StoredObject>, Error> {
        let found = self.in_time(Purpose::Read, name, self.api::<K>().get_opt(name)).await?;
        Ok(found.map(|found| {
            let (metadata, content) = found.content();
            StoredObject { metadata, content: content.unwrap_or_default() }
        }))
    }

    /// Deletes the object if it still has this UID and resource version. Returns true if it is gone, and false if it has
    /// changed.
    pub(super) async fn delete(&self, found: &ObjectMeta) -> Result<bool, Error> {
        match self.objects.object_kind {
            ObjectKind::ConfigMap => self.delete_as::<ConfigMap>(found).await,
            ObjectKind::Secret => self.delete_as::<Secret>(found).await,
        }
    }

    async fn delete_as<K: SnapshotObject>(&self, found: &ObjectMeta) -> Result<bool, Error> {
        let name = found.name.clone().unwrap_or_default();
        let exactly = Preconditions { uid: found.uid.clone(), resource_version: found.resource_version.clone() };
        let parameters = DeleteParams { preconditions: Some(exactly), ..DeleteParams::default() };
        match within(TIMEOUT, self.api::<K>().delete(&name, &parameters)).await {
            Ok(_) => Ok(true),
            Err(CallError::Refused(status)) if status.is_not_found() => Ok(true),
            Err(CallError::Refused(status)) if status.is_conflict() => Ok(false),
            Err(error) => Err(Purpose::Write.failed(self.objects.describe(&name), error)),
        }
    }

    fn api<K: SnapshotObject>(&self) -> Api<K> {
        Api::namespaced(self.client.clone(), &self.objects.owner.namespace)
    }

    async fn in_time<T>(
        &self,
        purpose: Purpose,
        name: &str,
        call: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, Error> {
        within(TIMEOUT, call).await.map_err(|error| purpose.failed(self.objects.describe(name), error))
    }
}

impl Purpose {
    /// Translates a failed call about this object.
    fn failed(self, object: String, error: CallError) -> Error {
        let problem = match error {
            error if error.is_terminating() => return Error::NamespaceTerminating,
            CallError::Refused(status) if status.is_forbidden() && status.message.contains("exceeded quota") => {
                return Error::QuotaExceeded { object, problem: status.message };
            }
            CallError::Unanswered(error) => format!("the API server did not answer: {error}"),
            error => error.to_string(),
        };
        match self {
            Self::Read => Error::ReadFailed { object, problem },
            Self::Write => Error::WriteFailed { object, problem },
        }
    }
}
