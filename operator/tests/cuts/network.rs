//! Way between the controller's processes and the API server: the plan decides what happens to each write.

use std::{
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use http::{Request, Response, header::ACCEPT};
use http_body_util::BodyExt;
use kube::{Client, client::Body};
use serde_json::{Value, json};
use tokio::sync::{Notify, oneshot};

use super::{
    plan::{Fate, Plan},
    server::{Answer, Call, Server},
    volumes::Watcher,
};

/// Process of the controller, which may be paused or may have ended.
#[derive(Clone, Default)]
pub(super) struct Life(Arc<Events>);

#[derive(Default)]
struct Events {
    has_ended: AtomicBool,
    /// True once the fence of the process's lease rejects writes.
    is_fenced: AtomicBool,
    end: Notify,
    pause: Notify,
}

impl Life {
    fn has_ended(&self) -> bool {
        self.0.has_ended.load(Ordering::SeqCst)
    }

    fn end(&self) {
        self.0.has_ended.store(true, Ordering::SeqCst);
        self.0.end.notify_one();
    }

    fn is_fenced(&self) -> bool {
        self.0.is_fenced.load(Ordering::SeqCst)
    }

    /// Waits until the process ends.
    pub(super) async fn ended(&self) {
        self.0.end.notified().await;
    }

    /// Waits until the process is paused.
    pub(super) async fn paused(&self) {
        self.0.pause.notified().await;
    }
}

/// Cluster with a plan.
pub(super) struct State {
    pub(super) server: Server,
    pub(super) watcher: Watcher,
    plan: Plan,
    /// Writes that the processes attempted.
    pub(super) attempts: usize,
    /// Number of those that wrote or deleted published objects.
    pub(super) published: usize,
    /// Writes that are on their way.
    late: Vec<Late>,
    /// Write of a process that is paused.
    paused: Option<Paused>,
    /// Number of the step of the script. The largest number once the script has ended.
    pub(super) step: usize,
    /// True if the process that ended last is replaced only after the next step of the script.
    pub(super) is_away: bool,
    /// Writes and what happened to them, for the report of a failure.
    pub(super) trace: Vec<String>,
}

/// A write that is on its way.
struct Late {
    call: Call,
    /// Number of attempts after which it arrives.
    due: usize,
    /// Step of the script in which it was sent.
    step: usize,
}

/// A write whose process is paused.
struct Paused {
    call: Call,
    /// Number of attempts after which the process goes on.
    due: usize,
    answer: oneshot::Sender<Answer>,
}

enum Outcome {
    Answer(Answer),
    /// The caller is paused before its write.
    Paused(oneshot::Receiver<Answer>),
    /// The caller gets no answer, but an error.
    Broken,
    /// The caller has ended.
    Ended,
}

#[derive(Clone)]
pub(super) struct Network(Arc<Mutex<State>>);

impl Network {
    pub(super) fn new(plan: Plan, watcher: Watcher) -> Self {
        Self(Arc::new(Mutex::new(State {
            server: Server::default(),
            watcher,
            plan,
            attempts: 0,
            published: 0,
            late: Vec::new(),
            paused: None,
            step: 0,
            is_away: false,
            trace: Vec::new(),
        })))
    }

    /// Reads or changes the cluster, as a person or as another part of Kubernetes does. Pods see the result.
    pub(super) fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.0.lock().unwrap();
        let result = act(&mut state);
        state.observe();
        result
    }

    /// Returns the client of a process.
    pub(super) fn client(&self, life: &Life) -> Client {
        let (network, life) = (self.clone(), life.clone());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (network, life) = (network.clone(), life.clone());
            async move {
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
                let outcome = network.0.lock().unwrap().pass(&call, &life);
                let (status, answer) = match outcome {
                    Outcome::Answer(answer) => answer,
                    Outcome::Paused(answer) => {
                        life.0.pause.notify_one();
                        answer.await.unwrap_or_default()
                    }
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
        });
        Client::new(service, "shop")
    }

    /// Lets the paused process go on.
    pub(super) fn resume(&self) {
        self.with(State::resume);
    }

    /// Lets the oldest write arrive that was sent before the given step. Returns false if there is none.
    pub(super) fn deliver_late(&self, before: usize) -> bool {
        self.with(|state| {
            let Some(place) = state.late.iter().position(|late| late.step < before) else { return false };
            let late = state.late.remove(place);
            state.apply(&late.call, "arrives late");
            true
        })
    }
}

