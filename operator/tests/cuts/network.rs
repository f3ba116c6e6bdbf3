//! Way between the controller's processes and the cluster, with the program's own fence.

use std::{
    io,
    sync::{Arc, Mutex},
};

use http::{Request, Response, header::ACCEPT};
use http_body_util::BodyExt;
use kube::{Client, client::Body};
use remora_operator::controller::leader::LeaseFence;
use serde_json::Value;
use tokio::time::sleep;
use tower::{Layer, Service, ServiceExt};

use super::{
    cluster::{Outcome, State},
    life::{Life, Part},
    plan::Plan,
    server::Call,
    volumes::Watcher,
};

#[derive(Clone)]
pub(super) struct Network(Arc<Mutex<State>>);

impl Network {
    pub(super) fn new(plan: Plan, watcher: Watcher) -> Self {
        Self(Arc::new(Mutex::new(State::new(plan, watcher))))
    }

    /// Reads or changes the cluster, as a person or as another part of Kubernetes does. Pods see the result.
    pub(super) fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.0.lock().unwrap();
        let result = act(&mut state);
        state.observe();
        result
    }

    /// Returns the client of a process without a fence, for its election.
    pub(super) fn client(&self, life: &Life) -> Client {
        let (network, life) = (self.clone(), life.clone());
        Client::new(tower::service_fn(move |request| network.clone().send(request, life.clone())), "remora-system")
    }

    /// Returns the client of a process for everything else. Its requests pass the program's own fence.
    pub(super) fn fenced_client(&self, life: &Life, fence: &LeaseFence) -> Client {
        let (network, of) = (self.clone(), life.clone());
        let admitted = tower::service_fn(move |request: Request<Body>| {
            network.0.lock().unwrap().admitted(request.method(), &of);
            network.clone().send(request, of.clone())
        });
        let fenced = fence.layer().layer(admitted);
        let (network, life) = (self.clone(), life.clone());
        let client = tower::service_fn(move |request: Request<Body>| {
            let (network, life, mut fenced) = (network.clone(), life.clone(), fenced.clone());
            async move {
                // Tasks beside the reconciliation stop with their process.
                life.run(Part::Work, async {}).await;
                let stopped = network.0.lock().unwrap().before_fence(request.method(), &life);
                if let Some(goes_on) = stopped {
                    let _ = goes_on.await;
                }
                let answer = fenced.ready().await?.call(request).await;
                if let Err(error) = &answer {
                    network.with(|state| state.trace.push(format!("{}: {error}", life.identity())));
                }
                answer
            }
        });
        Client::new(client, "shop")
    }

    async fn send(self, request: Request<Body>, life: Life) -> Result<Response<Body>, io::Error> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
        let accept = parts.headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
        let call = Call {
            method: parts.method.to_string(),
            path: parts.uri.path().to_owned(),
            body: serde_json::from_slice(&body).unwrap_or(Value::Null),
            metadata_only: accept.contains("PartialObjectMetadata"),
        };
        // Another process may act between two requests.
        tokio::task::yield_now().await;
        let delay = self.0.lock().unwrap().delay(&call, &life);
        if let Some(delay) = delay {
            sleep(delay).await;
        }
        let outcome = self.0.lock().unwrap().pass(&call, &life);
        let (status, answer) = match outcome {
            Outcome::Answer(answer) => answer,
            Outcome::Stopped(answer) => answer.await.unwrap_or_default(),
            Outcome::Broken => return Err(io::Error::other("the connection is broken")),
            Outcome::Ended => {
                life.end();
                (0, Value::Null)
            }
        };
        if status == 0 {
            std::future::pending::<()>().await;
        }
        let bytes = Body::from(serde_json::to_vec(&answer).map_err(io::Error::other)?);
        Response::builder().status(status).body(bytes).map_err(io::Error::other)
    }
}
