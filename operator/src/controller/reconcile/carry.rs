//! Last steps of a reconciliation: choose the snapshot, publish it, and keep the snapshot that it replaces.

use std::{sync::Arc, time::Instant};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use remora_snapshot::{Snapshot as Reader, files};

use super::memory::Carried;
use super::{error::Error, memory::Memory, turn::Turn};
use crate::{
    api::{Delivered, ObjectKind, PastRevision, names::FORMAT},
    controller::{
        metrics::Step,
        report::{Contents, Facts, Failure, Pin, Publication},
    },
    publish::{Owner, Past, Record, Snapshot},
};

impl Turn<'_> {
    /// Publishes the newest accepted snapshot, or the pinned one.
    pub(super) async fn publish(&self, owner: &Owner, memory: &mut Memory, facts: &mut Facts) -> Result<(), Error> {
        if let Some(chosen) = self.choose(owner, memory, facts).await? {
            let dropped = self.change(owner, memory, chosen).await;
            self.write(owner, memory, &dropped, facts).await?;
        }
        let withheld = memory.withheld.as_ref().map(|withheld| &withheld.failure);
        if let Some(failure) = memory.uncompiled.as_ref().or(withheld) {
            facts.publication = Publication::Failed(failure.clone());
        }
        Ok(())
    }

    /// Reads the published snapshot back from the cluster if this process has none, so that it stays published while
    /// nothing newer may be published after a restart.
    pub(super) async fn recover(&self, owner: &Owner, memory: &mut Memory) {
        if memory.carried.is_some() {
            return;
        }
        match self.context.publisher.recover(owner).await {
            Ok(found) => {
                let carried = |(snapshot, record)| Carried { snapshot: Arc::new(snapshot), record, published: true };
                memory.carried = found.map(carried);
            }
            Err(error) => {
                tracing::warn!(namespace = self.namespace, environment = self.name, %error, "not recovered");
            }
        }
    }

    /// Lists the earlier revisions, without the published one.
    pub(super) fn history(&self, owner: &Owner, memory: &Memory, published: Option<&String>) -> Vec<PastRevision> {
        let past = self.past(owner, memory).into_iter().filter(|past| Some(&past.revision) != published);
        past.map(|past| PastRevision { revision: past.revision, published_at: past.published_at }).collect()
    }

    fn past(&self, owner: &Owner, memory: &Memory) -> Vec<Past> {
        let carried = memory.carried.as_ref().and_then(|carried| carried.record.clone());
        carried.or_else(|| self.context.publisher.record(owner)).map(|record| record.history).unwrap_or_default()
    }

    async fn choose(
        &self,
        owner: &Owner,
        memory: &mut Memory,
        facts: &mut Facts,
    ) -> Result<Option<Arc<Snapshot>>, Error> {
        let pin = &self.spec.pin;
        if pin.is_empty() {
            return Ok(memory.newest.clone().or_else(|| memory.carried_snapshot()));
        }
        self.recover(owner, memory).await;
        let at_hand = memory.carried_snapshot().into_iter().chain(memory.newest.clone());
        let mut chosen = at_hand.into_iter().find(|snapshot| snapshot.revision == *pin);
        if chosen.is_none()
            && let Some(past) = self.past(owner, memory).iter().find(|past| past.revision == *pin)
        {
            chosen = self.context.publisher.restore(owner, past).await?.map(Arc::new);
        }
        if chosen.is_none() {
            facts.pin = Pin::Unknown(self.unknown_pin(owner, memory));
            return Ok(memory.carried_snapshot());
        }
        let newest = memory.newest.as_ref().map(|newest| newest.revision.clone());
        facts.pin = Pin::Kept { newest: newest.filter(|newest| newest != pin) };
        Ok(chosen)
    }

    fn unknown_pin(&self, owner: &Owner, memory: &Memory) -> Failure {
        let published = memory.carried.as_ref().map(|carried| carried.snapshot.revision.clone());
        let published = published.or_else(|| self.context.publisher.revision(owner));
        let mut known: Vec<String> = published.iter().map(|revision| format!("{revision} (is published)")).collect();
        let past = self.history(owner, memory, published.as_ref());
        known.extend(past.iter().map(|past| format!("{} (was published at {})", past.revision, past.published_at.0)));
        let known = if known.is_empty() { "none yet".to_owned() } else { known.join(", ") };
        // A pin exists to keep the newest revision out, so no other revision is published in place of an unknown one.
        let kept = match self.context.publisher.only_in(owner) {
            Some(format) => format!(
                "not kept in format {FORMAT}, so what was published in format {format} stays, for pods that mount it, and new pods get nothing"
            ),
            None => "not kept, so what is published stays".to_owned(),
        };
        Failure {
            reason: "UnknownRevision",
            message: format!(
                "spec.pin: revision {} is {kept}; write one of these: {known}; or remove spec.pin",
                self.spec.pin
            ),
        }
    }

    /// Makes the chosen snapshot the desired one and adds the replaced snapshot to the history. Returns the revisions
    /// that drop out of the history.
    async fn change(&self, owner: &Owner, memory: &mut Memory, chosen: Arc<Snapshot>) -> Vec<Past> {
        let publisher = &self.context.publisher;
        let is_live = memory.carried.is_none() && publisher.revision(owner).as_ref() == Some(&chosen.revision);
        if !is_live {
            self.recover(owner, memory).await;
        }
        let before = memory.carried.as_ref().map_or_else(|| publisher.record(owner), |carried| carried.record.clone());
        let outgoing = memory.carried.take();
        let same = is_live || outgoing.as_ref().is_some_and(|carried| carried.snapshot.revision == chosen.revision);
        let published = is_live || same && outgoing.as_ref().is_some_and(|carried| carried.published);
        let mut record = record(before, memory, same);
        // The schema limits the value to 0 to 20.
        let limit = usize::try_from(self.spec.revision_history_limit).unwrap_or_default();
        let outgoing = outgoing.filter(|outgoing| !same && outgoing.published && limit > 0);
        if let (Some(record), Some(outgoing)) = (&mut record, outgoing)
            && self.archive(owner, memory, &outgoing.snapshot).await
        {
            let since = outgoing.record.map_or(record.published_at.clone(), |record| record.published_at);
            record.history.retain(|past| past.revision != outgoing.snapshot.revision);
            record.history.insert(0, Past::of(&outgoing.snapshot, since));
        }
        let dropped = record.as_mut().map(|record| record.trim(limit, &[&self.spec.pin, &chosen.revision]));
        memory.carried = Some(Carried { snapshot: chosen, record, published });
        dropped.unwrap_or_default()
    }

    /// Archives a replaced snapshot and returns true on success. A failure is only logged and counted: the new snapshot
    /// is published in any case, because it matters more.
    async fn archive(&self, owner: &Owner, memory: &Memory, snapshot: &Snapshot) -> bool {
        let step = self.context.metrics.begin(Step::Archive);
        match self.context.publisher.archive(owner, snapshot, &memory.ledger).await {
            Ok(()) => {
                step.end("Done");
                true
            }
            Err(error) => {
                step.end(error.reason());
                let (namespace, environment, revision) = (&self.namespace, &self.name, &snapshot.revision);
                tracing::warn!(namespace, environment, revision, %error, "an earlier revision is not kept");
                false
            }
        }
    }

    async fn write(
        &self,
        owner: &Owner,
        memory: &mut Memory,
        dropped: &[Past],
        facts: &mut Facts,
    ) -> Result<(), Error> {
        let Some(carried) = &mut memory.carried else { return Ok(()) };
        let step = self.context.metrics.begin(Step::Publish);
        let (snapshot, record) = (&carried.snapshot, carried.record.as_ref());
        let published = match self.context.publisher.publish(owner, snapshot, record, &mut memory.ledger).await {
            Ok(published) => published,
            Err(error) => {
                step.end(error.reason());
                return Err(error.into());
            }
        };
        step.end(if published.written == 0 { "Unchanged" } else { "Done" });
        let (namespace, environment, revision) = (&self.namespace, &self.name, &snapshot.revision);
        if published.written > 0 {
            tracing::info!(namespace, environment, revision, objects = published.written, "published");
        }
        let kept = record.map(|record| record.history.as_slice()).unwrap_or_default();
        if let Err(error) = self.context.publisher.forget(owner, dropped, kept).await {
            tracing::warn!(namespace, environment, %error, "earlier revisions are not deleted yet");
        }
        carried.published = true;
        memory.retry_publish = None;
        memory.publish_failures = 0;
        facts.revision = Some(revision.clone());
        let delivered = Delivered {
            object_kind: owner.object_kind,
            overrides_files: i32::try_from(snapshot.overrides_files()).unwrap_or(i32::MAX),
            formerly: None,
        };
        let formerly = self.leave_former(owner, memory).await;
        let contents = self.contents(memory);
        let delivered = Delivered { formerly, ..delivered };
        facts.publication = Publication::Done { objects: published.objects, delivered, contents };
        Ok(())
    }

    /// Deletes the objects of the previous kind or format once no pod mounts them. Returns the previous kind while its
    /// objects stay.
    async fn leave_former(&self, owner: &Owner, memory: &mut Memory) -> Option<ObjectKind> {
        let publisher = &self.context.publisher;
        let formerly = owner.was_other.then(|| owner.object_kind.other());
        if !publisher.has_former(owner) {
            memory.former_since = None;
            return None;
        }
        // Pods that were admitted a moment ago may not be listed yet.
        let since = *memory.former_since.get_or_insert_with(Instant::now);
        if since.elapsed() < publisher.grace() {
            return formerly;
        }
        memory.former_since = Some(Instant::now());
        let (namespace, environment) = (&self.namespace, &owner.environment);
        match self.context.observer.mounting_previous(namespace, environment, owner.object_kind).await {
            Ok(0) => {}
            Ok(pods) => {
                tracing::info!(namespace, %environment, pods, "pods still mount what carried flags before");
                return formerly;
            }
            Err(error) => {
                tracing::warn!(namespace, %environment, %error, "it is not known who mounts what carried flags before");
                return formerly;
            }
        }
        match publisher.withdraw_former(owner).await {
            Ok(()) => None,
            Err(error) => {
                tracing::warn!(namespace, %environment, %error, "what carried flags before is not deleted yet");
                formerly
            }
        }
    }

    /// Describes the contents of the desired snapshot, unless they were reported already.
    fn contents(&self, memory: &Memory) -> Option<Contents> {
        let carried = &memory.carried.as_ref()?.snapshot;
        let revision = Some(&carried.revision);
        if memory.newest.as_ref().map(|newest| &newest.revision) == revision {
            return memory.contents.clone().filter(|_| memory.reported.as_ref() != revision);
        }
        let reported = memory.status.as_ref().or(self.environment.status.as_ref());
        if reported.and_then(|status| status.revision.as_ref()) == revision { None } else { read(carried) }
    }
}