impl State {
    fn pass(&mut self, call: &Call, life: &Life) -> Outcome {
        if life.has_ended() {
            return Outcome::Ended;
        }
        if !call.is_write() {
            return Outcome::Answer(self.server.answer(call));
        }
        if life.is_fenced() {
            self.trace.push(format!("{}: the fence rejects: {}", self.attempts, call.describe()));
            return Outcome::Broken;
        }
        self.attempts += 1;
        self.published += usize::from(call.is_publication());
        let number = self.attempts;
        let outcome = match self.plan.fate(number) {
            None => Outcome::Answer(self.apply(call, "")),
            Some(Fate::Before | Fate::BeforeAway) => {
                self.trace.push(format!("{number}: the process ends before: {}", call.describe()));
                Outcome::Ended
            }
            Some(Fate::After | Fate::AfterAway) => {
                self.apply(call, "and the process ends");
                Outcome::Ended
            }
            Some(Fate::Lost) => {
                self.apply(call, "and the answer is lost");
                Outcome::Broken
            }
            Some(Fate::Refused) => {
                self.trace.push(format!("{number}: refused: {}", call.describe()));
                let failure = json!({"kind": "Status", "status": "Failure", "message": "no", "reason": "InternalError", "code": 500});
                Outcome::Answer((500, failure))
            }
            Some(fate @ (Fate::Overlap(writes) | Fate::Unfenced(writes))) if self.paused.is_none() => {
                life.0.is_fenced.store(matches!(fate, Fate::Overlap(_)), Ordering::SeqCst);
                self.trace.push(format!("{number}: the process is paused before: {}", call.describe()));
                let (answer, receiver) = oneshot::channel();
                self.paused = Some(Paused { call: call.clone(), due: number.saturating_add(writes), answer });
                return Outcome::Paused(receiver);
            }
            Some(Fate::Late(writes) | Fate::Overlap(writes) | Fate::Unfenced(writes)) => {
                self.trace.push(format!("{number}: on its way: {}", call.describe()));
                self.late.push(Late { call: call.clone(), due: number.saturating_add(writes), step: self.step });
                return Outcome::Ended;
            }
        };
        if matches!(self.plan.fate(number), Some(Fate::BeforeAway | Fate::AfterAway)) {
            self.is_away = !self.has_ended();
        }
        while let Some(place) = self.late.iter().position(|late| late.due <= number) {
            let late = self.late.remove(place);
            self.apply(&late.call, "arrives late");
        }
        if self.paused.as_ref().is_some_and(|paused| paused.due <= number) {
            self.resume();
        }
        outcome
    }

    /// Ends the script: from now on, a process that ends is replaced at once, and all writes arrive.
    pub(super) fn end_script(&mut self) {
        self.step = usize::MAX;
        self.is_away = false;
    }

    fn has_ended(&self) -> bool {
        self.step == usize::MAX
    }

    fn resume(&mut self) {
        let Some(Paused { call, answer, .. }) = self.paused.take() else { return };
        let answered = self.apply(&call, "of the paused process, which goes on");
        let _process_has_ended = answer.send(answered);
    }

    fn apply(&mut self, call: &Call, remark: &str) -> Answer {
        let before = self.server.log.len();
        let answer = self.server.answer(call);
        let changed = if self.server.log.len() == before { "changes nothing" } else { "" };
        self.trace.push(format!("{}: {} {} {changed} {remark}", self.attempts, call.describe(), answer.0));
        self.observe();
        answer
    }

    fn observe(&mut self) {
        self.watcher.observe(&self.server, self.trace.last().map_or("", String::as_str));
    }
}
