//! Comparison of the run of a plan with the run that nothing disturbs.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use super::{
    after::After,
    plan::Plan,
    run::{Seen, run},
    scenario::{Scenario, Step},
    volumes::Reversals,
};

/// Variable with the plan to replay: the name of a scenario, a space, and the faults.
pub(super) const REPLAY: &str = "REMORA_CUTS";

/// Longest time for which a running sidecar may serve an older revision again, if a process without a fence writes and
/// something else fails too: the time between two fetches, which is the interval and at most a tenth of it.
const REVERSAL_MAX: Duration = Duration::from_secs(132);

/// Largest number of further notifications of a pod that a fault causes: one is repeated that failed or got no answer, and
/// the next process sends one of its own.
const NOTIFICATIONS: usize = 2;

/// A scenario with what it shows if nothing goes wrong.
pub(super) struct Reference {
    pub(super) scenario: Scenario,
    pub(super) seen: Seen,
    /// Revisions in the order in which the script publishes them.
    order: Vec<String>,
}

/// Result of a run under a plan.
pub(super) struct Checked {
    pub(super) problems: Vec<String>,
    /// Longest time for which a running sidecar served an older revision again. `None` if none did.
    reversal: Option<Duration>,
    /// Writes and what happened to them.
    trace: Vec<String>,
}

impl Reference {
    pub(super) fn of(scenario: Scenario) -> Self {
        let seen = run(&scenario, &Plan::default(), &[]);
        assert!(seen.problems.is_empty(), "{} without faults: {:#?}\n{:#?}", scenario.name, seen.problems, seen.trace);
        let is_notified = |step: &After| step.notified.is_none() || step.notified == step.serves;
        assert!(seen.steps.iter().all(is_notified), "{} without faults: {:#?}", scenario.name, seen.trace);
        let mut order: Vec<String> = seen.steps.iter().filter_map(|step| step.serves.clone()).collect();
        order.dedup();
        Self { scenario, seen, order }
    }

    /// Runs the scenario under this plan, and returns what is wrong.
    pub(super) fn check(&self, plan: &Plan) -> Checked {
        let seen = run(&self.scenario, plan, &self.order);
        let mut problems = seen.problems;
        let Reversals { described, longest } = seen.reversals;
        if !plan.is_unfenced_with_others() {
            problems.extend(described.iter().cloned());
        } else if longest > REVERSAL_MAX {
            problems.push(format!("{}, for {longest:?}", described.join(", ")));
        }
        let (last, expected) = (seen.steps.last().unwrap(), self.seen.steps.last().unwrap());
        let most = self.seen.notifications + NOTIFICATIONS * plan.faults.len();
        if seen.notifications > most {
            problems.push(format!("pods are notified {} times, and {most} times at most", seen.notifications));
        }
        let forgets = plan.skips_steps() || plan.fails_writes();
        let unnamed = if forgets { last.unnamed() } else { Vec::new() };
        if !unnamed.is_empty() {
            problems.push(format!("objects are left behind: {unnamed:?}"));
        }
        if plan.skips_steps() {
            if last.serves != expected.serves {
                problems.push(format!("new pods serve {:?} in the end, and not {:?}", last.serves, expected.serves));
            }
            problems.extend(notification_problem(last, expected));
        } else {
            for (number, (step, expected)) in seen.steps.iter().zip(&self.seen.steps).enumerate() {
                let (step, expected) = match forgets {
                    true => (step.without_history(), expected.without_history()),
                    false => (step.clone(), expected.clone()),
                };
                problems.extend(
                    notification_problem(&step, &expected)
                        .into_iter()
                        .chain(differences(&step, &expected))
                        .map(|problem| format!("after step {}: {problem}", number + 1)),
                );
            }
        }
        // If the end of an environment is seen after that of its objects, they are written again, and deleted again.
        let deletes = self.scenario.script.iter().any(|step| matches!(step, Step::Delete));
        let is_comparable = plan.only_disturbs_watches() && !(deletes && plan.delays_environment());
        if is_comparable && seen.published != self.seen.published {
            problems.push(format!("objects are written {} times, and not {}", seen.published, self.seen.published));
        }
        problems.dedup();
        Checked { problems, reversal: (!described.is_empty()).then_some(longest), trace: seen.trace }
    }

