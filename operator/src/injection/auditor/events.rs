//! Reports pods without their sidecar as Events on the pod and on its controller.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType};

use super::candidates::Candidate;
use crate::{
    api::Reason,
    events::{EventPublisher, event},
    injection::{MissingSidecar, quote},
};

/// Reports a pod without its sidecar.
pub(super) async fn report_missing(events: &EventPublisher, pod: &Candidate, fault: &MissingSidecar) {
    let Candidate { namespace, name, .. } = pod;
    let environments = quote(pod.environments());
    let note = match fault {
        MissingSidecar::Replaceable => format!(
            "pod {name} requests flags of {environments} and has no sidecar, because it was created while injection \
             did not work: delete it, so that its replacement gets a sidecar"
        ),
        MissingSidecar::Denied(refusal) => {
            format!(
                "pod {name} requests flags of {environments} and has no sidecar, and a replacement would be denied: {refusal}"
            )
        }
    };
    tracing::warn!(namespace, pod = name, note, "found a pod without its sidecar");
    publish(events, pod, event(EventType::Warning, Reason::NotInjected.as_str(), note, "Audit")).await;
}

/// Reports the eviction of a pod without its sidecar.
pub(super) async fn report_eviction(events: &EventPublisher, pod: &Candidate) {
    let note = format!("evicted pod {}, which has no sidecar, so that its replacement gets one", pod.name);
    publish(events, pod, event(EventType::Normal, Reason::EvictedForInjection.as_str(), note, "Evict")).await;
}

/// Publishes the Event on the pod and on its controller, each with a reference to the other.
async fn publish(events: &EventPublisher, pod: &Candidate, mut event: Event) {
    let this = reference(pod, "v1", "Pod", &pod.name, &pod.uid);
    let owner = pod.owner.as_ref();
    let owner = owner.map(|owner| reference(pod, &owner.api_version, &owner.kind, &owner.name, &owner.uid));
    event.secondary.clone_from(&owner);
    events.publish(&this, &event).await;
    if let Some(owner) = owner {
        event.secondary = Some(this);
        events.publish(&owner, &event).await;
    }
}

fn reference(pod: &Candidate, api_version: &str, kind: &str, name: &str, uid: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some(api_version.to_owned()),
        kind: Some(kind.to_owned()),
        name: Some(name.to_owned()),
        namespace: Some(pod.namespace.clone()),
        uid: Some(uid.to_owned()),
        ..ObjectReference::default()
    }
}
