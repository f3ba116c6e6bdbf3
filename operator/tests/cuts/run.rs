//! One run of a scenario under a plan.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use remora_operator::api::names::{EnvironmentName, annotation, label};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    network::{Network, State},
    plan::Plan,
    process::{Process, Turn},
    scenario::{Scenario, Step},
    server::{Kind, Server},
    volumes::Watcher,
};

/// Time without a write after which the controller has nothing more to do: longer than the time between two reads of the
/// source, and than the time between two polls of Secrets with the grace period.
const QUIET: Duration = Duration::from_secs(140);
/// Most reconciliations between two steps of a script.
const TURNS: usize = 150;

/// Objects by their kind and name, without what differs between two runs.
type Objects = BTreeMap<String, Value>;

/// State of the cluster after a step.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct After {
    /// Revision that a new pod serves.
    pub(super) serves: Option<String>,
    pub(super) objects: Objects,
}

/// Result of a run.
pub(super) struct Seen {
    /// State after each step of the script.
    pub(super) steps: Vec<After>,
    /// Number of writes that the controller attempted.
    pub(super) writes: usize,
    pub(super) problems: Vec<String>,
    pub(super) trace: Vec<String>,
}

struct Run {
    network: Network,
    plan: Plan,
    process: Option<Process>,
    /// Number of processes that were started.
    processes: usize,
    problems: Vec<String>,
}

