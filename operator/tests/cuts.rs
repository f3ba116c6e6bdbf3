//! Tests the controller under plans of cuts: crashes around each write, lost answers, writes that arrive late, and watches
//! that lag or break. Everything is simulated except the controller and the sidecar's reader, so each plan replays.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test that panics has failed, as it should"
)]

#[path = "cuts/after.rs"]
mod after;
#[path = "cuts/cluster.rs"]
mod cluster;
#[path = "cuts/documents.rs"]
mod documents;
#[path = "cuts/lease.rs"]
mod lease;
#[path = "cuts/life.rs"]
mod life;
#[path = "cuts/network.rs"]
mod network;
#[path = "cuts/plan.rs"]
mod plan;
#[path = "cuts/process.rs"]
mod process;
#[path = "cuts/reference.rs"]
mod reference;
#[path = "cuts/replica.rs"]
mod replica;
#[path = "cuts/run.rs"]
mod run;
#[path = "cuts/scenario.rs"]
mod scenario;
#[path = "cuts/server.rs"]
mod server;
#[path = "cuts/volumes.rs"]
mod volumes;

use plan::{Fate, Fault, Plan, Sight};
use reference::{REPLAY, Reference, Tally};

/// All fates of a write.
const FATES: [Fate; 19] = [
    Fate::Before,
    Fate::After,
    Fate::BeforeAway,
    Fate::AfterAway,
    Fate::Lost,
    Fate::Refused,
    Fate::Late(1),
    Fate::Late(2),
    Fate::Late(1_000),
    Fate::Overlap(1),
    Fate::Overlap(3),
    Fate::Unfenced(1),
    Fate::Unfenced(3),
    Fate::Paused(2),
    Fate::Handback(2),
    Fate::Jump,
    Fate::Unrenewed,
    Fate::Partitioned,
    Fate::Deleted,
];

/// All ways in which a process can see changes wrongly or late.
const SIGHTS: [Sight; 5] = [Sight::Lags, Sight::Relists, Sight::Skips, Sight::Swaps, Sight::Drops];

/// Largest number of writes between the two cuts of a pair: the second one hits the recovery from the first.
const PAIR: usize = 6;

/// Variable with the number of random plans for a long run, which also has every fate of every write.
const PLANS: &str = "REMORA_CUTS_PLANS";
/// A short run cuts one of this many writes, each with another fate.
const SHORT: usize = 3;

/// Returns the number of random plans. `None` in a short run.
fn long_run() -> Option<usize> {
    std::env::var(PLANS).ok().map(|plans| plans.parse().unwrap_or_else(|_| panic!("{PLANS}={plans:?} is no number")))
}

/// Returns the number of threads that run the plans of a test: all cores in a long run. The tests of a short run have a
/// thread each.
fn threads() -> usize {
    if long_run().is_none() { 1 } else { std::thread::available_parallelism().map_or(1, usize::from) }
}

/// Lists the scenarios of a run. Those with large objects take long.
fn scenarios() -> impl Iterator<Item = Reference> {
    let is_long = long_run().is_some();
    scenario::all().into_iter().filter(move |scenario| is_long || !scenario.is_large).map(Reference::of)
}

#[test]
fn cut_around_any_write_ends_as_undisturbed_run() {
    let references: Vec<Reference> = scenarios().collect();
    let mut plans = Vec::new();
    for (number, reference) in references.iter().enumerate() {
        let writes = 1..=reference.seen.writes;
        let fate = |write: usize, fate: usize| Plan::of([Fault::Write(write, FATES[fate % FATES.len()])]);
        if long_run().is_some() {
            let fates = 0..FATES.len();
            println!("{}: {} writes", reference.scenario.name, reference.seen.writes);
            let all = writes.flat_map(|write| fates.clone().map(move |number| fate(write, number)));
            plans.extend(all.map(|plan| (reference, plan)));
        } else {
            let some = writes.skip(number % SHORT).step_by(SHORT);
            plans.extend(some.map(|write| (reference, fate(write, write / SHORT + number))));
        }
    }
    Tally::of(&plans, threads()).end();
}

