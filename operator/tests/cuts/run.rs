//! One run of a scenario under a plan.

use std::{collections::BTreeSet, time::Duration};

use remora_operator::api::names::{annotation, label};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{
    after::{After, after},
    cluster::State,
    network::Network,
    plan::Plan,
    process::{Process, Turn},
    replica::Replica,
    scenario::{Scenario, Step},
    server::{Kind, Server},
    volumes::{Reversals, Watcher},
};

/// Time without a write after which the controller has nothing more to do: longer than the time between two fetches, which
/// is the interval and a tenth of it, and than the time between two polls of Secrets with the grace period.
const QUIET: Duration = Duration::from_secs(140);
/// Time that a process without a FeatureEnvironment is given to notice that it has lost its lease.
const IDLE: Duration = Duration::from_secs(5);
/// Most reconciliations between two steps of a script.
const TURNS: usize = 150;

/// Result of a run.
pub(super) struct Seen {
    /// State after each step of the script.
    pub(super) steps: Vec<After>,
    /// Number of writes that the controller attempted.
    pub(super) writes: usize,
    /// Number of those that wrote or deleted published objects.
    pub(super) published: usize,
    /// Number of notifications of pods that the controller attempted.
    pub(super) notifications: usize,
    pub(super) problems: Vec<String>,
    pub(super) reversals: Reversals,
    pub(super) trace: Vec<String>,
}

struct Run {
    network: Network,
    plan: Plan,
    process: Option<Process>,
    /// Process that was stopped, and lost its lease.
    stopped: Option<Process>,
    /// Replica that waits for the lease.
    standby: Option<Replica>,
    /// Number of replicas that were started.
    replicas: usize,
    /// Number of those that held the lease.
    processes: usize,
    /// Start of the simulated time.
    start: Instant,
    problems: Vec<String>,
}

/// Runs a scenario. `order` are the revisions in the order in which the script publishes them.
pub(super) fn run(scenario: &Scenario, plan: &Plan, order: &[String]) -> Seen {
    fastrand::seed(plan.seed);
    let network = Network::new(plan.clone(), Watcher::new(order.to_vec(), plan.seed));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let mut run = Run {
        network,
        plan: plan.clone(),
        process: None,
        stopped: None,
        standby: None,
        replicas: 0,
        processes: 0,
        start: runtime.block_on(async { Instant::now() }),
        problems: Vec::new(),
    };
    let (steps, [writes, published, notifications]) = runtime.block_on(run.follow(&scenario.script));
    (run.process, run.stopped, run.standby) = (None, None, None);
    drop(runtime);
    run.network.with(|state| {
        let mut problems = std::mem::take(&mut run.problems);
        problems.append(&mut state.watcher.problems);
        problems.append(&mut state.intrusions);
        problems.extend(state.server.unknown.iter().map(|call| format!("the controller calls {call}")));
        let reversals = std::mem::take(&mut state.watcher.reversals);
        Seen { steps, writes, published, notifications, problems, reversals, trace: std::mem::take(&mut state.trace) }
    })
}

impl Run {
    /// Returns the state after each step, and the numbers of writes until the script ends: all, those of published objects,
    /// and notifications of pods.
    async fn follow(&mut self, script: &[Step]) -> (Vec<After>, [usize; 3]) {
        let mut steps = Vec::new();
        for (number, step) in script.iter().enumerate() {
            self.network.with(|state| {
                act(state, step);
                state.is_away = false;
                state.step = number;
                state.trace.push(format!("step {}: {step:.200?}", number + 1));
            });
            if matches!(step, Step::Upgrade(_))
                && let Some(process) = self.process.take()
            {
                process.release().await;
            }
            self.settle().await;
            if number + 1 == script.len() {
                // A process that was away and a write that is on its way arrive in the end.
                self.network.with(State::end_script);
                self.settle().await;
            }
            steps.push(self.network.with(after));
        }
        let writes = self.network.with(|state| [state.attempts, state.published, state.notifications]);
        self.end().await;
        (steps, writes)
    }

    /// Lets the controller reconcile until it has nothing more to do.
    async fn settle(&mut self) {
        let mut written = Instant::now();
        for _ in 0..TURNS {
            self.network.with(|state| state.server.collect_garbage());
            let before = self.writes();
            if self.process.is_none() {
                if !self.lead().await {
                    self.resume().await;
                    return;
                }
                written = Instant::now();
            }
            let Some(process) = self.process.as_mut() else { continue };
            process.watch();
            let wait = match process.turn().await {
                Turn::Ended => {
                    self.process = None;
                    continue;
                }
                Turn::Stopped => {
                    self.stopped = self.process.take();
                    // The next process would wait for its first fetch, and the stopped one would not stay stopped as long.
                    self.network.with(request_refresh);
                    continue;
                }
                Turn::Done(wait) => Some(wait),
                Turn::Idle => None,
            };
            self.resume().await;
            if self.writes() > before {
                written = Instant::now();
            }
            let Some(process) = self.process.as_mut() else { continue };
            // Events that are delayed arrive while the process is idle.
            if process.watch_next() {
                written = Instant::now();
                continue;
            }
            let must_end = process.life().is_partitioned() || process.life().cannot_renew();
            if (written.elapsed() >= QUIET || wait.is_none()) && !must_end {
                let step = self.network.with(|state| state.step);
                if !self.network.with(|state| state.deliver_late(step)) {
                    return;
                }
                written = Instant::now();
                continue;
            }
            let life = process.life().clone();
            tokio::select! {
                biased;
                () = life.ended() => self.process = None,
                () = sleep(wait.unwrap_or(IDLE)) => {}
            }
        }
        self.problems.push("the controller writes for ever".to_owned());
    }

