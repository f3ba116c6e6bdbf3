//! Two replicas whose requests are cut: a replica ends before or after a request, loses the answer, gets an error, its
//! request arrives late, or it waits while the other replica works. Meanwhile a CA is created, renewed, deleted with its
//! Secret, and created again.

use std::{collections::BTreeSet, convert::Infallible, sync::Arc};

use axum::{body::Body, http::Response};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{
    tests::{names, patch},
    *,
};

const MINUTE: u64 = 60;
const LIFETIMES: Lifetimes = Lifetimes {
    ca: Duration::from_secs(180 * MINUTE),
    leaf: Duration::from_secs(60 * MINUTE),
    settle: Duration::from_secs(2 * MINUTE),
    propagation: Duration::from_secs(1),
    skew: Duration::from_secs(5 * MINUTE),
    check: Duration::from_secs(10),
};
/// Minute after which the CA is due for renewal, the minute in which somebody deletes the Secret, and the last minute.
const DUE: u64 = 118;
const DELETED: u64 = 150;
const END: u64 = 260;

/// Fate of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// The replica ends before the request, or after it.
    Before,
    After,
    /// The request has its effect, and the replica gets an error.
    Lost,
    /// The request has no effect, and the replica gets an error.
    Refused,
    /// The replica ends, and the request has its effect after this many writes of others.
    Late(usize),
    /// The request waits until the other replica has checked its certificates.
    Held,
}

const FATES: [Fate; 7] =
    [Fate::Before, Fate::After, Fate::Lost, Fate::Refused, Fate::Late(1), Fate::Late(3), Fate::Held];

/// A request, without the names that are the same in all.
#[derive(Clone, Debug)]
struct Call {
    method: String,
    is_secret: bool,
    body: Value,
}

/// The API server, and what the replicas serve with.
#[derive(Default)]
struct State {
    secret: Option<Value>,
    configuration: Value,
    version: u64,
    requests: usize,
    /// Number of the check that each request was part of, and true for a write.
    log: Vec<(usize, bool)>,
    check: usize,
    cut: Option<(usize, Fate)>,
    late: Option<(usize, Call)>,
    /// CA of the serving certificate of each replica that is ready.
    signers: [Option<Certificate>; 2],
    problems: BTreeSet<String>,
}

impl State {
    fn apply(&mut self, call: &Call) -> (u16, Value) {
        let answer = self.answer(call);
        if call.method != "GET" && answer.0 < 300 {
            self.expect_trust();
            if let Some((writes, _)) = &mut self.late {
                *writes = writes.saturating_sub(1);
            }
        }
        answer
    }

    fn answer(&mut self, call: &Call) -> (u16, Value) {
        let failure = |code: u16, reason: &str| (code, json!({"kind": "Status", "reason": reason, "code": code}));
        let current = self.secret.as_ref().map(|secret| secret["metadata"]["resourceVersion"].clone());
        match (call.method.as_str(), call.is_secret) {
            ("GET", true) => self.secret.clone().map_or_else(|| failure(404, "NotFound"), |secret| (200, secret)),
            ("POST", true) if current.is_some() => failure(409, "AlreadyExists"),
            ("PUT", true) if current.as_ref() != Some(&call.body["metadata"]["resourceVersion"]) => {
                failure(409, "Conflict")
            }
            ("POST" | "PUT", true) => {
                self.version += 1;
                let mut secret = call.body.clone();
                secret["metadata"]["resourceVersion"] = json!(self.version.to_string());
                self.secret = Some(secret.clone());
                (200, secret)
            }
            ("GET", false) => (200, self.configuration.clone()),
            ("PATCH", false) => match patch(&mut self.configuration, call.body.clone()) {
                Ok(()) => (200, self.configuration.clone()),
                Err(_) => failure(422, "Invalid"),
            },
            (method, _) => panic!("no replica sends {method}"),
        }
    }

    /// Notes each ready replica whose certificate the API server does not trust.
    fn expect_trust(&mut self) {
        let bundle = bundle(&self.configuration);
        for (number, signer) in self.signers.iter().enumerate() {
            if signer.as_ref().is_some_and(|signer| !bundle.contains(signer)) {
                self.problems.insert(format!("check {}: replica {number} is not trusted", self.check));
            }
        }
    }

