//! Tests the controller under plans of cuts: crashes around each write, lost answers, writes that arrive late, and watches
//! that lag or break. Everything is simulated except the controller and the sidecar's reader, so each plan replays.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test that panics has failed, as it should"
)]

#[path = "cuts/documents.rs"]
mod documents;
#[path = "cuts/network.rs"]
mod network;
#[path = "cuts/plan.rs"]
mod plan;
#[path = "cuts/process.rs"]
mod process;
#[path = "cuts/run.rs"]
mod run;
#[path = "cuts/scenario.rs"]
mod scenario;
#[path = "cuts/server.rs"]
mod server;
#[path = "cuts/volumes.rs"]
mod volumes;

use plan::{Fate, Fault, Plan, Sight};
use run::{After, Seen, run};
use scenario::Scenario;

/// Variable with the plan to replay: the name of a scenario, a space, and the faults.
const REPLAY: &str = "REMORA_CUTS";

/// A scenario with what it shows if nothing goes wrong.
struct Reference {
    scenario: Scenario,
    seen: Seen,
    /// Revisions in the order in which the script publishes them.
    order: Vec<String>,
}

impl Reference {
    fn of(scenario: Scenario) -> Self {
        let seen = run(&scenario, &Plan::default(), &[]);
        assert!(seen.problems.is_empty(), "{} without faults: {:#?}\n{:#?}", scenario.name, seen.problems, seen.trace);
        let mut order: Vec<String> = seen.steps.iter().filter_map(|step| step.serves.clone()).collect();
        order.dedup();
        Self { scenario, seen, order }
    }

    /// Returns what is wrong with a run under this plan.
    fn check(&self, plan: &Plan) -> Vec<String> {
        let seen = run(&self.scenario, plan, &self.order);
        let mut problems = seen.problems;
        let (last, expected) = (seen.steps.last().unwrap(), self.seen.steps.last().unwrap());
        let forgets = plan.skips_steps() || plan.fails_writes();
        let unnamed = if forgets { last.unnamed() } else { Vec::new() };
        if !unnamed.is_empty() {
            problems.push(format!("objects are left behind: {unnamed:?}"));
        }
        if plan.skips_steps() {
            if last.serves != expected.serves {
                problems.push(format!("new pods serve {:?} in the end, and not {:?}", last.serves, expected.serves));
            }
        } else {
            for (number, (step, expected)) in seen.steps.iter().zip(&self.seen.steps).enumerate() {
                let (step, expected) = match forgets {
                    true => (step.without_history(), expected.without_history()),
                    false => (step.clone(), expected.clone()),
                };
                problems.extend(
                    differences(&step, &expected).map(|problem| format!("after step {}: {problem}", number + 1)),
                );
            }
        }
        if plan.only_delays_watches() && seen.writes != self.seen.writes {
            problems.push(format!("the controller writes {} times, and not {}", seen.writes, self.seen.writes));
        }
        problems.dedup();
        problems
    }

