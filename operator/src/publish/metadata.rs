//! The metadata of published objects, without what the publisher does not read.

use std::sync::Arc;

use k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use remora_snapshot::files;
use serde_json::json;

use super::{
    object::RELOADER_IGNORE,
    owner,
    record_bounds::{RECORD_BYTES, is_record_digest, record_digest},
};
use crate::{
    api::names::{EnvironmentName, FIELD_MANAGER, annotation, label},
    watched::{View, bounded, partial::PartialObject, selection::Selection},
};

/// Largest length of an annotation in bytes, except of the record.
const ANNOTATION_MAX: usize = 128;
/// Largest size in bytes of the records that are kept of the ConfigMaps of a namespace: 21 of the largest records, or about
/// 2,000 with the default history. Whoever may write ConfigMaps can write cores that belong to no FeatureEnvironment, in
/// any number of formats. The environments with the largest records lose theirs first.
const RECORDS_BYTES: usize = 4 << 20;

/// Metadata of an object that the publisher reads.
#[derive(Clone, Debug)]
pub struct ObjectSelection;

impl Selection for ObjectSelection {
    const CONTROLLER: bool = true;
    const MANAGER: Option<&'static str> = Some(FIELD_MANAGER);

    fn annotation(key: &str) -> usize {
        match key {
            annotation::RECORD => RECORD_BYTES,
            annotation::CONTENT
            | annotation::REVISION
            | annotation::CORE_SET
            | annotation::OVERRIDES_FILES
            | RELOADER_IGNORE => ANNOTATION_MAX,
            _ => 0,
        }
    }

    fn label(key: &str) -> bool {
        [label::MANAGED_BY, label::ENVIRONMENT, label::FORMAT].contains(&key)
    }
}

/// Metadata of a ConfigMap, without the parts that the controller does not read.
pub type ConfigMapMetadata = PartialObject<ConfigMap, ObjectSelection>;

/// Returns the memory that the metadata of a published object takes in bytes, without its record: records have a bound of
/// their own.
#[must_use]
pub fn metadata_bytes(object: &ConfigMapMetadata) -> usize {
    bounded::metadata_bytes(&object.metadata).saturating_sub(record_bytes(&object.metadata))
}

/// Returns what the publisher reads of this metadata.
pub(super) fn selected(metadata: ObjectMeta) -> ObjectMeta {
    // Metadata that was parsed is valid. Without its parts, an object would count as one of another owner.
    let selected = serde_json::from_value::<ConfigMapMetadata>(json!({"metadata": &metadata}));
    without_unread_record(selected.map_or(metadata, |selected| selected.metadata))
}

/// Returns the metadata without a record that the publisher does not read.
pub(super) fn without_unread_record(metadata: ObjectMeta) -> ObjectMeta {
    if is_record_read(&metadata) { metadata } else { without_record(metadata) }
}

fn without_record(mut metadata: ObjectMeta) -> ObjectMeta {
    if let Some(annotations) = &mut metadata.annotations {
        annotations.remove(annotation::RECORD);
    }
    metadata
}

/// True if the object is the core of the environment in its label, in any format, and its record is no longer than the
/// operator writes it.
fn is_record_read(metadata: &ObjectMeta) -> bool {
    let environment = metadata.labels.as_ref().and_then(|labels| labels.get(label::ENVIRONMENT));
    let environment = environment.and_then(|name| name.parse::<EnvironmentName>().ok());
    let (Some(environment), Some(name)) = (environment, &metadata.name) else { return false };
    record_bytes(metadata) <= RECORD_BYTES
        && environment.format_and_file(name).is_some_and(|(_, file)| file == files::CORE)
}

fn record_bytes(metadata: &ObjectMeta) -> usize {
    // A digest is no large part: its length is known.
    owner::annotation(metadata, annotation::RECORD).filter(|record| !is_record_digest(record)).map_or(0, str::len)
}

impl View for Arc<ObjectMeta> {
    const LARGE_PARTS_MAX: usize = RECORDS_BYTES;

