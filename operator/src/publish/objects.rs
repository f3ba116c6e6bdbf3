//! Objects of an environment: finds, compares, writes and deletes them, and enters the results into the caches.

use std::sync::Arc;

use kube::core::ObjectMeta;

use super::{
    Destination, Error, Publisher, WriteCache,
    object::{Verdict, Wanted},
    owner::Collection,
    view,
};
use crate::api::{
    ObjectKind,
    names::{FORMAT, Format, label},
    resource_version::is_older,
};

impl Publisher {
    /// Compares the existing object with the desired one, and returns it. A write names its UID and resource version, so
    /// that it changes nothing if it arrives late, after a later one of another process.
    pub(super) async fn check(
        &self,
        objects: Collection<'_>,
        wanted: &Wanted<'_>,
        cache: &WriteCache,
    ) -> Result<(Verdict, Option<Arc<ObjectMeta>>), Error> {
        let written = cache.of(objects.object_kind).versions.get(&wanted.name).map(String::as_str);
        let mut found = self.find(objects, &wanted.name).await?;
        if let (Some(version), Some(written)) =
            (found.as_ref().and_then(|found| found.resource_version.as_deref()), written)
            && is_older(version, written)
        {
            // The watch lags behind the operator's own write, so nobody has altered the object.
            found = self.calls(objects).metadata(&wanted.name).await?.map(Arc::new);
        }
        let Some(found) = found else { return Ok((Verdict::Outdated, None)) };
        match wanted.verdict(objects.owner, &found, written) {
            Verdict::Foreign => Err(Error::Conflict(objects.describe(&wanted.name))),
            verdict => Ok((verdict, Some(found))),
        }
    }

    /// Returns the metadata of the object with this name. Asks the API server if the cache has none, because an object
    /// without Remora's labels is not cached but may exist.
    pub(super) async fn find(&self, objects: Collection<'_>, name: &str) -> Result<Option<Arc<ObjectMeta>>, Error> {
        if let Some(found) = self.known(objects, name) {
            return Ok(Some(found));
        }
        let found = self.calls(objects).metadata(name).await?;
        if objects.object_kind == ObjectKind::Secret {
            // Another process wrote it. It is deleted with the others once nothing needs it.
            self.secrets.put(objects.owner, name, found.clone());
        }
        Ok(found.map(Arc::new))
    }

    /// Returns the cached metadata of the object with this name.
    pub(super) fn known(&self, objects: Collection<'_>, name: &str) -> Option<Arc<ObjectMeta>> {
        match objects.object_kind {
            ObjectKind::ConfigMap => self.objects.get(&objects.owner.object(name)),
            ObjectKind::Secret => self.secrets.get(objects.owner, name),
        }
    }

    /// Writes the object if it is still as it was found, or still does not exist, and returns its new resource version.
    pub(super) async fn apply(
        &self,
        objects: Collection<'_>,
        wanted: &Wanted<'_>,
        found: Option<&ObjectMeta>,
    ) -> Result<Option<String>, Error> {
        let _permit = self.permits.write(&objects.owner.namespace).await;
        let applied = self.calls(objects).apply(wanted, found).await?;
        let version = applied.resource_version.clone();
        match (objects.object_kind, &version) {
            (ObjectKind::ConfigMap, Some(version)) => {
                self.objects.enter_write(objects.owner.object(&wanted.name), version, view(&applied));
            }
            (ObjectKind::ConfigMap, None) => {}
            (ObjectKind::Secret, _) => self.secrets.put(objects.owner, &wanted.name, Some(applied)),
        }
        Ok(version)
    }

    /// Deletes the object if it is still as it was found.
    pub(super) async fn delete(
        &self,
        objects: Collection<'_>,
        found: &ObjectMeta,
        cache: &mut WriteCache,
    ) -> Result<(), Error> {
        let is_gone = self.calls(objects).delete(found).await?;
        let name = found.name.as_deref().unwrap_or_default();
        match objects.object_kind {
            ObjectKind::ConfigMap if is_gone => {
                let version = found.resource_version.as_deref().unwrap_or_default();
                self.objects.enter_deletion(objects.owner.object(name), version);
            }
            // The watch reports what has changed.
            ObjectKind::ConfigMap => {}
            ObjectKind::Secret => {
                cache.polls.deleted(name);
                let changed = if is_gone { None } else { self.calls(objects).metadata(name).await? };
                self.secrets.put(objects.owner, name, changed);
            }
        }
        Ok(())
    }

    /// True if there may be objects that only earlier pods mount: objects of the other kind or in another format.
    pub fn has_obsolete(&self, destination: &Destination) -> bool {
        destination.may_have_other_kind || !self.obsolete(destination).is_empty()
    }

    /// True if objects of the other kind exist in the current format, also if a publication of them was cut off.
    pub fn is_other_kind_cached(&self, destination: &Destination) -> bool {
        !self.last_first(destination.other_kind(), |format| format == FORMAT).is_empty()
    }

    /// Returns the objects that only earlier pods mount.
    pub(super) fn obsolete<'a>(&self, destination: &'a Destination) -> Vec<(Collection<'a>, Arc<ObjectMeta>)> {
        let (used, unused) = (destination.current(), destination.other_kind());
        let in_used = self.last_first(used, |format| format != FORMAT);
        let in_unused = self.last_first(unused, |_| true);
        let in_used = in_used.into_iter().map(|found| (used, found));
        in_used.chain(in_unused.into_iter().map(|found| (unused, found))).collect()
    }

    /// Returns the cores that only earlier pods mount.
    pub(super) fn obsolete_cores(&self, destination: &Destination) -> Vec<Arc<ObjectMeta>> {
        let obsolete = self.obsolete(destination).into_iter().map(|(_, found)| found);
        obsolete.filter(|found| destination.owner.is_core(found)).collect()
    }

    /// Returns the objects in the wanted formats, highest number first, so that an incomplete deletion leaves no gap in
    /// the numbers. Objects that are being deleted are gone already: a finalizer of somebody else may hold them for ever.
    pub(super) fn last_first(
        &self,
        objects: Collection<'_>,
        is_wanted: impl Fn(Format) -> bool,
    ) -> Vec<Arc<ObjectMeta>> {
        let owner = objects.owner;
        let of_owner = |found: &ObjectMeta| {
            let environment = found.labels.as_ref().and_then(|labels| labels.get(label::ENVIRONMENT));
            found.namespace.as_ref() == Some(&owner.namespace)
                && found.deletion_timestamp.is_none()
                && environment.map(String::as_str) == Some(owner.environment.as_str())
                && is_wanted(owner.format(found))
                && owner.owns(found)
        };
        let mut found: Vec<Arc<ObjectMeta>> = match objects.object_kind {
            ObjectKind::ConfigMap => {
                let all = self.objects.of(&owner.name());
                all.into_iter().filter(|found| of_owner(found)).collect()
            }
            ObjectKind::Secret => self.secrets.all(owner).into_iter().filter(|found| of_owner(found)).collect(),
        };
        found.sort_by(|a, b| b.name.cmp(&a.name));
        found
    }
}
