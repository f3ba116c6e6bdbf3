//! Publishes Kubernetes Events.

use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Client,
    runtime::events::{Event, EventType, Recorder, Reporter},
};

use crate::{
    api::{
        message::{NOTE_MAX, truncated},
        names::CONTROLLER,
    },
    api_call::within,
};

const TIMEOUT: Duration = Duration::from_secs(10);

/// Publisher of Events. One publisher should publish all Events about the same objects, because it counts repetitions.
pub(crate) struct EventPublisher {
    recorder: Recorder,
}

impl EventPublisher {
    /// Creates a publisher whose Events name the controller, and `instance` as the replica.
    pub(crate) fn new(client: Client, instance: String) -> Self {
        let reporter = Reporter { controller: CONTROLLER.to_owned(), instance: Some(instance) };
        Self { recorder: Recorder::new(client, reporter) }
    }

    /// Publishes an Event about an object. A lost Event is only logged: a condition or a metric says the same.
    pub(crate) async fn publish(&self, about: &ObjectReference, event: &Event) {
        match within(TIMEOUT, self.recorder.publish(event, about)).await {
            Ok(()) => {}
            // A namespace that is being deleted accepts no new objects.
            Err(error) if error.is_terminating() => {}
            Err(error) => {
                let ObjectReference { kind, namespace, name, .. } = about;
                tracing::warn!(kind, namespace, name, %error, reason = event.reason, "cannot publish an Event");
            }
        }
    }
}

/// Creates an Event, and cuts its note to the length that the API server accepts.
pub(crate) fn event(type_: EventType, reason: &str, note: String, action: &str) -> Event {
    Event {
        type_,
        reason: reason.to_owned(),
        note: Some(truncated(note, NOTE_MAX)),
        action: action.to_owned(),
        secondary: None,
    }
}
