//! CPU and memory of the sidecar: defaults, options, and adjustments that keep the pod's quality-of-service class.

use serde_json::{Map, Value, json};

use super::{
    annotations::{ParsedOptions, ResourceAmounts},
    defaults::Defaults,
    pod::{Pod, is_native_sidecar, name},
    quantity::Quantity,
};
use crate::api::names::sidecar;

/// Returns the sidecar's default memory limit, with room for two snapshots of `payload` bytes and for the sidecar
/// itself.
///
/// The volume is a tmpfs. If every container of the pod has a memory limit, the sum of the limits bounds the volume;
/// otherwise the node bounds it. An update holds the old and the new snapshot at once, so the sidecar's own limit has
/// room for both.
pub(super) fn memory_limit(payload: u128) -> String {
    const OWN: u128 = 8 << 20;
    format!("{}Mi", (2 * payload + OWN).div_ceil(1 << 20).next_multiple_of(16))
}

/// CPU limit where the administrator sets none, used only if all other containers have one. A namespace whose quota
/// counts limits requires a limit on every container.
pub(super) const CPU_LIMIT: &str = "250m";

/// Least CPU request and limit in a Guaranteed pod, where both must be equal, unless the administrator sets a limit. A
/// smaller limit would be throttled at the first burst.
pub(super) const GUARANTEED_CPU: &str = "100m";

/// Returns the sidecar's `resources` and the warnings about them. `payload` is the capacity of the largest volume in
/// bytes.
pub(super) fn resources(
    pod: &Pod<'_>,
    request: &ParsedOptions,
    defaults: &Defaults,
    payload: u128,
) -> (Value, Vec<String>) {
    let memory_limit = memory_limit(payload);
    let others = || pod.all_containers().filter(|container| name(container) != Some(sidecar::CONTAINER));
    let (cpu, memory) = if has_pod_level(pod) {
        // Pod-level resources apply to all containers together, and the API server refuses a pod whose containers
        // request more in sum. The sidecar therefore gets only amounts that annotations set.
        (requested(&request.cpu), requested(&request.memory))
    } else if is_guaranteed(others()) {
        let cpu = defaults.cpu_limit.as_deref().unwrap_or(larger(&defaults.cpu_request, GUARANTEED_CPU));
        (equal(&request.cpu, cpu), equal(&request.memory, larger(&defaults.memory_request, &memory_limit)))
    } else {
        let all_limited = others().all(|container| positive(container, "limits", "cpu").is_some());
        let cpu_limit = defaults.cpu_limit.as_deref().or(all_limited.then_some(CPU_LIMIT));
        (
            bounded(&request.cpu, &defaults.cpu_request, cpu_limit),
            bounded(&request.memory, &defaults.memory_request, Some(&memory_limit)),
        )
    };

    let mut warnings = Vec::new();
    if !has_pod_level(pod) && is_guaranteed(others()) && (!cpu.is_equal() || !memory.is_equal()) {
        warnings.push(BURSTABLE.to_owned());
    }
    let limits = pod
        .containers
        .into_iter()
        .flatten()
        .chain(pod.init.into_iter().flatten().filter(|container| is_native_sidecar(container)))
        .filter(|container| name(container) != Some(sidecar::CONTAINER))
        .map(|container| positive(container, "limits", "memory"))
        .chain([memory.limit.as_deref().and_then(parse)])
        .map(|limit| limit.map(|limit| limit.milli() / 1000))
        .try_fold(0u128, |sum, limit| Some(sum.saturating_add(limit?)));
    if let Some(capacity) = limits.filter(|capacity| *capacity < 2 * payload) {
        warnings.push(small_volume_warning(capacity));
    }

    let mut resources = Map::new();
    for (kind, cpu, memory) in [("requests", cpu.request, memory.request), ("limits", cpu.limit, memory.limit)] {
        let mut amounts = Map::new();
        amounts.extend(cpu.map(|amount| ("cpu".to_owned(), Value::from(amount))));
        amounts.extend(memory.map(|amount| ("memory".to_owned(), Value::from(amount))));
        if !amounts.is_empty() {
            resources.insert(kind.to_owned(), Value::from(amounts));
        }
    }
    (json!(resources), warnings)
}

