//! Metadata of objects, reduced to what is read of it while an answer of the API server is parsed. The authors of objects
//! decide how large the rest is: 256 KiB of annotations take ten times as much memory as a map.

use std::{borrow::Cow, collections::BTreeMap, fmt, marker::PhantomData};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry, ObjectMeta, OwnerReference, Time};
use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::json;

/// Largest length of a name, a UID or a label that is kept, in bytes. The API server refuses longer ones, except in owner
/// references.
const NAME_MAX: usize = 320;
/// End of a value that was cut. No grammar of an annotation or a label allows it.
const CUT: char = char::REPLACEMENT_CHARACTER;

/// The metadata that is kept of objects of a kind, besides their names, versions, and times of creation and deletion.
pub trait Selection {
    /// True if the owner reference of the controller is kept.
    const CONTROLLER: bool = false;
    /// Field manager whose apply is kept, with the first two entries of managers that write the data. Their fields are
    /// reduced to the names of the data. `None`: no managed fields are kept.
    const MANAGER: Option<&'static str> = None;

    /// Returns the largest length of an annotation's value in bytes, or 0 if the annotation is not kept. A longer value is
    /// cut, and ends with U+FFFD.
    fn annotation(key: &str) -> usize {
        let _ = key;
        0
    }

    /// True if the label is kept.
    fn label(key: &str) -> bool {
        let _ = key;
        false
    }
}

/// Parses the selected metadata of an object.
///
/// # Errors
/// The metadata is not that of an object.
pub fn metadata<'de, S: Selection, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let selected = Selected::<S>::deserialize(deserializer)?;
    Ok(ObjectMeta {
        name: selected.name.map(name),
        namespace: selected.namespace.map(name),
        uid: selected.uid.map(name),
        resource_version: selected.resource_version.map(name),
        generation: selected.generation,
        creation_timestamp: selected.creation_timestamp,
        deletion_timestamp: selected.deletion_timestamp,
        annotations: selected.annotations.map(|annotations| annotations.0),
        labels: selected.labels.map(|labels| labels.0),
        owner_references: selected.owner_references.0.map(|owner| vec![owner]),
        managed_fields: Some(selected.managed_fields.0).filter(|entries| !entries.is_empty()),
        ..ObjectMeta::default()
    })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound = "S: Selection")]
struct Selected<S> {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    generation: Option<i64>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    annotations: Option<Texts<S, Annotations>>,
    labels: Option<Texts<S, Labels>>,
    #[serde(default)]
    owner_references: Controller<S>,
    #[serde(default)]
    managed_fields: Managers<S>,
}

/// Decides how much is kept of the value of a key.
trait Limit<S> {
    fn limit(key: &str) -> usize;
}

struct Annotations;

impl<S: Selection> Limit<S> for Annotations {
    fn limit(key: &str) -> usize {
        S::annotation(key)
    }
}

struct Labels;

impl<S: Selection> Limit<S> for Labels {
    fn limit(key: &str) -> usize {
        if S::label(key) { NAME_MAX } else { 0 }
    }
}

/// Selected texts by their keys.
struct Texts<S, L>(BTreeMap<String, String>, PhantomData<(S, L)>);

impl<'de, S, L: Limit<S>> Deserialize<'de> for Texts<S, L> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Reader::<Self>(PhantomData))
    }
}

/// The owner reference of the controller, of which an object has at most one.
struct Controller<S>(Option<OwnerReference>, PhantomData<S>);

impl<S> Default for Controller<S> {
    fn default() -> Self {
        Self(None, PhantomData)
    }
}

impl<'de, S: Selection> Deserialize<'de> for Controller<S> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Reader::<Self>(PhantomData))
    }
}

/// At most three entries of the managed fields.
struct Managers<S>(Vec<ManagedFieldsEntry>, PhantomData<S>);

impl<S> Default for Managers<S> {
    fn default() -> Self {
        Self(Vec::new(), PhantomData)
    }
}

impl<'de, S: Selection> Deserialize<'de> for Managers<S> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Reader::<Self>(PhantomData))
    }
}

struct Reader<T>(PhantomData<T>);

impl<'de, S, L: Limit<S>> Visitor<'de> for Reader<Texts<S, L>> {
    type Value = Texts<S, L>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a map of texts")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
        let mut selected = BTreeMap::new();
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            match L::limit(&key) {
                0 => drop(map.next_value::<IgnoredAny>()?),
                limit => drop(selected.insert(key.into_owned(), cut(map.next_value()?, limit))),
            }
        }
        Ok(Texts(selected, PhantomData))
    }
}

impl<'de, S: Selection> Visitor<'de> for Reader<Controller<S>> {
    type Value = Controller<S>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("owner references")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut owners: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        if !S::CONTROLLER {
            while owners.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(Controller(None, PhantomData));
        }
        while let Some(owner) = owners.next_element::<OwnerReference>()? {
            if owner.controller == Some(true) && found.is_none() {
                found = Some(OwnerReference {
                    api_version: name(owner.api_version),
                    kind: name(owner.kind),
                    name: name(owner.name),
                    uid: name(owner.uid),
                    ..owner
                });
            }
        }
        Ok(Controller(found, PhantomData))
    }
}

