//! The cluster of a run: the API server, the Lease and the pods. The plan decides what happens to each request.

use std::time::Duration;

use http::Method;
use serde_json::json;
use tokio::sync::oneshot;

use super::{
    lease::Lease,
    life::{Life, Part},
    plan::{Fate, Plan},
    server::{Answer, Call, Server},
    volumes::Watcher,
};

/// Time that a write takes whose process cannot renew its lease: several of them are longer than the lease.
const SLOW: Duration = Duration::from_secs(6);
/// Time between the deletion of the Lease and the write before which somebody deletes it. A standby looks more often.
const DELETED: Duration = Duration::from_millis(3_500);
/// Time by which a clock jumps.
const JUMP: Duration = Duration::from_secs(3_600);

/// Cluster with a plan.
pub(super) struct State {
    pub(super) server: Server,
    pub(super) lease: Lease,
    pub(super) watcher: Watcher,
    plan: Plan,
    /// Writes that the processes attempted.
    pub(super) attempts: usize,
    /// Number of those that wrote or deleted published objects.
    pub(super) published: usize,
    /// Number of notifications of pods that the processes attempted.
    pub(super) notifications: usize,
    /// Writes that are on their way.
    late: Vec<Late>,
    /// Request of a process that is stopped.
    stopped: Option<Stopped>,
    /// Number of the step of the script. The largest number once the script has ended.
    pub(super) step: usize,
    /// True if the process that ended last is replaced only after the next step of the script.
    pub(super) is_away: bool,
    /// Writes that a fence admitted while its process did not hold the lease.
    pub(super) intrusions: Vec<String>,
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

/// A request whose process is stopped.
struct Stopped {
    life: Life,
    /// The write that happens when the process goes on. `None` if the process stopped before the check of its fence.
    call: Option<Call>,
    /// Number of attempts after which the process goes on.
    due: usize,
    /// True if the process that holds the lease meanwhile releases it first.
    after_release: bool,
    answer: oneshot::Sender<Answer>,
}

pub(super) enum Outcome {
    Answer(Answer),
    /// The caller is stopped before its write.
    Stopped(oneshot::Receiver<Answer>),
    /// The caller gets no answer, but an error.
    Broken,
    /// The caller has ended.
    Ended,
}

impl State {
    pub(super) fn new(plan: Plan, watcher: Watcher) -> Self {
        Self {
            server: Server::default(),
            lease: Lease::default(),
            watcher,
            plan,
            attempts: 0,
            published: 0,
            notifications: 0,
            late: Vec::new(),
            stopped: None,
            step: 0,
            is_away: false,
            intrusions: Vec::new(),
            trace: Vec::new(),
        }
    }

    /// Stops a process before the fence checks its write, or lets its clock jump there, if the plan says so.
    pub(super) fn before_fence(&mut self, method: &Method, life: &Life) -> Option<oneshot::Receiver<Answer>> {
        if method == Method::GET || life.has_ended() {
            return None;
        }
        let number = self.attempts + 1;
        match self.plan.fate(number)? {
            Fate::Jump => {
                self.attempts = number;
                self.trace.push(format!("{number}: the clock jumps before the check of the fence"));
                life.jump(JUMP);
                None
            }
            fate @ (Fate::Paused(writes) | Fate::Handback(writes)) if self.stopped.is_none() => {
                self.attempts = number;
                Some(self.stop(life, None, writes, fate))
            }
            _ => None,
        }
    }

    fn stop(&mut self, life: &Life, call: Option<&Call>, writes: usize, fate: Fate) -> oneshot::Receiver<Answer> {
        let what = call.map_or_else(|| "the check of the fence".to_owned(), Call::describe);
        self.trace.push(format!("{}: {} is stopped before: {what}", self.attempts, life.identity()));
        life.stop(matches!(fate, Fate::Unfenced(_)));
        let (answer, goes_on) = oneshot::channel();
        self.stopped = Some(Stopped {
            life: life.clone(),
            call: call.cloned(),
            due: self.attempts.saturating_add(writes),
            after_release: matches!(fate, Fate::Handback(_)),
            answer,
        });
        goes_on
    }