/// Warning: the sidecar's resources change the pod's quality-of-service class.
pub(super) const BURSTABLE: &str = "requests and limits of the sidecar differ, so the pod is Burstable instead of Guaranteed: set both to the same amounts";

/// Renders the warning that the volume of `capacity` bytes is too small for two of the largest snapshots.
pub(super) fn small_volume_warning(capacity: u128) -> String {
    format!(
        "the pod's memory limits add up to {capacity} bytes, too few to update a snapshot above {} bytes: raise them",
        capacity / 2
    )
}

/// Request and limit of one resource, as text for the patch.
struct Amounts {
    request: Option<String>,
    limit: Option<String>,
}

impl Amounts {
    fn is_equal(&self) -> bool {
        match (self.request.as_deref().and_then(parse), self.limit.as_deref().and_then(parse)) {
            (Some(request), Some(limit)) => request.equals(&limit),
            _ => false,
        }
    }
}

fn parse(text: &str) -> Option<Quantity> {
    text.parse().ok()
}

/// Returns only the amounts that annotations set.
fn requested(bounds: &ResourceAmounts) -> Amounts {
    let written = |quantity: &Option<Quantity>| quantity.as_ref().map(ToString::to_string);
    Amounts { request: written(&bounds.request), limit: written(&bounds.limit) }
}

/// Makes request and limit equal, except if annotations set both. Neither set: both are `default`.
fn equal(bounds: &ResourceAmounts, default: &str) -> Amounts {
    let Amounts { request, limit } = requested(bounds);
    let either = request.clone().or_else(|| limit.clone()).unwrap_or_else(|| default.to_owned());
    Amounts { request: Some(request.unwrap_or_else(|| either.clone())), limit: Some(limit.unwrap_or(either)) }
}

/// Fills in the defaults, adjusted so that the request does not exceed the limit.
fn bounded(bounds: &ResourceAmounts, request: &str, limit: Option<&str>) -> Amounts {
    let chosen = requested(bounds);
    let request = match (chosen.request, &chosen.limit) {
        (Some(request), _) => request,
        (None, Some(limit)) if above(request, limit) => limit.clone(),
        (None, _) => request.to_owned(),
    };
    let limit = chosen
        .limit
        .or_else(|| limit.map(|limit| if above(&request, limit) { request.clone() } else { limit.to_owned() }));
    Amounts { request: Some(request), limit }
}

/// True if the first amount exceeds the second one.
fn above(left: &str, right: &str) -> bool {
    match (parse(left), parse(right)) {
        (Some(left), Some(right)) => left.milli() > right.milli(),
        _ => false,
    }
}

/// Returns the larger amount, or the second one if they are equal.
fn larger<'a>(left: &'a str, right: &'a str) -> &'a str {
    if above(left, right) { left } else { right }
}

/// True if the pod has pod-level resources.
fn has_pod_level(pod: &Pod<'_>) -> bool {
    let bounds = pod.spec.get("resources");
    ["requests", "limits"].into_iter().any(|kind| {
        bounds.and_then(|bounds| bounds.get(kind)).and_then(Value::as_object).is_some_and(|amounts| !amounts.is_empty())
    })
}

/// True if the requests of every container equal its limits, for CPU and memory.
fn is_guaranteed<'a>(mut containers: impl Iterator<Item = &'a Value>) -> bool {
    containers.all(|container| {
        ["cpu", "memory"].into_iter().all(|resource| {
            let limit = positive(container, "limits", resource);
            // The API server sets an absent request to the limit.
            let request = positive(container, "requests", resource).or_else(|| limit.clone());
            matches!((limit, request), (Some(limit), Some(request)) if limit.equals(&request))
        })
    })
}