#[test]
fn watches_that_lag_or_break_end_as_undisturbed_run() {
    let references: Vec<Reference> = scenarios().collect();
    let mut plans = Vec::new();
    for (number, reference) in references.iter().enumerate() {
        let crash = Fault::Write(2 + number % 3, FATES[number % 2]);
        let sights = SIGHTS.into_iter().chain([Sight::Stale(1 + number % 4)]);
        let all = sights.map(|sight| Plan { seed: number as u64, ..Plan::of([crash, Fault::Process(2, sight)]) });
        let all: Vec<Plan> = all.collect();
        let count = if long_run().is_some() { all.len() } else { 1 };
        plans.extend(all.into_iter().cycle().skip(number).take(count).map(|plan| (reference, plan)));
    }
    Tally::of(&plans, threads()).end();
}

/// Plans that failed once, each for a cause of its own.
const MENDED: [&str; 26] = [
    // The status of a process that had lost its lease arrived late, and stayed.
    "secret-history w8=late1000",
    // So did its copy in a Secret.
    "secret-history w6=late1000",
    // The answer to the write of a copy was lost.
    "secret-history w6=lost",
    "secret-shards w32=lost",
    // The copy was not written again, so that nobody could pin its revision.
    "pin w5=lost",
    // A core arrived late whose kind of objects was gone.
    "carrier-shards w27=after-away,w32=late1000@236",
    // A file of an environment that had shrunk meanwhile arrived late.
    "secret-shards w15=late1000,w12=before-away@313",
    // The first publication was cut off before it had a core, and the next version did not find its rest.
    "secret-upgrade w3=before-away,w4=before@89",
    // The first core arrived late, and replaced its successor.
    "small w1=late1000",
    // Two publications as Secrets were cut off before the status said so, and the kind changed back.
    "carrier-shards w8=after-away,w12=before-away@62",
    // Such a publication had no core, whose record names its copies of the revision before.
    "carrier-shards w7=after-away,w11=before-away@62",
    // The last process ended after the script, and nobody replaced it.
    "small w13=before-away,w14=after-away@153",
    // The publication after the next one forgot the revisions whose copies two processes did not delete.
    "secret-shards w48=before-away,w54=late1@666",
    "secret-shards w44=after-away,w39=before-away,w59=late2@47",
    "secret-history w11=after-away,w16=before-away@890",
    // A Secret arrived late that a later process had found and deleted: a copy, one of the other kind, and the core.
    "secret-history w6=late1000,w9=late2@193",
    "carrier-shards w13=late1000,w19=late1000@1320",
    "carrier-shards w18=before-away,w23=before,w8=late1000,p3=relists@1453",
    // The core arrived after its metadata was read: its content was archived as the revision before.
    "secret-parts w12=late1@1033",
    // The watch lagged behind the core, whose content replaced the copy of another revision.
    "pin w11=late1000,w14=late1,w13=after,p2=stale2@1756",
    // A copy that an ended process had made was found, and not deleted with the others.
    "carrier-shards w8=before-away,w10=late1000@3109",
    // A deletion of a paused process left a number missing before a Secret that the next process had created again.
    "carrier-shards w28=overlap3,w32=overlap3,w29=after-away@3043",
    // Without a fence, both processes published, the one with an old list the older revision.
    "rotation w2=before-away,w11=overlap3,p3=stale4@3493",
    "rotation w2=before-away,w11=unfenced3,p3=stale4@3493",
    // The connections of a process without a fence broke, so that it noticed the loss of its lease late.
    "shards w51=unfenced1,w53=partitioned,w38=deleted@86",
    // The notification of an ended process arrived late, and replaced that of a newer revision.
    "upgrade w21=unfenced3,w23=late1000@13",
];