    /// Checks that the fence admits writes only while its process holds the lease, and none after its clock has jumped.
    /// Nobody holds a deleted lease.
    pub(super) fn admitted(&mut self, method: &Method, life: &Life) {
        if method == Method::GET || life.is_unfenced() {
            return;
        }
        let other = self.lease.holder().filter(|holder| *holder != life.identity());
        let problem = match other {
            Some(holder) => format!("while {holder:?} holds the lease"),
            None if life.has_jumped() => "after its clock has jumped".to_owned(),
            None => return,
        };
        let intrusion = format!("the fence of {} admits a write {problem}", life.identity());
        self.trace.push(intrusion.clone());
        self.intrusions.push(intrusion);
    }

    /// Returns the time that a write takes.
    pub(super) fn delay(&mut self, call: &Call, life: &Life) -> Option<Duration> {
        if !call.is_write() || call.is_lease() {
            return None;
        }
        match self.plan.fate(self.attempts + 1) {
            Some(Fate::Deleted) if self.lease.holder() == Some(life.identity()) => {
                self.trace.push("somebody deletes the Lease".to_owned());
                self.lease.delete();
                return Some(DELETED);
            }
            Some(Fate::Unrenewed) => life.fail_renewals(),
            _ => {}
        }
        life.cannot_renew().then_some(SLOW)
    }

    pub(super) fn pass(&mut self, call: &Call, life: &Life) -> Outcome {
        if life.has_ended() {
            return Outcome::Ended;
        }
        if life.is_partitioned() || call.is_lease() && life.cannot_renew() {
            return Outcome::Broken;
        }
        if call.is_lease() {
            return Outcome::Answer(self.lease.answer(call));
        }
        if !call.is_write() {
            return Outcome::Answer(self.server.answer(call));
        }
        self.attempts += 1;
        self.published += usize::from(call.is_publication());
        self.notifications += usize::from(call.is_notification());
        let number = self.attempts;
        let outcome = match self.plan.fate(number) {
            None | Some(Fate::Jump | Fate::Unrenewed | Fate::Deleted) => Outcome::Answer(self.apply(call, "")),
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
            Some(Fate::Partitioned) => {
                self.trace.push(format!("{number}: the connection breaks before: {}", call.describe()));
                life.partition();
                Outcome::Broken
            }
            Some(fate @ (Fate::Overlap(writes) | Fate::Unfenced(writes))) if self.stopped.is_none() => {
                return Outcome::Stopped(self.stop(life, Some(call), writes, fate));
            }
            Some(
                Fate::Late(writes)
                | Fate::Overlap(writes)
                | Fate::Unfenced(writes)
                | Fate::Paused(writes)
                | Fate::Handback(writes),
            ) => {
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
            self.apply_late(&late.call, "arrives late");
        }
        if self.stopped.as_ref().is_some_and(|stopped| stopped.due <= number && !stopped.after_release) {
            self.resume();
        }
        outcome
    }

    /// Lets the oldest write arrive that was sent before the given step. Returns false if there is none.
    pub(super) fn deliver_late(&mut self, before: usize) -> bool {
        let Some(place) = self.late.iter().position(|late| late.step < before) else { return false };
        let late = self.late.remove(place);
        self.apply_late(&late.call, "arrives late");
        true
    }

    /// Ends the script: from now on, a process that ends is replaced at once, and all writes arrive.
    pub(super) fn end_script(&mut self) {
        self.step = usize::MAX;
        self.is_away = false;
    }

    fn has_ended(&self) -> bool {
        self.step == usize::MAX
    }

    /// True if the process that holds the lease releases it before the stopped process goes on.
    pub(super) fn awaits_release(&self) -> bool {
        self.stopped.as_ref().is_some_and(|stopped| stopped.after_release)
    }

    /// Lets the work of the stopped process go on.
    pub(super) fn resume(&mut self) {
        let Some(Stopped { life, call, answer, .. }) = self.stopped.take() else { return };
        let answered = call.map(|call| self.apply_late(&call, "of the stopped process, which goes on"));
        let _process_has_ended = answer.send(answered.unwrap_or_default());
        life.resume(Part::Work);
    }

    fn apply_late(&mut self, call: &Call, remark: &str) -> Answer {
        self.apply(call, remark)
    }

    fn apply(&mut self, call: &Call, remark: &str) -> Answer {
        let before = self.server.log.len();
        let answer = self.server.answer(call);
        let changed = if self.server.log.len() == before { "changes nothing" } else { "" };
        self.trace.push(format!("{}: {} {} {changed} {remark}", self.attempts, call.describe(), answer.0));
        self.observe();
        answer
    }

    pub(super) fn observe(&mut self) {
        self.watcher.observe(&self.server, self.trace.last().map_or("", String::as_str));
    }
}