    fn deliver_late(&mut self) {
        if let Some((_, call)) = self.late.take() {
            self.apply(&call);
        }
    }
}

fn bundle(configuration: &Value) -> Vec<Certificate> {
    let configuration: MutatingWebhookConfiguration = serde_json::from_value(configuration.clone()).unwrap();
    let bundle = configuration.webhooks.unwrap().remove(0).client_config.ca_bundle;
    bundle.map_or_else(Vec::new, |bundle| Certificate::read_all(&bundle.0))
}

#[derive(Clone)]
struct Cluster {
    state: Arc<Mutex<State>>,
    /// Number of replicas that have checked their certificates, or wait, since the last pair of checks began.
    done: watch::Sender<usize>,
    /// Becomes true when a replica ends.
    ended: watch::Sender<bool>,
}

impl Cluster {
    fn new(cut: Option<(usize, Fate)>) -> Self {
        let client = json!({"service": {"name": "remora-webhook", "namespace": "remora-system"}});
        let webhook = json!({"name": "pods.remora.dev", "clientConfig": client, "sideEffects": "None", "admissionReviewVersions": ["v1"]});
        let configuration = json!({"metadata": {"name": "remora"}, "webhooks": [webhook]});
        let state = State { configuration, cut, ..State::default() };
        Self { state: Arc::new(Mutex::new(state)), done: watch::Sender::new(0), ended: watch::Sender::new(false) }
    }

    fn manager(&self) -> CertificateManager {
        let cluster = self.clone();
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let cluster = cluster.clone();
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                let call = Call {
                    method: head.method.to_string(),
                    is_secret: head.uri.path().contains("/secrets"),
                    body: serde_json::from_slice(&body).unwrap_or_default(),
                };
                let (status, body) = cluster.pass(call).await;
                Ok::<_, Infallible>(Response::builder().status(status).body(Body::from(body.to_string())).unwrap())
            }
        });
        let metrics = Metrics::register(&mut Registry::default());
        let client = Client::new(service, "remora-system");
        CertificateManager::new(client, names(), Serving::default(), metrics).lifetimes(LIFETIMES)
    }

    async fn pass(&self, call: Call) -> (u16, Value) {
        let fate = {
            let mut state = self.state.lock();
            state.requests += 1;
            let check = state.check;
            state.log.push((check, call.method != "GET"));
            state.cut.filter(|(number, _)| *number == state.requests).map(|(_, fate)| fate)
        };
        let error = (500, json!({"kind": "Status", "code": 500}));
        match fate {
            None => self.state.lock().apply(&call),
            Some(Fate::Refused) => error,
            Some(Fate::Lost) => {
                self.state.lock().apply(&call);
                error
            }
            Some(Fate::Held) => {
                let mut done = self.done.subscribe();
                self.done.send_modify(|done| *done += 1);
                done.wait_for(|done| *done >= 2).await.unwrap();
                self.state.lock().apply(&call)
            }
            Some(fate) => {
                match fate {
                    Fate::After => drop(self.state.lock().apply(&call)),
                    Fate::Late(writes) => self.state.lock().late = Some((writes, call)),
                    _ => {}
                }
                self.ended.send_replace(true);
                std::future::pending().await
            }
        }
    }

    /// Lets a replica check its certificates. Replaces it if it ends.
    async fn check(&self, number: usize, replica: &mut CertificateManager, now: Timestamp) {
        let mut ended = self.ended.subscribe();
        let result = tokio::select! {
            biased;
            _ = ended.wait_for(|ended| *ended) => None,
            result = replica.step(now) => Some(result),
        };
        let mut state = self.state.lock();
        match result {
            None => {
                self.ended.send_replace(false);
                *replica = self.manager();
                state.signers[number] = None;
            }
            // A replica that cannot reach the API server goes on with its certificate, and one that starts is not ready.
            Some(Err(_)) if state.signers[number].is_none() => {}
            Some(_) => state.signers[number] = replica.leaf.as_ref().map(|leaf| leaf.signed_by.clone()),
        }
        drop(state);
        self.done.send_modify(|done| *done += 1);
    }
}

