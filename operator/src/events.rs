//! Publishes Kubernetes Events.

use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Client,
    runtime::events::{Event, EventType, Recorder, Reporter},
};

use parking_lot::Mutex;

use crate::{
    api::{
        message::{NOTE_MAX, truncated},
        names::CONTROLLER,
    },
    api_call::within,
};

const TIMEOUT: Duration = Duration::from_secs(10);

/// Number of Events after which the recorder is replaced. It keeps each one for minutes, to count repetitions, and searches
/// all of them for each Event: whoever creates many pods decides how many there are.
const REMEMBERED: usize = 500;

/// Publisher of Events. One publisher should publish all Events about the same objects, because it counts repetitions.
pub(crate) struct EventPublisher {
    client: Client,
    reporter: Reporter,
    /// The recorder, and the number of Events that it may remember.
    recorder: Mutex<(Recorder, usize)>,
}

impl EventPublisher {
    /// Creates a publisher whose Events name the controller, and `instance` as the replica.
    pub(crate) fn new(client: Client, instance: String) -> Self {
        let reporter = Reporter { controller: CONTROLLER.to_owned(), instance: Some(instance) };
        let recorder = Recorder::new(client.clone(), reporter.clone());
        Self { client, reporter, recorder: Mutex::new((recorder, 0)) }
    }

    /// Returns the recorder for one more Event.
    fn recorder(&self) -> Recorder {
        let mut recorder = self.recorder.lock();
        if recorder.1 == REMEMBERED {
            *recorder = (Recorder::new(self.client.clone(), self.reporter.clone()), 0);
        }
        recorder.1 += 1;
        recorder.0.clone()
    }

    /// Publishes an Event about an object. A lost Event is only logged: a condition or a metric says the same.
    pub(crate) async fn publish(&self, about: &ObjectReference, event: &Event) {
        match within(TIMEOUT, self.recorder().publish(event, about)).await {
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

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, convert::Infallible, sync::Arc};

    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    /// Names of the pods about which Events were created, and the number of Events that were counted as repetitions.
    type Seen = Arc<Mutex<(usize, usize)>>;

    fn publisher(seen: &Seen) -> EventPublisher {
        let seen = Arc::clone(seen);
        let service = tower::service_fn(move |request: Request<Body>| {
            let mut seen = seen.lock();
            if request.method() == http::Method::POST {
                seen.0 += 1;
            } else {
                seen.1 += 1;
            }
            let event = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e"}, "eventTime": null});
            async move { Ok::<_, Infallible>(Response::new(Body::from(event.to_string().into_bytes()))) }
        });
        EventPublisher::new(Client::new(service, "shop"), "replica".to_owned())
    }

    fn pod(number: usize) -> ObjectReference {
        let name = Some(format!("web-{number}"));
        ObjectReference {
            kind: Some("Pod".to_owned()),
            namespace: Some("shop".to_owned()),
            name,
            ..ObjectReference::default()
        }
    }

    #[tokio::test]
    async fn repetition_is_counted_and_many_events_are_forgotten() {
        let seen = Seen::default();
        let events = publisher(&seen);
        let event = event(EventType::Warning, "NotInjected", "a pod".to_owned(), "Audit");
        let mut recorders = BTreeSet::new();
        for number in 0..3 * REMEMBERED {
            events.publish(&pod(number), &event).await;
            recorders.insert(events.recorder.lock().1);
        }
        assert_eq!(*seen.lock(), (3 * REMEMBERED, 0));
        assert_eq!(recorders.last(), Some(&REMEMBERED), "Events that one recorder remembers");
        events.publish(&pod(3 * REMEMBERED - 1), &event).await;
        events.publish(&pod(3 * REMEMBERED - 1), &event).await;
        assert_eq!(*seen.lock(), (3 * REMEMBERED + 1, 1), "the last recorder is new, and counts what follows");
    }
}