/// Runs a scenario. `order` are the revisions in the order in which the script publishes them.
pub(super) fn run(scenario: &Scenario, plan: &Plan, order: &[String]) -> Seen {
    fastrand::seed(plan.seed);
    let network = Network::new(plan.clone(), Watcher::new(order.to_vec(), plan.seed));
    let mut run = Run { network, plan: plan.clone(), process: None, processes: 0, problems: Vec::new() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let steps = runtime.block_on(run.follow(&scenario.script));
    run.process = None;
    drop(runtime);
    run.network.with(|state| {
        let mut problems = std::mem::take(&mut run.problems);
        problems.append(&mut state.watcher.problems);
        problems.extend(state.server.unknown.iter().map(|call| format!("the controller calls {call}")));
        Seen { steps, writes: state.attempts, problems, trace: std::mem::take(&mut state.trace) }
    })
}

impl Run {
    async fn follow(&mut self, script: &[Step]) -> Vec<After> {
        let mut steps = Vec::new();
        for (number, step) in script.iter().enumerate() {
            self.network.with(|state| {
                act(state, step);
                state.is_away = false;
                state.step = number;
                state.trace.push(format!("step {}: {step:.200?}", number + 1));
            });
            if matches!(step, Step::Upgrade(_)) {
                self.process = None;
            }
            self.settle().await;
            if number + 1 == script.len() {
                // A process that was away and a write that is on its way arrive in the end.
                self.network.with(|state| (state.is_away, state.step) = (false, usize::MAX));
                self.settle().await;
            }
            steps.push(self.network.with(after));
        }
        self.end().await;
        steps
    }

    /// Lets the controller reconcile until it has nothing more to do.
    async fn settle(&mut self) {
        let mut written = Instant::now();
        for _ in 0..TURNS {
            self.network.with(|state| state.server.collect_garbage());
            let before = self.writes();
            let Some(process) = self.process() else { return };
            process.watch();
            let wait = match process.turn().await {
                Turn::Ended => {
                    self.process = None;
                    written = Instant::now();
                    continue;
                }
                Turn::Done(wait) => Some(wait),
                Turn::Idle => None,
            };
            if self.writes() > before {
                written = Instant::now();
            }
            // Events that are delayed arrive while the process is idle.
            if self.process.as_mut().is_some_and(Process::watch_next) {
                written = Instant::now();
                continue;
            }
            if written.elapsed() >= QUIET || wait.is_none() {
                let step = self.network.with(|state| state.step);
                if !self.network.deliver_late(step) {
                    return;
                }
                written = Instant::now();
                continue;
            }
            tokio::time::advance(wait.unwrap_or_default()).await;
        }
        self.problems.push("the controller writes for ever".to_owned());
    }

    /// Returns the process, a new one if the last one has ended. `None` while nobody replaces it.
    fn process(&mut self) -> Option<&mut Process> {
        if self.process.is_none() {
            if self.network.with(|state| state.is_away) {
                return None;
            }
            self.processes += 1;
            let sight = self.plan.sight(self.processes);
            self.process = Some(Process::start(&self.network, sight));
        }
        self.process.as_mut()
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

fn after(state: &mut State) -> After {
    let serves = state.watcher.serves(&state.server);
    let owner = state.server.get(Kind::Environment, "storefront").map(|found| found["metadata"]["uid"].clone());
    let owner = owner.unwrap_or_default();
    let ours = state.server.objects().iter().filter(|((kind, _), object)| match kind {
        Kind::ConfigMap | Kind::Secret => object["metadata"]["labels"][label::MANAGED_BY] == label::REMORA,
        Kind::Environment => true,
        Kind::Pod => false,
    });
    let objects = ours.map(|((kind, name), object)| (format!("{kind:?} {name}"), comparable(object, &owner))).collect();
    After { serves, objects }
}

/// Removes what differs between two runs: versions, UIDs and times.
fn comparable(object: &Value, owner: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        ["resourceVersion", "uid", "managedFields"].iter().for_each(|field| drop(metadata.remove(*field)));
    }
    for reference in object["metadata"]["ownerReferences"].as_array_mut().into_iter().flatten() {
        reference["uid"] = json!(if reference["uid"] == *owner { "the environment" } else { "another object" });
    }
    if let Some(record) = object["metadata"]["annotations"].get_mut(annotation::RECORD) {
        *record = serde_json::from_str(record.as_str().unwrap()).unwrap();
        ["dropped", "former"].iter().for_each(|field| drop(record.as_object_mut().unwrap().remove(*field)));
    }
    if let Some(status) = object["status"].as_object_mut() {
        // These counts depend on the time of the last observation.
        status.remove("pods");
    }
    timeless(&mut object);
    object
}

fn timeless(value: &mut Value) {
    match value {
        Value::String(text) if text.len() < 1_000 && text.contains(':') => {
            let words = text.split(' ').map(|word| if word.parse::<Timestamp>().is_ok() { "(a time)" } else { word });
            *value = json!(words.collect::<Vec<_>>().join(" "));
        }
        Value::Array(values) => values.iter_mut().for_each(timeless),
        Value::Object(values) => values.values_mut().for_each(timeless),
        _ => {}
    }
}

impl After {
    /// Returns the state without earlier revisions and without what changed since them.
    pub(super) fn without_history(&self) -> Self {
        let mut objects = self.objects.clone();
        objects.retain(|name, _| !name.contains("-history-"));
        for object in objects.values_mut() {
            for place in ["/metadata/annotations/remora.dev~1record", "/status"] {
                if let Some(fields) = object.pointer_mut(place).and_then(Value::as_object_mut) {
                    fields.remove("history");
                    fields.remove("changes");
                }
            }
        }
        Self { serves: self.serves.clone(), objects }
    }

    /// Lists the published objects that neither the status nor the record of a core names.
    pub(super) fn unnamed(&self) -> Vec<&String> {
        let Some(environment) = self.objects.get("Environment storefront") else {
            return self.published().collect();
        };
        let name: EnvironmentName = "storefront".parse().unwrap();
        let mut named: BTreeSet<String> = BTreeSet::new();
        let status = &environment["status"];
        let kind = status["delivery"]["as"].as_str().unwrap_or("ConfigMap");
        named.extend(
            status["objects"].as_array().into_iter().flatten().map(|name| format!("{kind} {}", name.as_str().unwrap())),
        );
        for (key, object) in &self.objects {
            let history = object["metadata"]["annotations"][annotation::RECORD]["history"].as_array();
            for past in history.into_iter().flatten() {
                let past: remora_operator::publish::Past = serde_json::from_value(with_times(past)).unwrap();
                named.extend(past.objects(&name).map(|name| format!("{} {name}", key.split(' ').next().unwrap())));
            }
        }
        let in_parts = named.iter().any(|name| name.contains("-core-a-") || name.contains("-core-b-"));
        let is_named = |name: &&String| named.contains(*name) || in_parts && name.contains("-core-");
        self.published().filter(|name| !is_named(name)).collect()
    }

    fn published(&self) -> impl Iterator<Item = &String> {
        self.objects.keys().filter(|name| name.starts_with("ConfigMap ") || name.starts_with("Secret "))
    }
}

fn with_times(past: &Value) -> Value {
    let mut past = past.clone();
    past["publishedAt"] = json!("1970-01-01T00:00:00Z");
    past
}