/// Returns an amount in a container's resources. `None` if it is absent, zero or invalid.
fn positive(container: &Value, kind: &str, resource: &str) -> Option<Quantity> {
    let amount = match container.get("resources")?.get(kind)?.get(resource)? {
        Value::String(text) => parse(text)?,
        Value::Number(number) => parse(&number.to_string())?,
        _ => return None,
    };
    (amount.milli() > 0).then_some(amount)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        api::ObjectKind,
        injection::{
            annotations,
            layout::{Layout, Size, Slots},
        },
    };

    /// Returns the sidecar's resources and the warnings for a pod with this spec.
    fn of(annotations: &Value, spec: &Value) -> (Value, Vec<String>) {
        with(&Defaults::default(), annotations, spec)
    }

    /// Does the same with these defaults.
    fn with(defaults: &Defaults, annotations: &Value, spec: &Value) -> (Value, Vec<String>) {
        let mut pod = json!({"metadata": {"annotations": {"remora.dev/inject": "a"}}, "spec": spec});
        for (key, value) in annotations.as_object().unwrap() {
            pod["metadata"]["annotations"][format!("remora.dev/{key}")] = value.clone();
        }
        let pod = Pod::read(&pod).unwrap();
        let options = annotations::PodOptions { pod: pod.annotations, namespace: "shop", defaults: None };
        resources(&pod, &annotations::read(&options).unwrap(), defaults, Layout::default().bytes)
    }

    fn container(resources: &Value) -> Value {
        json!({"containers": [{"name": "app", "resources": resources}]})
    }

    #[test]
    fn default_memory_limit_holds_two_snapshots() {
        assert_eq!(memory_limit(Layout::default().bytes), "32Mi");
        for payload in [0, 1, Layout::default().bytes, 68_000_000] {
            let limit = parse(&memory_limit(payload)).unwrap().milli() / 1000;
            // 8 MiB remain for the sidecar itself.
            assert!(limit >= 2 * payload + (8 << 20), "{limit}");
        }
    }

    #[test]
    fn memory_limit_grows_with_core() {
        let limit = |core| {
            let size = Size { core, ..Size::default() };
            memory_limit(Layout::new(ObjectKind::ConfigMap, Slots::default(), size).bytes)
        };
        // The chart's README names these amounts.
        let limits = [900_000, 2_000_000, 4_000_000, 16_000_000].map(limit);
        assert_eq!(limits, ["32Mi", "32Mi", "48Mi", "80Mi"]);
    }

    #[test]
    fn pod_without_resources_gets_defaults() {
        let (resources, warnings) = of(&json!({}), &container(&json!({})));
        assert_eq!(resources, json!({"requests": {"cpu": "5m", "memory": "8Mi"}, "limits": {"memory": "32Mi"}}));
        assert_eq!(warnings, [] as [&str; 0]);
    }

    #[test]
    fn guaranteed_pod_stays_guaranteed() {
        // The CPU amounts are equal in value but not as text, and the absent memory request defaults to the limit.
        let app = json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1000m"}});
        let (resources, warnings) = of(&json!({}), &container(&app));
        assert_eq!(
            resources,
            json!({"requests": {"cpu": "100m", "memory": "32Mi"}, "limits": {"cpu": "100m", "memory": "32Mi"}})
        );
        assert_eq!(warnings, [] as [&str; 0]);

        let (resources, _) = of(&json!({"cpu-limit": "50m", "memory-request": "64Mi"}), &container(&app));
        assert_eq!(
            resources,
            json!({"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"cpu": "50m", "memory": "64Mi"}})
        );

        let (_, warnings) = of(&json!({"cpu-request": "1m", "cpu-limit": "50m"}), &container(&app));
        assert!(warnings[0].contains("instead of Guaranteed"), "{warnings:?}");
    }

    #[test]
    fn cpu_limit_is_set_if_all_other_containers_have_one() {
        let app = json!({"limits": {"cpu": 2, "memory": "1Gi"}, "requests": {"cpu": "1"}});
        let (resources, _) = of(&json!({}), &container(&app));
        assert_eq!(
            resources,
            json!({"requests": {"cpu": "5m", "memory": "8Mi"}, "limits": {"cpu": "250m", "memory": "32Mi"}})
        );
    }

    #[test]
    fn request_never_exceeds_limit() {
        let (resources, _) = of(&json!({"memory-limit": "4Mi", "cpu-limit": "1m"}), &container(&json!({})));
        assert_eq!(
            resources,
            json!({"requests": {"cpu": "1m", "memory": "4Mi"}, "limits": {"cpu": "1m", "memory": "4Mi"}})
        );
        let (resources, _) = of(&json!({"memory-request": "1Gi"}), &container(&json!({})));
        assert_eq!(resources["limits"], json!({"memory": "1Gi"}));
    }

    fn defaults(cpu: [&str; 2], memory_request: &str) -> Defaults {
        let [cpu_request, cpu_limit] = cpu.map(str::to_owned);
        let cpu_limit = Some(cpu_limit).filter(|limit| !limit.is_empty());
        Defaults { cpu_request, cpu_limit, memory_request: memory_request.to_owned(), ..Defaults::default() }
    }

    #[test]
    fn defaults_of_administrator_yield_to_annotations() {
        let defaults = defaults(["20m", "500m"], "24Mi");
        let amounts = |annotations: &Value| with(&defaults, annotations, &container(&json!({}))).0;
        assert_eq!(
            amounts(&json!({})),
            json!({"requests": {"cpu": "20m", "memory": "24Mi"}, "limits": {"cpu": "500m", "memory": "32Mi"}})
        );
        assert_eq!(
            amounts(&json!({"cpu-limit": "10m", "memory-limit": "16Mi"})),
            json!({"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"cpu": "10m", "memory": "16Mi"}})
        );
        assert_eq!(
            amounts(&json!({"cpu-request": "1", "memory-request": "64Mi"})),
            json!({"requests": {"cpu": "1", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "64Mi"}})
        );
    }

    #[test]
    fn memory_limit_has_room_for_default_request_and_snapshots() {
        let limit =
            |request| with(&defaults(["5m", ""], request), &json!({}), &container(&json!({}))).0["limits"].clone();
        assert_eq!(limit("24Mi"), json!({"memory": "32Mi"}), "two snapshots");
        assert_eq!(limit("64Mi"), json!({"memory": "64Mi"}), "the request");
    }

    #[test]
    fn defaults_of_administrator_keep_guaranteed_pod_guaranteed() {
        let app = container(&json!({"limits": {"cpu": "1", "memory": "1Gi"}}));
        for (cpu, memory_request, cpu_of_both, memory_of_both) in [
            (["5m", ""], "8Mi", "100m", "32Mi"),
            (["5m", "50m"], "64Mi", "50m", "64Mi"),
            (["200m", ""], "8Mi", "200m", "32Mi"),
            (["200m", "300m"], "8Mi", "300m", "32Mi"),
        ] {
            let (resources, warnings) = with(&defaults(cpu, memory_request), &json!({}), &app);
            let both = json!({"cpu": cpu_of_both, "memory": memory_of_both});
            assert_eq!(resources, json!({"requests": both, "limits": both}), "{cpu:?} {memory_request}");
            assert_eq!(warnings, [] as [&str; 0]);
        }
    }

    #[test]
    fn default_request_above_built_in_limit_raises_it() {
        let app = container(&json!({"limits": {"cpu": "2"}}));
        let (resources, _) = with(&defaults(["300m", ""], "8Mi"), &json!({}), &app);
        assert_eq!(resources["limits"]["cpu"], "300m");
    }

    #[test]
    fn pod_level_resources_leave_sidecar_without_defaults() {
        let mut spec = container(&json!({}));
        spec["resources"] = json!({"limits": {"memory": "64Mi"}});
        assert_eq!(of(&json!({}), &spec).0, json!({}));
        assert_eq!(of(&json!({"cpu-request": "1m"}), &spec).0, json!({"requests": {"cpu": "1m"}}));
    }

    #[test]
    fn volume_too_small_for_update_gives_warning() {
        let app = json!({"limits": {"memory": "5Mi"}});
        let (_, warnings) = of(&json!({"memory-limit": "5Mi"}), &container(&app));
        assert_eq!(
            warnings,
            [
                "the pod's memory limits add up to 10485760 bytes, too few to update a snapshot above 5242880 bytes: raise them"
            ]
        );
        // If one container has no limit, only the node bounds the volume.
        assert_eq!(of(&json!({"memory-limit": "5Mi"}), &container(&json!({}))).1, [] as [&str; 0]);
    }

    #[test]
    fn invalid_resources_of_other_containers_are_ignored() {
        let app = json!({"limits": {"cpu": [], "memory": "much"}, "requests": null});
        assert_eq!(of(&json!({}), &container(&app)).0["limits"], json!({"memory": "32Mi"}));
    }
}
