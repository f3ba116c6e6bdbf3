//! Reports pods without their sidecar as Events on the pod and on its controller.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Client,
    runtime::events::{Event, EventType, Recorder, Reporter},
};

use super::candidates::{Candidate, TIMEOUT};
use crate::{
    api::{
        Reason,
        message::{NOTE_MAX, truncated},
        names::CONTROLLER,
    },
    api_call::within,
    injection::{MissingSidecar, quote},
};

/// Writer of Events.
pub(super) struct EventWriter {
    /// One recorder for all Events, because it counts repetitions.
    recorder: Recorder,
}

impl EventWriter {
    pub(super) fn new(client: Client, instance: String) -> EventWriter {
        let reporter = Reporter { controller: CONTROLLER.to_owned(), instance: Some(instance) };
        EventWriter { recorder: Recorder::new(client, reporter) }
    }

    pub(super) async fn report_missing(&self, pod: &Candidate, fault: &MissingSidecar) {
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
        self.publish(pod, EventType::Warning, Reason::NotInjected, note, "Audit").await;
    }

    pub(super) async fn report_eviction(&self, pod: &Candidate) {
        let note = format!("evicted pod {}, which has no sidecar, so that its replacement gets one", pod.name);
        self.publish(pod, EventType::Normal, Reason::EvictedForInjection, note, "Evict").await;
    }

    /// Writes one Event on the pod and one on its controller. A lost Event is only logged, because the metric reports
    /// the pod too.
    async fn publish(&self, pod: &Candidate, type_: EventType, reason: Reason, note: String, action: &str) {
        let this = reference(pod, "v1", "Pod", &pod.name, &pod.uid);
        let owner = pod.owner.as_ref();
        let owner = owner.map(|owner| reference(pod, &owner.api_version, &owner.kind, &owner.name, &owner.uid));
        let about = [Some((&this, owner.clone())), owner.as_ref().map(|owner| (owner, Some(this.clone())))];
        let Candidate { namespace, name, .. } = pod;
        for (regarding, secondary) in about.into_iter().flatten() {
            let note = Some(truncated(note.clone(), NOTE_MAX));
            let event = Event { type_, reason: reason.to_string(), note, action: action.to_owned(), secondary };
            if let Err(error) = within(TIMEOUT, self.recorder.publish(&event, regarding)).await {
                tracing::warn!(namespace, pod = name, %error, %reason, "cannot write an Event");
            }
        }
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