    /// Lets the stopped process go on, and waits until it has ended.
    async fn resume(&mut self) {
        let Some(stopped) = self.stopped.take() else { return };
        if self.network.with(|state| state.awaits_release())
            && let Some(process) = self.process.take()
        {
            process.release().await;
        }
        self.network.with(State::resume);
        let life = stopped.life().clone();
        let has_ended = stopped.finish().await;
        // Without a fence, it creates the Lease again that somebody deleted, and the other process ends.
        let holds = life.is_unfenced() && self.network.with(|state| state.lease.holder() == Some(life.identity()));
        if !has_ended && !holds {
            self.problems.push("a process goes on that has lost its lease".to_owned());
        }
    }

    /// Starts a process: a replica that gets the lease. Returns false while nobody replaces the last one.
    async fn lead(&mut self) -> bool {
        if self.network.with(|state| state.is_away) {
            return false;
        }
        let replica = self.standby.take().unwrap_or_else(|| self.replica());
        replica.life.leads().await;
        self.processes += 1;
        let sight = self.plan.sight(self.processes);
        let seed = self.plan.seed.wrapping_add(self.processes as u64);
        self.process = Some(Process::start(&self.network, replica, sight, seed));
        self.standby = self.plan.has_standby().then(|| self.replica());
        true
    }

    fn replica(&mut self) -> Replica {
        self.replicas += 1;
        Replica::start(&self.network, self.replicas, self.start)
    }

    fn writes(&self) -> usize {
        self.network.with(|state| state.attempts)
    }

    /// Deletes the environment, after which nothing may be left.
    async fn end(&mut self) {
        self.network.with(|state| {
            act(state, &Step::Delete);
            state.is_away = false;
        });
        self.settle().await;
        let left = self.network.with(|state| {
            state.server.collect_garbage();
            names(&state.server)
        });
        if !left.is_empty() {
            self.problems.push(format!("objects of a deleted environment are left: {left:?}"));
        }
    }
}

fn act(state: &mut State, step: &Step) {
    let server = &mut state.server;
    let environment = server.get(Kind::Environment, "storefront").map(|found| Value::clone(found));
    match step {
        Step::Source(document) => server.put(Kind::ConfigMap, document.source()),
        Step::Spec(spec) => put_environment(server, environment.as_ref(), spec),
        Step::Pin(document) => put_environment(server, environment.as_ref(), &json!({"pin": document.revision()})),
        Step::Confirm(document) => {
            let mut environment = environment.unwrap();
            environment["metadata"]["annotations"] = json!({annotation::CONFIRM: document.revision()});
            server.put(Kind::Environment, environment);
        }
        Step::Pods(pods) => {
            server.remove(&(Kind::Pod, "web".to_owned()));
            pods.iter().for_each(|pod| server.put(Kind::Pod, pod.clone()));
        }
        Step::Delete => {
            server.remove(&(Kind::Environment, "storefront".to_owned()));
            server.collect_garbage();
        }
        Step::Upgrade(format) => downgrade(server, format),
    }
}

/// Requests a fetch now.
fn request_refresh(state: &mut State) {
    if let Some(environment) = state.server.get(Kind::Environment, "storefront") {
        let mut environment = Value::clone(environment);
        environment["metadata"]["annotations"][annotation::REFRESH] = json!(format!("at {}", state.attempts));
        state.server.put(Kind::Environment, environment);
    }
}

fn put_environment(server: &mut Server, found: Option<&Value>, spec: &Value) {
    let generation = found.and_then(|found| found["metadata"]["generation"].as_i64()).unwrap_or_default();
    let mut environment = json!({
        "apiVersion": "remora.dev/v1alpha1", "kind": "FeatureEnvironment",
        "metadata": {"name": "storefront", "namespace": "shop", "generation": generation + 1},
        "spec": {
            "source": {"document": {"configMapKeyRef": {"name": "flags", "key": "environment.json"}}},
            "refresh": {"interval": "120s"},
        },
    });
    for (key, value) in spec.as_object().unwrap() {
        environment["spec"][key] = value.clone();
    }
    server.put(Kind::Environment, environment);
}

/// Turns the published objects into those of another version: with its names, and with bytes that this version never
/// reads.
fn downgrade(server: &mut Server, format: &str) {
    let today = format!("-{}-", remora_operator::api::names::FORMAT);
    let published: Vec<_> = server.objects().keys().filter(|(_, name)| name.contains(&today)).cloned().collect();
    for key in published {
        let Some(object) = server.remove(&key) else { continue };
        let mut object = Value::clone(&object);
        object["metadata"]["name"] = json!(key.1.replace(&today, &format!("-{format}-")));
        object["metadata"]["labels"][label::FORMAT] = json!(format);
        for field in ["binaryData", "data"] {
            if object[field].is_object() {
                object[field] = json!({"core": "AAAA"});
            }
        }
        server.put(key.0, object);
    }
}

/// Names of the published objects, with their kind.
fn names(server: &Server) -> BTreeSet<String> {
    let published =
        server.objects().iter().filter(|(_, object)| object["metadata"]["labels"][label::MANAGED_BY] == label::REMORA);
    published.map(|((kind, name), _)| format!("{kind:?} {name}")).collect()
}
