//! Reads revisions back from the objects that hold them.

use std::collections::BTreeMap;

use anyhow::Context as _;
use k8s_openapi::{
    ByteString,
    api::core::v1::{ConfigMap, Secret},
};
use kube::ResourceExt;
use remora_snapshot::{Pointer, Snapshot, files};
use remora_tools::parts;

use super::{cluster::Cluster, failure::Failure};
use crate::{
    api::{
        FeatureEnvironment, ObjectKind,
        names::{EnvironmentName, annotation},
    },
    publish::Record,
};

/// A revision, read from the cluster.
pub(super) struct Published {
    pub(super) snapshot: Snapshot<Vec<u8>>,
    /// Size of each object's file in bytes, by object and file.
    pub(super) files: Vec<(String, String, usize)>,
}

/// An object of either kind.
struct Found {
    annotations: BTreeMap<String, String>,
    content: BTreeMap<String, ByteString>,
}

/// Reads the published revision, or the one that `revision` names.
pub(super) async fn read(
    cluster: &Cluster,
    environment: &FeatureEnvironment,
    revision: Option<&str>,
) -> Result<Published, Failure> {
    let name = environment.name_any();
    let owner: EnvironmentName = name.parse().map_err(|error| Failure::Unreadable(format!("{error}")))?;
    let kind = environment.status.as_ref().and_then(|status| status.delivery.as_ref()).map(|as_is| as_is.object_kind);
    let kind = kind.unwrap_or(environment.spec.delivery.object_kind);
    let Some(core) = object(cluster, kind, &owner.object(files::CORE)).await? else {
        return Err(Failure::Unreadable(format!(
            "FeatureEnvironment {name:?} has no published revision in the format of this version: `kubectl -n {} describe fenv {name}` says why",
            cluster.namespace()
        )));
    };
    let live = core.annotations.get(annotation::REVISION).cloned().unwrap_or_default();
    match revision.filter(|revision| *revision != live) {
        None => read_live(cluster, kind, &owner, core).await,
        Some(revision) => read_past(cluster, kind, &owner, &core, &live, revision).await,
    }
}

async fn read_live(
    cluster: &Cluster,
    kind: ObjectKind,
    owner: &EnvironmentName,
    core: Found,
) -> Result<Published, Failure> {
    let mut files = vec![(owner.object(files::CORE), core.content)];
    for file in parts(&files)? {
        let name = owner.object(&file);
        let Some(found) = object(cluster, kind, &name).await? else {
            return Err(Failure::Unreadable(format!("object {name} does not exist: the published core is incomplete")));
        };
        files.push((name, found.content));
    }
    let snapshot = assemble(&files)?;
    for slot in 0..snapshot.overrides_files().unwrap_or_default() {
        let name = owner.object(&files::overrides(slot));
        let found = object(cluster, kind, &name).await?;
        files.extend(found.map(|found| (name, found.content)));
    }
    for slot in (0..files::DOCUMENT_SLOTS).take_while(|_| snapshot.serves_document()) {
        let name = owner.object(&files::document(slot));
        let Some(found) = object(cluster, kind, &name).await? else { break };
        files.push((name, found.content));
    }
    published(files)
}

async fn read_past(
    cluster: &Cluster,
    kind: ObjectKind,
    owner: &EnvironmentName,
    core: &Found,
    live: &str,
    revision: &str,
) -> Result<Published, Failure> {
    let record = core.annotations.get(annotation::RECORD).and_then(|record| Record::parse(record));
    let history = record.map(|record| record.history).unwrap_or_default();
    let Some(past) = history.iter().find(|past| past.revision == *revision) else {
        let kept: Vec<&str> = std::iter::once(live).chain(history.iter().map(|past| past.revision.as_str())).collect();
        return Err(Failure::not_kept(revision, &kept));
    };
    let mut files = Vec::new();
    for name in past.objects(owner) {
        let Some(found) = object(cluster, kind, &name).await? else {
            return Err(Failure::Unreadable(format!(
                "object {name} of revision {revision} does not exist: the revision cannot be read"
            )));
        };
        files.push((name, found.content));
    }
    published(files)
}

async fn object(cluster: &Cluster, kind: ObjectKind, name: &str) -> Result<Option<Found>, Failure> {
    let namespace = cluster.namespace();
    Ok(match kind {
        ObjectKind::ConfigMap => cluster.get::<ConfigMap>(namespace, name).await?.map(|found| Found {
            annotations: found.metadata.annotations.unwrap_or_default(),
            content: found.binary_data.unwrap_or_default(),
        }),
        ObjectKind::Secret => cluster.get::<Secret>(namespace, name).await?.map(|found| Found {
            annotations: found.metadata.annotations.unwrap_or_default(),
            content: found.data.unwrap_or_default(),
        }),
    })
}

fn published(files: Vec<(String, BTreeMap<String, ByteString>)>) -> Result<Published, Failure> {
    let snapshot = assemble(&files)?;
    let sizes = files.into_iter().flat_map(|(object, content)| {
        content.into_iter().map(move |(file, bytes)| (object.clone(), file, bytes.0.len()))
    });
    Ok(Published { snapshot, files: sizes.collect() })
}

type Files = [(String, BTreeMap<String, ByteString>)];

/// Returns the content of a file.
fn content<'a>(objects: &'a Files, name: &str) -> Option<&'a Vec<u8>> {
    objects.iter().find_map(|(_, files)| files.get(name)).map(|bytes| &bytes.0)
}

/// Lists the files with the parts of a core. Empty if the core is one file.
fn parts(objects: &Files) -> Result<Vec<String>, Failure> {
    let pointer = content(objects, files::CORE).map(|core| Pointer::read(core)).transpose();
    let pointer = pointer.map_err(|error| Failure::Unreadable(format!("the published core: {error}")))?.flatten();
    let names = pointer.map(|pointer| {
        let numbers = 0..files::part_lengths(pointer.length()).count();
        numbers.map(|number| files::core_part(pointer.set(), number)).collect()
    });
    Ok(names.unwrap_or_default())
}

/// Builds the snapshot from the files in these objects.
fn assemble(objects: &Files) -> Result<Snapshot<Vec<u8>>, Failure> {
    let unreadable = |error: &dyn std::fmt::Display| {
        let names: Vec<&str> = objects.iter().map(|(object, _)| object.as_str()).collect();
        let names = names.join(", ");
        Failure::Unreadable(format!("the objects {names} are no snapshot that this version can read: {error}"))
    };
    let each = || objects.iter().flat_map(|(_, files)| files.iter());
    let core = match content(objects, files::CORE) {
        Some(core) => core.clone(),
        // A core in parts that is kept as an earlier revision has no pointer, and its parts are listed in order.
        None => each().filter(|(file, _)| files::is_core_part(file)).flat_map(|(_, bytes)| bytes.0.clone()).collect(),
    };
    let part = |name: &str| {
        let part = content(objects, name).cloned();
        part.with_context(|| format!("they have no file {name}, which the file core names"))
    };
    let mut snapshot = parts::read(core, part).map_err(|error: anyhow::Error| unreadable(&error))?;
    for (_, overrides) in each().filter(|(file, _)| files::is_overrides(file)) {
        snapshot.attach(overrides.0.clone()).map_err(|error| unreadable(&error))?;
    }
    Ok(snapshot)
}
