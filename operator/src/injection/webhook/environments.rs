//! Caches the FeatureEnvironments and their delivery. A pod's volume depends on the delivery, and a pod that names a
//! missing FeatureEnvironment gets a warning.

use std::convert::Infallible;

use kube::{Api, Client};
use serde::Deserialize;
use serde_json::Value;

use super::{cache::Cache, look_ups::LookUps};
use crate::{
    api::{FeatureEnvironment, ObjectKind, names::EnvironmentName},
    api_call::CallError,
    injection::{Layout, Size, Slots},
    watched::{
        pages::Pages,
        partial::{Fields, PartialObject},
        selection::Selection,
    },
};

/// The cached parts of a FeatureEnvironment. They are untyped, so that one invalid object does not hide the others.
type KnownEnvironment = PartialObject<FeatureEnvironment, Names, Spec, Status>;

/// Nothing but names and versions.
#[derive(Clone, Debug)]
struct Names;

impl Selection for Names {}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Spec {
    delivery: Value,
}

impl Fields for Spec {}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    delivery: Value,
    bytes: Value,
    core_bytes: Value,
}

impl Fields for Status {}

/// A cache of all FeatureEnvironments.
#[derive(Clone)]
pub struct Environments {
    known: Cache<KnownEnvironment>,
    client: Client,
    look_ups: LookUps,
}

/// Result of the look-up of one environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    /// The environment exists, with this layout.
    Present(Layout),
    /// The environment does not exist.
    Missing,
    /// The look-up failed or timed out.
    Unknown,
}

impl Presence {
    pub(super) fn layout(self) -> Option<Layout> {
        match self {
            Presence::Present(layout) => Some(layout),
            Presence::Missing | Presence::Unknown => None,
        }
    }
}

impl Environments {
    /// Returns the cache and the future that fills it. The caller must poll the future for as long as it uses the
    /// cache.
    pub fn watch(client: Client) -> (Environments, impl Future<Output = Infallible> + Send) {
        let (known, watching) = Cache::watch(Api::all(Pages::default().bound(&client)), (), "FeatureEnvironments");
        (Environments { known, client, look_ups: LookUps::default() }, watching)
    }

    /// Waits until the cache holds the first complete list.
    pub async fn wait_until_filled(&self) {
        self.known.wait_until_filled().await;
    }

    /// Looks up several environments concurrently, each within [`LOOK_UP_TIMEOUT`](super::look_ups::LOOK_UP_TIMEOUT).
    pub(super) async fn look_up<'a>(
        &self,
        namespace: &str,
        names: &'a [EnvironmentName],
    ) -> Vec<(&'a EnvironmentName, Presence)> {
        let requests = names.iter().map(|name| async move { (name, self.one(namespace, name).await) });
        futures::future::join_all(requests).await
    }

    async fn one(&self, namespace: &str, name: &EnvironmentName) -> Presence {
        if let Some(known) = self.known.get(namespace, name.as_str()) {
            return Presence::Present(layout(&known));
        }
        let api: Api<KnownEnvironment> = Api::namespaced(self.client.clone(), namespace);
        match self.look_ups.run(api.get_opt(name.as_str())).await {
            Ok(Some(found)) => Presence::Present(layout(&found)),
            Ok(None) => Presence::Missing,
            // Whoever names many environments that do not exist would fill the log.
            Err(CallError::Timeout(_)) => Presence::Unknown,
            Err(error) => {
                tracing::warn!(%error, %name, namespace, "cannot look up a FeatureEnvironment");
                Presence::Unknown
            }
        }
    }
}

/// Returns the layout by the published delivery in the status, or by the spec if nothing is published: a new pod mounts
/// the objects that exist.
fn layout(environment: &KnownEnvironment) -> Layout {
    let spec = environment.spec.clone().unwrap_or_default();
    let status = environment.status.clone().unwrap_or_default();
    let object_kind = |delivery: &Value| delivery.get("as").and_then(|kind| ObjectKind::deserialize(kind).ok());
    let count = |number: Option<&Value>| number.and_then(Value::as_u64).and_then(|number| usize::try_from(number).ok());
    let default = Slots::default();
    let least = Slots {
        overrides: count(spec.delivery.get("overridesSlots")).unwrap_or(default.overrides),
        core_parts: count(spec.delivery.get("coreParts")).unwrap_or(default.core_parts),
    };
    // Both figures belong to the published revision. Statuses of earlier versions lack the second one.
    let published_bytes = status.bytes.as_u64().unwrap_or_default();
    let published_core = status.delivery.get("coreBytes").and_then(Value::as_u64).unwrap_or_default();
    let size = Size {
        overrides: count(status.delivery.get("overridesFiles")).unwrap_or_default(),
        core: count(Some(&status.core_bytes)).unwrap_or_default(),
        others: published_bytes.saturating_sub(published_core).into(),
    };
    let object_kind = object_kind(&status.delivery).or_else(|| object_kind(&spec.delivery));
    Layout::new(object_kind.unwrap_or_default(), least, size)
}

