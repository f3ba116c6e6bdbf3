//! Restores the published objects while a source or a compilation is slow.

use std::{pin::pin, time::Duration};

use tokio::time::{Instant, sleep_until};

use crate::{
    controller::reconcile::{
        desired::{Desired, DesiredSnapshot, PublishState},
        environment::Environment,
        error::Error,
        schedule,
    },
    publish::{Destination, Publisher},
};

/// Time between two restorations of the published objects.
const PERIOD: Duration = Duration::from_millis(500);

/// Runs `work`, and restores the desired snapshot's objects at intervals meanwhile. Failed restorations are repeated
/// with a growing back-off, and the first one waits for the end of a publication's back-off. They are not reported: the
/// reconciliation publishes after the work, and reports a failure.
pub(crate) async fn run_and_restore<T>(
    work: impl Future<Output = T>,
    environment: &Environment<'_>,
    publisher: &Publisher,
    destination: &Destination,
    desired: &mut Desired,
) -> T {
    let mut work = pin!(work);
    // A snapshot that is not published yet waits for the choose step after an edit, and a core in parts for the fit step:
    // pods may have been admitted without room.
    let may_be_written = |current: &&DesiredSnapshot| match current.state {
        PublishState::Published => true,
        PublishState::Unpublished { is_outdated, .. } => !is_outdated && current.snapshot.core_parts() == 0,
    };
    let Some(current) = desired.snapshot.as_ref().filter(may_be_written) else { return work.await };
    let now = Instant::now();
    let mut next = now + PERIOD;
    if let Some(back_off) = desired.backs_off(now) {
        next = next.max(back_off.until);
    }
    let mut failures = desired.failures;
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = sleep_until(next) => {}
        }
        if environment.deletion.is_seen() {
            // Kubernetes' garbage collector deletes the objects. It would have to do so again and again.
            return work.await;
        }
        let restoration =
            publisher.publish(destination, &current.snapshot, current.record.as_ref(), &mut desired.cache);
        let mut restoration = pin!(restoration);
        let restored = tokio::select! {
            biased;
            restored = &mut restoration => restored,
            done = &mut work => {
                // If the restoration were dropped, the controller would not know which objects it has written.
                let _ = restoration.await;
                return done;
            }
        };
        let wait = match restored {
            Ok(_) => {
                failures = 0;
                PERIOD
            }
            Err(error) => {
                let (retry, interval) = (Error::from(error).retry(), environment.spec.refresh.interval.get());
                let wait = schedule::after_failure(retry, failures, interval, fastrand::f64());
                failures = failures.saturating_add(1);
                wait
            }
        };
        next = Instant::now() + wait;
    }
}

#[cfg(test)]
mod tests {
    use std::{
        convert::Infallible,
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
    };

    use http::{Method, Request, Response};
    use kube::{Client, client::Body};
    use serde_json::json;
    use tokio::{
        sync::Notify,
        time::{sleep, timeout},
    };

    use super::*;
    use crate::api::{FeatureEnvironment, Revision};
    use crate::controller::reconcile::deletion::UnderWay;
    use crate::memory::Memory;
    use crate::publish::{self, File, Permits, Snapshot};

    /// Returns a client of an API server without objects that holds back its first answer until `answers` is notified,
    /// and counts writes.
    fn client(asked: Arc<Notify>, answers: Arc<Notify>, writes: Arc<AtomicUsize>) -> Client {
        let service = tower::service_fn(move |request: Request<Body>| {
            let (asked, answers, writes) = (Arc::clone(&asked), Arc::clone(&answers), Arc::clone(&writes));
            async move {
                let method = request.method().clone();
                drop(request);
                let (code, answer) = if method == Method::GET {
                    asked.notify_one();
                    answers.notified().await;
                    (404, json!({"status": "Failure", "reason": "NotFound", "code": 404}))
                } else {
                    writes.fetch_add(1, Ordering::Relaxed);
                    (200, json!({"metadata": {"name": "core", "resourceVersion": "1"}}))
                };
                let answer = Body::from(answer.to_string().into_bytes());
                Ok::<_, Infallible>(Response::builder().status(code).body(answer).unwrap())
            }
        });
        Client::new(service, "shop")
    }