    fn large_part(&self) -> usize {
        record_bytes(self)
    }

    fn without_large_part(self) -> Self {
        let mut metadata = Arc::unwrap_or_clone(self);
        if let Some(record) = metadata.annotations.as_mut().and_then(|all| all.get_mut(annotation::RECORD)) {
            *record = record_digest(record);
        }
        Arc::new(metadata)
    }
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher::Event;
    use serde_json::Value;

    use super::*;
    use crate::{api::NamespacedName, publish::objects};

    fn object(metadata: &Value) -> ObjectMeta {
        serde_json::from_str::<ConfigMapMetadata>(&json!({"metadata": metadata}).to_string()).unwrap().metadata
    }

    #[test]
    fn metadata_of_configmap_keeps_only_what_is_read() {
        let (mut annotations, mut fields) = (json!({"remora.dev/content": "0a"}), json!({}));
        for number in 0..40_000 {
            annotations[format!("{number:04x}")] = json!("");
            fields[format!("f:{number:04x}")] = json!({});
        }
        let found = object(&json!({
            "name": "remora-storefront-v3-core", "namespace": "shop", "annotations": annotations,
            "labels": {"app.kubernetes.io/managed-by": "remora", "other": "x"},
            "managedFields": [{"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:metadata": fields}}],
        }));
        assert_eq!((found.annotations.as_ref().unwrap().len(), found.labels.as_ref().unwrap().len()), (1, 1));
        let kept = format!("{found:?}").len();
        assert!(kept < 2_000, "{kept} characters are kept of 40,000 annotations");
    }

    #[test]
    fn answer_to_a_write_keeps_the_same() {
        let full = json!({
            "name": "x", "uid": "u", "resourceVersion": "7", "annotations": {"remora.dev/revision": "0a1b", "large": "x"},
            "labels": {"remora.dev/environment": "storefront", "large": "x"}, "creationTimestamp": "2026-11-20T00:00:00Z",
            "ownerReferences": [{"apiVersion": "v1", "kind": "K", "name": "n", "uid": "o", "controller": true}],
            "managedFields": [
                {"manager": "remora-controller", "operation": "Apply", "fieldsV1": {"f:binaryData": {"f:core": {}}}},
            ],
        });
        let selected = selected(serde_json::from_value(full.clone()).unwrap());
        assert_eq!(selected, object(&full));
        assert_eq!(selected.managed_fields.unwrap()[0].manager.as_deref(), Some(FIELD_MANAGER));
    }

    /// Returns an object with the labels of this environment's objects, and with a record of this many bytes.
    fn recorded(namespace: &str, name: &str, environment: &str, bytes: usize) -> ConfigMapMetadata {
        let metadata = json!({
            "name": name, "namespace": namespace, "annotations": {"remora.dev/record": "x".repeat(bytes)},
            "labels": {"app.kubernetes.io/managed-by": "remora", "remora.dev/environment": environment},
        });
        serde_json::from_value(json!({"metadata": metadata})).unwrap()
    }

    #[test]
    fn record_of_object_that_is_no_core_is_not_kept() {
        for (name, environment, bytes, expected) in [
            ("remora-storefront-v3-core", "storefront", RECORD_BYTES, RECORD_BYTES),
            ("remora-storefront-v1-core", "storefront", 9, 9),
            ("remora-storefront-v3-core", "storefront", RECORD_BYTES + 1, 0),
            ("remora-storefront-v3-core", "other", 9, 0),
            ("remora-storefront-v3-core", "", 9, 0),
            ("remora-storefront-v3-overrides-00", "storefront", 9, 0),
            ("remora-storefront-v3-history-0a1b-core", "storefront", 9, 0),
            ("x", "storefront", 9, 0),
        ] {
            let object = recorded("shop", name, environment, bytes);
            let (objects, mut feed) = objects();
            feed.apply_watcher_event(&Event::Apply(object.clone()));
            assert_eq!(
                objects.get(&NamespacedName::new("shop", name)).unwrap().large_part(),
                expected,
                "{name} of {environment}"
            );
            assert_eq!(record_bytes(&selected(object.metadata)), expected, "{name} of {environment}");
        }
    }

    #[test]
    fn environment_within_its_share_keeps_its_record_whatever_others_have() {
        const SHARE: usize = 16;
        let (objects, mut feed) = objects();
        let kept = |name: &str| objects.get(&NamespacedName::new("shop", name)).unwrap().large_part();
        let small = |number: usize| {
            let environment = format!("e{number}");
            recorded("shop", &format!("remora-{environment}-v3-core"), &environment, RECORDS_BYTES / SHARE / 2)
        };
        // One environment has a core in each of very many formats, and fills the namespace before the others arrive.
        for format in 1..100 {
            let name = format!("remora-noisy-v{format}-core");
            feed.apply_watcher_event(&Event::Apply(recorded("shop", &name, "noisy", RECORD_BYTES)));
        }
        for number in 1..SHARE {
            feed.apply_watcher_event(&Event::Apply(small(number)));
        }
        // The noisy environment writes its cores again.
        for format in 1..100 {
            let name = format!("remora-noisy-v{format}-core");
            feed.apply_watcher_event(&Event::Apply(recorded("shop", &name, "noisy", RECORD_BYTES)));
        }
        for number in 1..SHARE {
            assert_eq!(kept(&format!("remora-e{number}-v3-core")), RECORDS_BYTES / SHARE / 2, "e{number}");
        }
        let noisy: usize = (1..100).map(|format| kept(&format!("remora-noisy-v{format}-core"))).sum();
        assert!(noisy > RECORDS_BYTES / 4, "it has what the others do not need: {noisy}");
        assert!(noisy + (SHARE - 1) * RECORDS_BYTES / SHARE / 2 <= RECORDS_BYTES);
    }

    #[test]
    fn records_beyond_bound_of_namespace_are_not_kept() {
        const ALL: usize = RECORDS_BYTES / RECORD_BYTES + 9;
        let name = |number: usize| format!("remora-e{number}-v3-core");
        let core =
            |namespace: &str, number: usize| recorded(namespace, &name(number), &format!("e{number}"), RECORD_BYTES);
        let (objects, mut feed) = objects();
        let has_record = |namespace: &str, number: usize| {
            objects
                .get(&NamespacedName::new(namespace, &name(number)))
                .is_some_and(|found| found.large_part() == RECORD_BYTES)
        };
        let kept = |namespace: &str| (0..ALL).filter(|number| has_record(namespace, *number)).count();
        for number in 0..ALL {
            feed.apply_watcher_event(&Event::Apply(core("noisy", number)));
        }
        feed.apply_watcher_event(&Event::Apply(core("shop", 0)));
        assert_eq!((kept("noisy"), kept("shop")), (RECORDS_BYTES / RECORD_BYTES, 1));
        assert_eq!(
            objects.of(&NamespacedName::new("noisy", &format!("e{}", ALL - 1))).len(),
            1,
            "the object is known without its record"
        );

        // A list has the same objects, and does not count those before it.
        feed.apply_watcher_event(&Event::Init);
        for number in 0..ALL {
            feed.apply_watcher_event(&Event::InitApply(core("noisy", number)));
        }
        feed.apply_watcher_event(&Event::InitDone);
        assert_eq!((kept("noisy"), kept("shop")), (RECORDS_BYTES / RECORD_BYTES, 0));

        let last = objects.get(&NamespacedName::new("noisy", &name(ALL - 1))).unwrap();
        let digest = record_digest(&"x".repeat(RECORD_BYTES));
        assert_eq!(owner::annotation(&last, annotation::RECORD), Some(digest.as_str()), "its record can be compared");

        // A deleted core leaves its room to another one.
        feed.apply_watcher_event(&Event::Delete(core("noisy", 0)));
        feed.apply_watcher_event(&Event::Apply(core("noisy", ALL - 1)));
        assert!(has_record("noisy", ALL - 1));
        assert_eq!(kept("noisy"), RECORDS_BYTES / RECORD_BYTES);
    }
}