/// Minutes in which replicas check their certificates: each one while a CA is new, and every tenth otherwise.
fn minutes() -> impl Iterator<Item = u64> {
    let is_new = |minute: u64| [0, DUE, DELETED].iter().any(|from| (*from..from + 10).contains(&minute));
    (0..END).filter(move |minute| is_new(*minute) || minute % 10 == 0)
}

/// Runs the replicas, and returns the state in the end. `cut` is the number of a request and its fate.
fn run(cut: Option<(usize, Fate)>) -> State {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let cluster = Cluster::new(cut);
        let mut replicas = [cluster.manager(), cluster.manager()];
        let start = Timestamp::from_second(1_800_000_000).unwrap();
        for (number, minute) in minutes().enumerate() {
            if minute == DELETED {
                cluster.state.lock().secret = None;
            }
            let now = start + Duration::from_secs(minute * MINUTE);
            cluster.done.send_replace(0);
            let [first, second] = &mut replicas;
            // The replicas take turns in being the first. The second one begins when the first is done, or waits.
            let (begins, follows) = if number % 2 == 0 { ((0, first), (1, second)) } else { ((1, second), (0, first)) };
            cluster.state.lock().check += 1;
            let later = async {
                cluster.done.subscribe().wait_for(|done| *done >= 1).await.unwrap();
                cluster.state.lock().check += 1;
                cluster.check(follows.0, follows.1, now).await;
            };
            tokio::join!(cluster.check(begins.0, begins.1, now), later);
            let mut state = cluster.state.lock();
            if state.late.as_ref().is_some_and(|(writes, _)| *writes == 0) || minute + 20 >= END {
                state.deliver_late();
            }
            state.expect_trust();
        }
        let mut state = std::mem::take(&mut *cluster.state.lock());
        let end = start + Duration::from_secs(END * MINUTE);
        for replica in &replicas {
            let leaf = replica.leaf.as_ref().map(|leaf| leaf.validity);
            if leaf.is_none_or(|leaf| leaf.until <= end) {
                state.problems.insert(format!("a replica has the certificate {leaf:?}"));
            }
        }
        state
    })
}

/// Describes the end: the number of CAs that are trusted, and the number of writes in the last hour.
fn settled(state: &State) -> (usize, bool) {
    (bundle(&state.configuration).len(), state.log.iter().rev().take(8).all(|(_, is_write)| !is_write))
}

#[test]
fn cut_of_any_request_leaves_each_ready_replica_trusted() {
    let _installed_already = rustls::crypto::ring::default_provider().install_default();
    let undisturbed = run(None);
    assert_eq!((&undisturbed.problems, settled(&undisturbed)), (&BTreeSet::new(), (1, true)));
    let writing: BTreeSet<usize> =
        undisturbed.log.iter().filter(|(_, is_write)| *is_write).map(|(check, _)| *check).collect();
    assert!(writing.len() >= 4, "the CA is created, renewed, deleted and created again, and a former one expires");
    let (mut plans, mut failed) = (0, Vec::new());
    for (number, (check, is_write)) in undisturbed.log.iter().enumerate() {
        // Requests of a replica that finds nothing to do have no effect, whatever happens to them.
        if !(check.saturating_sub(1)..=check + 1).any(|check| writing.contains(&check)) {
            continue;
        }
        // A read has no effect that could be lost or come late.
        let is_possible = |fate: &Fate| *is_write || matches!(fate, Fate::Before | Fate::Refused | Fate::Held);
        for fate in FATES.into_iter().filter(is_possible) {
            plans += 1;
            let state = run(Some((number + 1, fate)));
            if !state.problems.is_empty() || settled(&state) != (1, true) {
                failed.push(format!("request {} {fate:?}: {:?}, {:?}", number + 1, state.problems, settled(&state)));
            }
        }
    }
    assert!(plans >= 80, "{plans} plans");
    assert!(failed.is_empty(), "{} of {plans} plans fail:\n{}", failed.len(), failed.join("\n"));
}