    /// Describes a failing plan: the problem, the writes and their fates, and how to replay the plan.
    pub(super) fn describe(&self, plan: &Plan, checked: &Checked) -> String {
        let Checked { problems, trace, .. } = checked;
        let (name, shown) = (self.scenario.name, problems.iter().take(5).cloned().collect::<Vec<_>>().join("\n  "));
        format!(
            "plan `{name} {plan}` has {} problems:\n  {shown}\nWhat happened:\n  {}\nReplay: {REPLAY}='{name} {plan}' cargo test -p remora-operator --test cuts replay -- --nocapture",
            problems.len(),
            trace.join("\n  ")
        )
    }
}

/// Plans that were run, and those that failed.
#[derive(Default)]
pub(super) struct Tally {
    plans: usize,
    /// Number of faults of each kind.
    faults: BTreeMap<String, usize>,
    /// Number of plans under which a running sidecar served an older revision again, and the longest time for which it did.
    reversals: (usize, Duration),
    /// Name of the scenario and plan, and the first problem.
    failed: Vec<String>,
    /// Full description of the first failure.
    first: Option<String>,
}

impl Tally {
    /// Runs plans on this many threads. Each takes the next plan when it has finished one.
    pub(super) fn of(plans: &[(&Reference, Plan)], threads: usize) -> Self {
        let next = AtomicUsize::new(0);
        let work = || {
            let mut tally = Self::default();
            while let Some((reference, plan)) = plans.get(next.fetch_add(1, Ordering::Relaxed)) {
                tally.check(reference, plan);
            }
            tally
        };
        if threads == 1 {
            return work();
        }
        thread::scope(|scope| {
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            workers.into_iter().map(|worker| worker.join().unwrap()).fold(Self::default(), Self::and)
        })
    }

    fn and(mut self, other: Self) -> Self {
        self.plans += other.plans;
        for (kind, count) in other.faults {
            *self.faults.entry(kind).or_default() += count;
        }
        self.reversals = (self.reversals.0 + other.reversals.0, self.reversals.1.max(other.reversals.1));
        self.failed.extend(other.failed);
        self.first = self.first.or(other.first);
        self
    }

    fn check(&mut self, reference: &Reference, plan: &Plan) {
        self.plans += 1;
        for fault in &plan.faults {
            *self.faults.entry(fault.kind()).or_default() += 1;
        }
        let checked = reference.check(plan);
        if let Some(time) = checked.reversal {
            self.reversals = (self.reversals.0 + 1, self.reversals.1.max(time));
        }
        if let Some(problem) = checked.problems.first() {
            let failure = format!("{} {plan}: {problem:.300}", reference.scenario.name);
            // A long run may be ended before its end.
            println!("{failure}");
            self.failed.push(failure);
            self.first.get_or_insert_with(|| reference.describe(plan, &checked));
        }
    }

    /// Fails if a plan has failed. Returns the number of plans.
    pub(super) fn end(self) -> usize {
        let Self { plans, faults, reversals: (reversals, longest), failed, first } = self;
        if let Some(first) = first {
            panic!("{} of {plans} plans fail:\n  {}\n\nThe first {first}", failed.len(), failed.join("\n  "));
        }
        println!(
            "{plans} plans, with these faults: {faults:?}; {reversals} returns to an older revision, for {longest:?} at most"
        );
        plans
    }
}

fn differences(found: &After, expected: &After) -> impl Iterator<Item = String> {
    let mut problems = Vec::new();
    if found.serves != expected.serves {
        problems.push(format!("new pods serve {:?}, and not {:?}", found.serves, expected.serves));
    }
    for (name, object) in &found.objects {
        match expected.objects.get(name) {
            None => problems.push(format!("{name} is left behind")),
            Some(wanted) if wanted != object => {
                problems.push(format!("{name} differs: {}", difference(object, wanted)));
            }
            Some(_) => {}
        }
    }
    let missing = expected.objects.keys().filter(|name| !found.objects.contains_key(*name));
    problems.extend(missing.map(|name| format!("{name} is missing")));
    problems.into_iter()
}

/// Checks that the pod was notified of the published revision. A process that starts also notifies pods that need no
/// notification, because it does not know how they started.
fn notification_problem(found: &After, expected: &After) -> Option<String> {
    let is_missing = found.notified.is_none() && expected.notified.is_some();
    let is_wrong = found.notified.is_some() && found.notified != found.serves;
    let notified = &found.notified;
    (is_missing || is_wrong).then(|| format!("the pod was notified of {notified:?}, and serves {:?}", found.serves))
}

/// Describes the first place in which two objects differ.
fn difference(found: &serde_json::Value, expected: &serde_json::Value) -> String {
    let changes = json_patch::diff(expected, found);
    changes
        .iter()
        .map(ToString::to_string)
        .map(|change| change.chars().take(300).collect::<String>())
        .collect::<Vec<_>>()
        .join("; ")
}
