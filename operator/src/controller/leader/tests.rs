//! Tests of an election against an API server with one Lease. Time is simulated.

use std::{
    convert::Infallible,
    future::pending,
    sync::{Arc, Mutex},
};

use http::{Method, Request, Response};
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::*;

/// The stored Lease, and the attempts to write it.
#[derive(Default)]
struct Server {
    lease: Value,
    writes: usize,
    /// Number of the write before which somebody labels the lease, so that it fails.
    labelled_before: usize,
}

impl Server {
    fn answer(&mut self, method: &Method, body: &Value) -> (u16, Value) {
        let failure = |code: u16, reason: &str| (code, json!({"status": "Failure", "reason": reason, "code": code}));
        if method == Method::GET {
            return if self.lease.is_null() { failure(404, "NotFound") } else { (200, self.lease.clone()) };
        }
        self.writes += 1;
        if self.writes == self.labelled_before {
            self.lease["metadata"]["labels"] = json!({"seen": "yes"});
            return failure(409, "Conflict");
        }
        self.lease = body.clone();
        self.lease["metadata"]["resourceVersion"] = json!(self.writes.to_string());
        (200, self.lease.clone())
    }
}

/// Returns an election of this replica, whose fence has the simulated time.
fn election(server: &Arc<Mutex<Server>>, identity: &str) -> Election {
    let server = Arc::clone(server);
    let service = tower::service_fn(move |request: Request<Body>| {
        let server = Arc::clone(&server);
        async move {
            let (parts, body) = request.into_parts();
            let body = serde_json::from_slice(&body.collect().await.unwrap().to_bytes()).unwrap_or_default();
            let (code, answer) = server.lock().unwrap().answer(&parts.method, &body);
            let answer = Body::from(answer.to_string().into_bytes());
            Ok::<_, Infallible>(Response::builder().status(code).body(answer).unwrap())
        }
    });
    let client = Client::new(service, "remora-system");
    let start = Instant::now();
    let fence = LeaseFence::with_clock(move || start.elapsed());
    Election::new(client, "remora-system", "lease", identity.to_owned(), None, fence)
}

#[tokio::test(start_paused = true)]
async fn conflict_on_renewal_is_tried_again_until_another_replica_holds_lease() {
    let server = Arc::new(Mutex::new(Server { labelled_before: 2, ..Server::default() }));
    let election = election(&server, "me");
    election.acquire().await;
    let watching = async {
        while server.lock().unwrap().writes < 4 {
            sleep(RETRY_PERIOD).await;
        }
        server.lock().unwrap().lease["spec"]["holderIdentity"] = json!("you");
        pending().await
    };
    let lost = tokio::select! {
        lost = timeout(RETRY_PERIOD * 20, election.renew_until_lost()) => lost,
        never = watching => never,
    };
    let writes = server.lock().unwrap().writes;
    assert!(matches!(lost, Ok(Lost::Taken(_))), "{lost:?}");
    assert!(writes >= 4, "the lease was given up after write {writes}");
}

/// A replica that was stopped does not know what another one wrote meanwhile, even if the lease is free again.
#[tokio::test(start_paused = true)]
async fn lease_that_another_replica_held_and_released_is_not_renewed() {
    let server = Arc::new(Mutex::new(Server::default()));
    let (stopped, next) = (election(&server, "me"), election(&server, "you"));
    stopped.acquire().await;
    next.acquire().await;
    next.release().await;
    let lost = timeout(LEASE_DURATION, stopped.renew_until_lost()).await;
    assert!(matches!(lost, Ok(Lost::Expired(_))), "{lost:?}");
    assert!(!stopped.fence.was_renewed_within(RENEW_DEADLINE));
}

#[tokio::test(start_paused = true)]
async fn lease_without_holder_is_lost() {
    let server = Arc::new(Mutex::new(Server::default()));
    let election = election(&server, "me");
    election.acquire().await;
    server.lock().unwrap().lease["spec"]["holderIdentity"] = Value::Null;
    let lost = timeout(LEASE_DURATION, election.renew_until_lost()).await;
    assert!(matches!(lost, Ok(Lost::Taken(_))), "{lost:?}");
    assert!(!election.fence.was_renewed_within(RENEW_DEADLINE), "the fence is open");
}

#[tokio::test(start_paused = true)]
async fn released_lease_closes_fence() {
    let server = Arc::new(Mutex::new(Server::default()));
    let election = election(&server, "me");
    election.acquire().await;
    assert!(election.fence.was_renewed_within(RENEW_DEADLINE));
    election.release().await;
    assert!(!election.fence.was_renewed_within(RENEW_DEADLINE), "the fence is open");
    assert_eq!(server.lock().unwrap().lease["spec"]["holderIdentity"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn deleted_lease_stays_with_its_holder() {
    let server = Arc::new(Mutex::new(Server::default()));
    let (holder, standby) = (election(&server, "me"), election(&server, "you"));
    holder.acquire().await;
    let deleting = async {
        for _ in 0..50 {
            // Another time after the last renewal each time, and the standby has seen the lease since.
            sleep(RETRY_PERIOD.mul_f64(1.9)).await;
            server.lock().unwrap().lease = Value::Null;
        }
    };
    tokio::select! {
        () = standby.acquire() => panic!("the standby took a lease whose holder lives"),
        lost = holder.renew_until_lost() => panic!("{lost}"),
        () = deleting => {}
    }
}