impl<'de, S: Selection> Visitor<'de> for Reader<Managers<S>> {
    type Value = Managers<S>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("managed fields")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let Some(manager) = S::MANAGER else {
            while entries.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(Managers::default());
        };
        let (mut kept, mut writers, mut applies) = (Vec::new(), 0, 0);
        while let Some(entry) = entries.next_element::<Entry<'de>>()? {
            let is_ours = entry.manager.as_deref() == Some(manager);
            let is_apply = is_ours && entry.operation.as_deref() == Some("Apply");
            if (is_apply && applies == 0) || (entry.fields_v1.0 && writers < 2) {
                applies += usize::from(is_apply);
                writers += usize::from(entry.fields_v1.0);
                kept.push(ManagedFieldsEntry {
                    manager: is_ours.then(|| manager.to_owned()),
                    operation: entry.operation.map(|operation| name(operation.into_owned())),
                    fields_v1: entry.fields_v1.0.then(|| FieldsV1(json!({"f:data": {}}))),
                    ..ManagedFieldsEntry::default()
                });
            }
        }
        Ok(Managers(kept, PhantomData))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry<'a> {
    #[serde(borrow)]
    manager: Option<Cow<'a, str>>,
    #[serde(borrow)]
    operation: Option<Cow<'a, str>>,
    #[serde(default)]
    fields_v1: WritesData,
}

/// True if the fields are data of the object.
#[derive(Default)]
struct WritesData(bool);

impl<'de> Deserialize<'de> for WritesData {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Reader::<Self>(PhantomData))
    }
}

impl<'de> Visitor<'de> for Reader<WritesData> {
    type Value = WritesData;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("fields")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<WritesData, M::Error> {
        let mut writes = WritesData(false);
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            writes.0 |= key == "f:data" || key == "f:binaryData";
            map.next_value::<IgnoredAny>()?;
        }
        Ok(writes)
    }
}

fn name(text: String) -> String {
    cut(text, NAME_MAX)
}

fn cut(mut text: String, limit: usize) -> String {
    if text.len() > limit {
        let end = (0..=limit).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
        text.truncate(end);
        text.push(CUT);
    }
    text.shrink_to_fit();
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Kept;

    impl Selection for Kept {
        const CONTROLLER: bool = true;
        const MANAGER: Option<&'static str> = Some("remora");

        fn annotation(key: &str) -> usize {
            if key == "read" { 8 } else { 0 }
        }

        fn label(key: &str) -> bool {
            key == "app"
        }
    }

    struct Names;

    impl Selection for Names {}

    fn read<S: Selection>(metadata: &serde_json::Value) -> ObjectMeta {
        super::metadata::<S, _>(&mut serde_json::Deserializer::from_str(&metadata.to_string())).unwrap()
    }

    /// Metadata as large as the API server stores it: 40,000 annotations of a few bytes each, whose keys a field manager
    /// owns.
    fn hostile() -> serde_json::Value {
        let (mut annotations, mut fields) = (serde_json::Map::new(), serde_json::Map::new());
        for number in 0..40_000 {
            annotations.insert(format!("{number:04x}"), json!(""));
            fields.insert(format!("f:{number:04x}"), json!({}));
        }
        annotations.insert("read".to_owned(), json!("x".repeat(200_000)));
        let large = "x".repeat(100_000);
        let owner = |controller: bool| json!({"apiVersion": large, "kind": large, "name": large, "uid": large, "controller": controller});
        let entry = |manager: &str, operation: &str, fields: serde_json::Value| json!({"manager": manager, "operation": operation, "fieldsV1": fields});
        let other = entry(&large, "Update", json!({"f:metadata": {"f:annotations": fields}}));
        let writers = (0..1_000).map(|number| entry(&number.to_string(), "Update", json!({"f:data": {"f:x": {}}})));
        let entries: Vec<_> = [other].into_iter().chain(writers).chain([entry("remora", "Apply", json!({}))]).collect();
        json!({
            "name": "x", "namespace": "shop", "uid": "u", "resourceVersion": "1", "annotations": annotations,
            "labels": {"app": "web", "large": large}, "finalizers": [large],
            "ownerReferences": [owner(false), owner(true), owner(false)], "managedFields": entries,
        })
    }

    #[test]
    fn metadata_whose_size_authors_decide_is_not_kept() {
        let kept = read::<Kept>(&hostile());
        assert_eq!(kept.annotations.as_ref().unwrap()["read"], "xxxxxxxx\u{fffd}");
        assert_eq!(kept.labels.as_ref().unwrap().len(), 1);
        assert_eq!(kept.owner_references.as_ref().unwrap()[0].controller, Some(true));
        assert_eq!(kept.managed_fields.as_ref().unwrap().len(), 3, "two that write data, and the own apply");
        let size = format!("{kept:?}").len();
        assert!(size < 10_000, "{size} characters are kept");
        let names = read::<Names>(&hostile());
        assert_eq!((names.name.as_deref(), names.resource_version.as_deref()), (Some("x"), Some("1")));
        assert!(names.annotations.unwrap().is_empty() && names.labels.unwrap().is_empty());
        assert!(names.owner_references.is_none() && names.managed_fields.is_none());
    }

    #[test]
    fn text_is_cut_at_a_character() {
        assert_eq!(cut("größe".to_owned(), 6), "größ\u{fffd}");
        assert_eq!(cut("größe".to_owned(), 3), "gr\u{fffd}");
        assert_eq!(cut("größe".to_owned(), 7), "größe");
    }
}