#[test]
fn plans_that_failed_once_end_as_undisturbed_run() {
    let plans: Vec<(Reference, Plan)> = MENDED
        .into_iter()
        .map(|text| {
            let (name, plan) = text.split_once(' ').unwrap();
            let scenario = scenario::all().into_iter().find(|scenario| scenario.name == name).unwrap();
            (Reference::of(scenario), plan.parse().unwrap())
        })
        .collect();
    let plans: Vec<(&Reference, Plan)> = plans.iter().map(|(reference, plan)| (reference, plan.clone())).collect();
    Tally::of(&plans, threads()).end();
}

#[test]
fn late_events_repeat_no_write_and_end_as_undisturbed_run() {
    let references: Vec<Reference> = scenarios().collect();
    let mut plans = Vec::new();
    for (number, reference) in references.iter().enumerate() {
        let other = SIGHTS[1 + number % (SIGHTS.len() - 1)];
        let sights: &[Sight] = if long_run().is_some() { &SIGHTS } else { &[Sight::Lags, other] };
        let plan = |sight: &Sight| Plan { seed: number as u64, ..Plan::of([Fault::Process(1, *sight)]) };
        plans.extend(sights.iter().map(|sight| (reference, plan(sight))));
    }
    Tally::of(&plans, threads()).end();
}

#[test]
fn pairs_of_cuts_end_as_undisturbed_run() {
    let references: Vec<Reference> = scenarios().collect();
    let plan = |seed: usize| {
        let mut random = fastrand::Rng::with_seed(seed as u64);
        let reference = &references[seed % references.len()];
        let first = random.usize(1..=reference.seen.writes);
        let writes = [first, first + random.usize(1..=PAIR)];
        let faults = writes.map(|write| Fault::Write(write, FATES[random.usize(..FATES.len())]));
        (reference, Plan { seed: seed as u64, ..Plan::of(faults) })
    };
    let plans: Vec<_> = (1..=long_run().unwrap_or(30)).map(plan).collect();
    Tally::of(&plans, threads()).end();
}

#[test]
fn random_plans_end_as_undisturbed_run() {
    let references: Vec<Reference> = scenarios().collect();
    let plan = |seed: usize| {
        let mut random = fastrand::Rng::with_seed(seed as u64);
        let reference = &references[random.usize(..references.len())];
        let mut faults: Vec<Fault> = (0..random.usize(1..4))
            .map(|_| Fault::Write(random.usize(1..=reference.seen.writes), FATES[random.usize(..FATES.len())]))
            .collect();
        if random.bool() {
            let stale = Sight::Stale(random.usize(1..5));
            let sight = SIGHTS.get(random.usize(..=SIGHTS.len())).copied().unwrap_or(stale);
            faults.push(Fault::Process(random.usize(1..4), sight));
        }
        (reference, Plan { seed: seed as u64, ..Plan::of(faults) })
    };
    let plans: Vec<_> = (1..=long_run().unwrap_or(20)).map(plan).collect();
    Tally::of(&plans, threads()).end();
}

/// Runs the plan of the variable, and prints what happened. Without the variable, the test runs one plan.
#[test]
fn replayed_plan_ends_as_undisturbed() {
    let text = std::env::var(REPLAY).unwrap_or_else(|_| "small w1=after".to_owned());
    let (name, plan) = text.split_once(' ').unwrap_or((&text, ""));
    let scenario = scenario::all().into_iter().find(|scenario| scenario.name == name);
    let reference = Reference::of(scenario.unwrap_or_else(|| panic!("no scenario is named {name:?}")));
    let plan = plan.parse().unwrap_or_else(|problem| panic!("{problem}"));
    let checked = reference.check(&plan);
    let described = reference.describe(&plan, &checked);
    assert!(checked.problems.is_empty(), "{described}");
    println!("{described}");
}
