//! Publication of a snapshot in the objects of one kind.

use std::{collections::HashSet, sync::Arc};

use kube::core::ObjectMeta;
use remora_snapshot::{
    Pointer,
    files::{self, CoreSet},
};

use super::{
    Error, File, Owner, Published, Publisher, Record, Snapshot, WriteCache,
    core::{self, CoreLocation, PresentFile},
    history,
    object::{Verdict, Wanted},
    owner::{self, Collection},
};

impl Publisher {
    /// Writes the objects that differ from the snapshot, in the order that keeps pods whole, and deletes surplus ones.
    pub(super) async fn write(
        &self,
        to: Collection<'_>,
        snapshot: &Snapshot,
        record: Option<&Record>,
        cache: &mut WriteCache,
    ) -> Result<Published, Error> {
        let before = self.placed(to, snapshot, cache).await?;
        let placed = CoreLocation::next(snapshot, before.as_ref());
        let contents = snapshot.contents(placed.set.unwrap_or(CoreSet::A))?;
        let objects: Vec<String> = contents.iter().map(|content| to.owner.environment.object(&content.file)).collect();
        let kept = if placed.outgrows(before.as_ref()) { self.kept(to, &placed).await? } else { None };
        let present = self.present_overrides(to);
        let ordered = core::order(contents, before.as_ref(), &placed, kept.map(core::Content::from), &present);
        let wanted: Vec<Wanted<'_>> =
            ordered.into_iter().map(|content| Wanted::live(to.owner, content, &placed, record)).collect();
        let outdated = self.outdated(to, &wanted, cache).await?;
        for (wanted, found) in &outdated {
            self.replace(to, wanted, found.as_deref(), &placed, cache).await?;
        }
        if let Err(error) = self.clear_surplus(to, &needed(to.owner, &objects, &placed, record), cache).await {
            // The revision is published, so a failed deletion of surplus objects does not fail the publication.
            let (namespace, environment) = (&to.owner.namespace, &to.owner.environment);
            tracing::warn!(namespace, %environment, %error, "cannot delete surplus objects: they are deleted later");
        }
        cache.of_mut(to.object_kind).placed = Some(placed);
        Ok(Published { objects, written: outdated.len() })
    }

    /// Returns the objects that differ from their desired state, with the metadata of those that exist.
    async fn outdated<'a, 'b>(
        &self,
        to: Collection<'_>,
        wanted: &'a [Wanted<'b>],
        cache: &WriteCache,
    ) -> Result<Vec<(&'a Wanted<'b>, Option<Arc<ObjectMeta>>)>, Error> {
        let mut outdated = Vec::new();
        for wanted in wanted {
            let (verdict, found) = self.check(to, wanted, cache).await?;
            if verdict == Verdict::Outdated {
                outdated.push((wanted, found));
            }
        }
        Ok(outdated)
    }

    /// Writes one object of the publication at `placed`, and caches its version.
    async fn replace(
        &self,
        to: Collection<'_>,
        wanted: &Wanted<'_>,
        found: Option<&ObjectMeta>,
        placed: &CoreLocation,
        cache: &mut WriteCache,
    ) -> Result<(), Error> {
        let written = cache.of_mut(to.object_kind);
        // If the API server does not answer, it is not known which version is the operator's, and which core is published.
        written.versions.remove(&wanted.name);
        if wanted.is_core() {
            written.placed = None;
        }
        let applied = self.apply(to, wanted, found).await;
        if applied.is_err() {
            cache.polls.write_failed();
        }
        let version = applied?;
        let written = cache.of_mut(to.object_kind);
        if wanted.is_core() {
            written.placed = Some(placed.clone());
        }
        written.versions.extend(version.map(|version| (wanted.name.clone(), version)));
        Ok(())
    }

    /// Lists the known overrides files, which may be of several revisions.
    fn present_overrides(&self, objects: Collection<'_>) -> Vec<PresentFile> {
        let owner = objects.owner;
        let found = |slot| {
            let found = self.known(objects, &owner.environment.object(&files::overrides(slot)))?;
            owner.owns(&found).then(|| PresentFile { slot, files: owner::overrides_files(&found) })
        };
        (0..files::OVERRIDES_SLOTS).filter_map(found).collect()
    }

    /// Returns the place of the published core. `None` if the owner has published none.
    async fn placed(
        &self,
        objects: Collection<'_>,
        snapshot: &Snapshot,
        cache: &WriteCache,
    ) -> Result<Option<CoreLocation>, Error> {
        match &cache.of(objects.object_kind).placed {
            // After a start, or after a write without an answer, the watch may not show the published core yet.
            None if snapshot.core_parts() > 0 => self.read_placed(objects).await,
            None => Ok(self.core(objects).as_deref().and_then(CoreLocation::of)),
            known => Ok(known.clone()),
        }
    }

    /// Asks the API server for the place of the published core. `None` if the owner has published none.
    async fn read_placed(&self, objects: Collection<'_>) -> Result<Option<CoreLocation>, Error> {
        let core = self.calls(objects).metadata(&objects.owner.environment.object(files::CORE)).await?;
        Ok(core.filter(|core| objects.owner.owns(core)).as_ref().and_then(CoreLocation::of))
    }

    /// Returns the core that is published as one object, as the content of the set that is not about to be published: a
    /// sidecar that starts before all parts have arrived serves it. `None` if the object was altered.
    async fn kept(&self, objects: Collection<'_>, placed: &CoreLocation) -> Result<Option<File>, Error> {
        let Some(set) = placed.set else { return Ok(None) };
        let core = self.read(objects, &objects.owner.environment.object(files::CORE)).await?;
        let core = core.filter(|core| matches!(Pointer::read(&core.bytes), Ok(None)));
        Ok(core.map(|core| core::kept(core, set)))
    }
}

/// Returns the names of the objects that are not surplus.
fn needed(owner: &Owner, objects: &[String], placed: &CoreLocation, record: Option<&Record>) -> HashSet<String> {
    let mut needed = record.map(|record| history::names(owner, &record.history)).unwrap_or_default();
    needed.extend(objects.iter().cloned());
    if let Some(set) = placed.set {
        // The other set has the core before.
        needed.extend(owner.parts(set.other()));
    }
    needed
}