    fn fenv() -> FeatureEnvironment {
        let object = serde_json::from_value(json!({
            "apiVersion": "remora.dev/v1alpha1", "kind": "FeatureEnvironment",
            "metadata": {"name": "storefront", "namespace": "shop", "uid": "uid-1"},
            "spec": {"source": {"document": {"configMapKeyRef": {"name": "flags", "key": "environment.json"}}}},
        }));
        object.unwrap()
    }

    fn desired(is_published: bool) -> Desired {
        let snapshot =
            Arc::new(Snapshot::new(Revision::new("0a1b"), vec![File::new("core".to_owned(), b"core".to_vec())]));
        let mut current = DesiredSnapshot::published(snapshot, None);
        if !is_published {
            current.state = PublishState::Unpublished { replaces: None, is_outdated: false };
        }
        let mut desired = Desired::default();
        desired.snapshot = Some(current);
        desired
    }

    fn publisher(client: Client) -> Publisher {
        let (objects, _feed) = publish::objects();
        Publisher::new(client, objects, Duration::from_secs(600), Permits::default(), Memory::new(usize::MAX))
    }

    /// Runs a work of one minute beside an API server that answers at once. Returns the number of writes.
    async fn writes_during_minute(environment: &Environment<'_>, desired: &mut Desired) -> usize {
        let (asked, answers, writes) = (Arc::new(Notify::new()), Arc::new(Notify::new()), Arc::default());
        let publisher = publisher(client(asked, Arc::clone(&answers), Arc::clone(&writes)));
        let destination = environment.destination(None).unwrap();
        let answering = async {
            loop {
                answers.notify_one();
                sleep(PERIOD / 5).await;
            }
        };
        let working = run_and_restore(sleep(Duration::from_secs(60)), environment, &publisher, &destination, desired);
        tokio::select! {
            () = working => {}
            () = answering => {}
        }
        writes.load(Ordering::Relaxed)
    }

    #[tokio::test(start_paused = true)]
    async fn snapshot_that_an_edit_may_exclude_is_not_written() {
        let object = fenv();
        let environment = Environment::new(&object);
        assert!(writes_during_minute(&environment, &mut desired(true)).await > 0);
        let mut unpublished = desired(false);
        assert!(writes_during_minute(&environment, &mut unpublished).await > 0);
        unpublished.start_generation();
        assert_eq!(writes_during_minute(&environment, &mut unpublished).await, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_written_for_environment_that_is_deleted_meanwhile() {
        let object = fenv();
        let environment = Environment::new(&object);
        let under_way = UnderWay::default();
        let _reconciling = under_way.begin(&environment.name, &environment.uid, &environment.deletion);
        assert!(writes_during_minute(&environment, &mut desired(true)).await > 0);
        under_way.mark_deleted(|_, _| false);
        assert_eq!(writes_during_minute(&environment, &mut desired(true)).await, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn work_goes_on_during_slow_restoration_and_waits_for_its_end() {
        let (asked, answers, writes) = (Arc::new(Notify::new()), Arc::new(Notify::new()), Arc::default());
        let publisher = publisher(client(Arc::clone(&asked), Arc::clone(&answers), Arc::clone(&writes)));
        let object = fenv();
        let environment = Environment::new(&object);
        let destination = environment.destination(None).unwrap();
        let mut desired = desired(true);
        let work = async {
            asked.notified().await;
            // The API server answers only after the work has ended.
            let answers = Arc::clone(&answers);
            tokio::spawn(async move {
                sleep(PERIOD).await;
                answers.notify_one();
            });
            "done"
        };
        let kept = run_and_restore(work, &environment, &publisher, &destination, &mut desired);
        let done = timeout(Duration::from_secs(60), kept).await;
        assert_eq!(done, Ok("done"), "the work waited for the restoration");
        assert_eq!(writes.load(Ordering::Relaxed), 1, "the restoration was dropped half-way");
    }
}