    /// Describes a plan that fails: what is wrong, what happened, and how to replay it.
    fn describe(&self, plan: &Plan, problems: &[String]) -> String {
        let trace = run(&self.scenario, plan, &self.order).trace;
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
struct Tally {
    plans: usize,
    /// Name of the scenario and plan, and the first problem.
    failed: Vec<String>,
    /// Full description of the first failure.
    first: Option<String>,
}

impl Tally {
    fn check(&mut self, reference: &Reference, plans: impl Iterator<Item = Plan>) {
        for plan in plans {
            self.plans += 1;
            let problems = reference.check(&plan);
            if let Some(problem) = problems.first() {
                self.failed.push(format!("{} {plan}: {problem:.300}", reference.scenario.name));
                self.first.get_or_insert_with(|| reference.describe(&plan, &problems));
            }
        }
    }

    /// Fails if a plan has failed. Returns the number of plans.
    fn end(self) -> usize {
        let Self { plans, failed, first } = self;
        if let Some(first) = first {
            panic!("{} of {plans} plans fail:\n  {}\n\nThe first {first}", failed.len(), failed.join("\n  "));
        }
        println!("{plans} plans");
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

/// Everything that can happen to one write.
const FATES: [Fate; 9] = [
    Fate::Before,
    Fate::After,
    Fate::BeforeAway,
    Fate::AfterAway,
    Fate::Lost,
    Fate::Refused,
    Fate::Late(1),
    Fate::Late(2),
    Fate::Late(1_000),
];

/// Variable with the number of random plans for a long run, which also has every fate of every write.
const PLANS: &str = "REMORA_CUTS_PLANS";
/// One of so many writes is cut in a short run, each with another fate.
const SHORT: usize = 3;

/// Returns the number of random plans. `None` in a short run.
fn long_run() -> Option<usize> {
    std::env::var(PLANS).ok().map(|plans| plans.parse().unwrap_or_else(|_| panic!("{PLANS}={plans:?} is no number")))
}

/// Lists the scenarios of a run. Those with large objects take long.
fn scenarios() -> impl Iterator<Item = Reference> {
    let is_long = long_run().is_some();
    scenario::all().into_iter().filter(move |scenario| is_long || !scenario.is_large).map(Reference::of)
}

#[test]
fn cut_around_any_write_ends_as_undisturbed_run() {
    let mut tally = Tally::default();
    for (number, reference) in scenarios().enumerate() {
        let writes = 1..=reference.seen.writes;
        let fate = |write: usize, fate: usize| Plan::of([Fault::Write(write, FATES[fate % FATES.len()])]);
        if long_run().is_some() {
            let fates = 0..FATES.len();
            tally.check(&reference, writes.flat_map(|write| fates.clone().map(move |number| fate(write, number))));
        } else {
            let some = writes.skip(number % SHORT).step_by(SHORT);
            tally.check(&reference, some.map(|write| fate(write, write / SHORT + number)));
        }
    }
    tally.end();
}

#[test]
fn watches_that_lag_or_break_end_as_undisturbed_run() {
    let mut tally = Tally::default();
    for (number, reference) in scenarios().enumerate() {
        let crash = Fault::Write(2 + number % 3, FATES[number % 2]);
        let sights = [Sight::Lags, Sight::Relists, Sight::Stale(1 + number % 4)];
        let restarted = sights.into_iter().map(|sight| Plan::of([crash, Fault::Process(2, sight)]));
        let first = [Sight::Lags, Sight::Relists].into_iter().map(|sight| Plan::of([Fault::Process(1, sight)]));
        let plans: Vec<Plan> = first.chain(restarted).collect();
        let count = if long_run().is_some() { plans.len() } else { 1 };
        tally.check(&reference, plans.into_iter().cycle().skip(number).take(count));
    }
    tally.end();
}

/// Plans that failed once, each for a cause of its own.
const MENDED: [&str; 5] = [
    // The status of a process that had lost its lease arrived late, and stayed.
    "secret-history w7=late1000",
    // So did its copy in a Secret.
    "secret-history w5=late1000",
    // The answer to the write of a copy was lost.
    "secret-history w5=lost",
    "secret-shards w31=lost",
    // The first core arrived late, and replaced its successor.
    "small w1=late1000",
];

#[test]
fn plans_that_failed_once_end_as_undisturbed_run() {
    let mut tally = Tally::default();
    for text in MENDED {
        let (name, plan) = text.split_once(' ').unwrap();
        let scenario = scenario::all().into_iter().find(|scenario| scenario.name == name).unwrap();
        tally.check(&Reference::of(scenario), std::iter::once(plan.parse().unwrap()));
    }
    tally.end();
}

#[test]
fn late_events_repeat_no_write_and_end_as_undisturbed_run() {
    let mut tally = Tally::default();
    for reference in scenarios() {
        tally.check(&reference, std::iter::once(Plan::of([Fault::Process(1, Sight::Lags)])));
    }
    tally.end();
}

#[test]
fn random_plans_end_as_undisturbed_run() {
    let references: Vec<Reference> = scenarios().collect();
    let mut tally = Tally::default();
    for seed in 1..=long_run().unwrap_or(20) {
        let mut random = fastrand::Rng::with_seed(seed as u64);
        let reference = &references[random.usize(..references.len())];
        let mut faults: Vec<Fault> = (0..random.usize(1..4))
            .map(|_| Fault::Write(random.usize(1..=reference.seen.writes), FATES[random.usize(..FATES.len())]))
            .collect();
        if random.bool() {
            let sight = [Sight::Lags, Sight::Relists, Sight::Stale(random.usize(1..5))][random.usize(..3)];
            faults.push(Fault::Process(random.usize(1..4), sight));
        }
        let plan = Plan { seed: seed as u64, ..Plan::of(faults) };
        tally.check(reference, std::iter::once(plan));
    }
    tally.end();
}

/// Runs the plan of the variable, and prints what happened. Without the variable, the test runs one plan.
#[test]
fn replayed_plan_ends_as_undisturbed() {
    let text = std::env::var(REPLAY).unwrap_or_else(|_| "small w1=after".to_owned());
    let (name, plan) = text.split_once(' ').unwrap_or((&text, ""));
    let scenario = scenario::all().into_iter().find(|scenario| scenario.name == name);
    let reference = Reference::of(scenario.unwrap_or_else(|| panic!("no scenario is named {name:?}")));
    let plan = plan.parse().unwrap_or_else(|problem| panic!("{problem}"));
    let problems = reference.check(&plan);
    let described = reference.describe(&plan, &problems);
    assert!(problems.is_empty(), "{described}");
    println!("{described}");
}
