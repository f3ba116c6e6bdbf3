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

fn election(server: &Arc<Mutex<Server>>) -> Election {
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
    Election::new(client, "remora-system", "lease", "me".to_owned(), None, LeaseFence::default())
}

#[tokio::test(start_paused = true)]
async fn conflict_on_renewal_is_tried_again_until_another_replica_holds_lease() {
    let server = Arc::new(Mutex::new(Server { labelled_before: 2, ..Server::default() }));
    let election = election(&server);
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