/// Builds the record of the chosen snapshot, with the history as it was before this change.
fn record(before: Option<Record>, memory: &Memory, same: bool) -> Option<Record> {
    let accepted = memory.outline.as_ref();
    match (before, accepted) {
        // The snapshot stays published since the same time, so the record is not written again only for a newer time.
        (Some(before), Some(accepted)) if same && !before.document.is_from_the_source_of(accepted) => {
            Some(Record { document: accepted.clone(), ..before })
        }
        (Some(before), _) if same => Some(before),
        (before, accepted) => {
            let (document, history) = match before {
                Some(before) => (accepted.cloned().unwrap_or(before.document), before.history),
                None => (accepted?.clone(), Vec::new()),
            };
            Some(Record { published_at: Time(this_second()), document, history })
        }
    }
}

/// Returns the current time in whole seconds, the precision in which the API server stores times.
fn this_second() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

/// Reads the contents of a snapshot that another reconciliation compiled. `None` if it cannot be read.
fn read(snapshot: &Snapshot) -> Option<Contents> {
    let core = snapshot.files.iter().find(|file| file.is_core())?;
    let mut reader = Reader::read(core.bytes.as_slice()).ok()?;
    for file in snapshot.files.iter().filter(|file| files::is_overrides(&file.name)) {
        reader.attach(file.bytes.as_slice()).ok()?;
    }
    let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    let features = reader.describe().features.iter().filter(|feature| !feature.unserved).count();
    Some(Contents {
        features: count(features),
        segments: count(reader.segments()),
        overrides: count(reader.identity_overrides()),
        bytes: count(snapshot.size()),
        ..Contents::default()
    })
}
