//! The metadata of published objects, without what the publisher does not read.

use k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use serde_json::json;

use super::object::RELOADER_IGNORE;
use crate::{
    api::names::{FIELD_MANAGER, annotation, label},
    watched::{partial::PartialObject, selection::Selection},
};

/// Largest length of an annotation in bytes, except of the record.
const ANNOTATION_MAX: usize = 128;
/// Largest length of a record in bytes. The API server refuses longer annotations.
const RECORD_MAX: usize = 256 << 10;

/// Metadata of an object that the publisher reads.
#[derive(Clone, Debug)]
pub struct Published;

impl Selection for Published {
    const CONTROLLER: bool = true;
    const MANAGER: Option<&'static str> = Some(FIELD_MANAGER);

    fn annotation(key: &str) -> usize {
        match key {
            annotation::RECORD => RECORD_MAX,
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
pub type ConfigMapMetadata = PartialObject<ConfigMap, Published>;

/// Returns what the publisher reads of this metadata.
pub(super) fn selected(metadata: ObjectMeta) -> ObjectMeta {
    // Metadata that was parsed is valid. Without its parts, an object would count as one of another owner.
    let selected = serde_json::from_value::<ConfigMapMetadata>(json!({"metadata": &metadata}));
    selected.map_or(metadata, |selected| selected.metadata)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

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
}