#[cfg(test)]
mod tests {
    use remora_snapshot::files;
    use serde_json::json;

    use super::*;

    fn layout_of(spec: &Value, status: &Value) -> Layout {
        let object = json!({"apiVersion": "remora.dev/v1alpha1", "kind": "FeatureEnvironment", "metadata": {"name": "a"}, "spec": spec, "status": status});
        layout(&serde_json::from_value(object).unwrap())
    }

    #[test]
    fn published_delivery_takes_precedence_over_spec() {
        let secret = json!({"delivery": {"as": "Secret", "overridesSlots": 16, "coreParts": 3}});
        let slots = Slots { overrides: 16, core_parts: 3 };
        assert_eq!(layout_of(&secret, &json!(null)), Layout::new(ObjectKind::Secret, slots, Size::default()));
        let delivery = json!({"as": "ConfigMap", "overridesFiles": 32, "coreBytes": 5_000_000});
        let before = json!({"delivery": delivery, "bytes": 20_000_000, "coreBytes": 5_000_000});
        let size = Size { overrides: 32, core: 5_000_000, others: 15_000_000 };
        assert_eq!(layout_of(&secret, &before), Layout::new(ObjectKind::ConfigMap, slots, size));
    }

    /// The operator reports the size of a core that it withholds, so that new pods have room for it.
    #[test]
    fn withheld_core_gives_slots_without_published_delivery() {
        let layout = layout_of(&json!({"delivery": {"as": "Secret"}}), &json!({"coreBytes": 3_000_000}));
        assert_eq!((layout.object_kind, layout.slots.core_parts), (ObjectKind::Secret, 8));
    }

    /// The sizes of two revisions must not be mixed: a withheld core is larger than the published one.
    #[test]
    fn withheld_core_takes_no_room_from_published_overrides() {
        let delivery = json!({"as": "ConfigMap", "overridesFiles": 21, "coreBytes": 900_000});
        let capacity = |core_bytes: usize| {
            let status = json!({"delivery": delivery, "bytes": 20_900_000, "coreBytes": core_bytes});
            let layout = layout_of(&json!({}), &status);
            layout.bytes - (2 * layout.slots.core_parts * files::PART_BYTES) as u128
        };
        assert_eq!(
            (capacity(900_000), capacity(5_000_000), capacity(16_000_000)),
            (40_000_000, 40_000_000, 40_000_000)
        );
        // The status of an earlier version has no size of the published core: the room is larger than needed.
        let layout = layout_of(&json!({}), &json!({"bytes": 20_900_000, "coreBytes": 100_000}));
        assert_eq!(layout.bytes, 2 * (20_900_000 + 100_000));
    }

    #[test]
    fn metadata_whose_size_authors_decide_is_not_kept() {
        let annotations: serde_json::Map<String, Value> =
            (0..40_000).map(|number| (format!("{number:04x}"), json!(""))).collect();
        let object = json!({
            "metadata": {"name": "a", "namespace": "shop", "annotations": annotations}, "spec": {"delivery": {"as": "Secret"}},
        });
        let known: KnownEnvironment = serde_json::from_str(&object.to_string()).unwrap();
        assert_eq!(known.metadata.name.as_deref(), Some("a"));
        let kept = format!("{known:?}").len();
        assert!(kept < 2_000, "{kept} characters are kept of 40,000 annotations");
    }

    #[test]
    fn unreadable_delivery_gives_default_layout() {
        assert_eq!(layout_of(&json!({}), &json!({})), Layout::default());
        let odd = json!({"delivery": {"as": 7, "overridesSlots": "many", "coreParts": {}, "overridesFiles": -1, "coreBytes": []}, "bytes": [], "coreBytes": "x"});
        assert_eq!(layout_of(&odd, &odd), Layout::default());
    }
}
