//! Compares Remora's evaluation with Flagsmith's Python engine on random documents and identities. The answers must be
//! equal bit for bit. Without that engine (`differential/python.sh` installs it), the tests are reported as not run.
//!
//! `REMORA_DIFFERENTIAL_SECONDS` sets the duration, `REMORA_DIFFERENTIAL_SEED` repeats a run. The cases in
//! `differential/cases` are differences that were found and fixed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

#[path = "differential/compare.rs"]
mod compare;
#[path = "differential/conditions.rs"]
mod conditions;
#[path = "differential/documents.rs"]
mod documents;
#[path = "differential/json.rs"]
mod json;
#[path = "differential/minimize.rs"]
mod minimize;
#[path = "differential/oracle.rs"]
mod oracle;
#[path = "differential/patterns.rs"]
mod patterns;
#[path = "differential/values.rs"]
mod values;

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::time::{Duration, Instant};

use fastrand::Rng;

use json::Json;
use oracle::{NoAnswer, Oracle};
use remora_snapshot::{Decision, RequestState};

use remora_compile::EnvironmentFlags;
use remora_compile::prune::{Rules, Selection};

/// Number of documents if `REMORA_DIFFERENTIAL_SECONDS` is not set.
const DOCUMENTS: usize = 250;

/// Largest number of requests that the oracle has at a time.
const AHEAD: usize = 3;

fn variable<T: std::str::FromStr>(name: &str) -> Option<T> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name} is {value:?}, which is no number")))
}

/// Returns the differences between both engines. Empty if one of them has no answer.
fn differences(oracle: &mut Oracle, case: &Json) -> Vec<String> {
    if case.get("document").is_none() || case.get("identities").is_none() {
        return Vec::new();
    }
    let usable = |identity: &Json| identity.get("identifier").is_some() && identity.get("traits").is_some();
    if !case.get("identities").unwrap().items().iter().all(usable) {
        return Vec::new();
    }
    let compared = oracle.ask(case).ok().and_then(|theirs| compare::compare(case, &theirs).ok());
    compared.map(|compared| compared.differences).unwrap_or_default()
}

#[test]
fn fixed_differences_stay_fixed() {
    let Some(mut oracle) = Oracle::start() else { return };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/differential/cases");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let case = json::read(&std::fs::read_to_string(&path).unwrap());
        let theirs = oracle.ask(&case).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let compared = compare::compare(&case, &theirs).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert_eq!(compared.undecided, 0, "{}: searches without an end", path.display());
        assert!(compared.differences.is_empty(), "{}:\n{}", path.display(), compared.differences.join("\n"));
        count += 1;
    }
    assert!(count > 0, "there are no cases");
}

/// Python's search for this pattern has no end, so the engine has no answer to the document, but to the next one.
#[test]
fn engine_gives_up_endless_condition() {
    let Some(mut oracle) = Oracle::start() else { return };
    let case = include_str!("differential/cases/possessive-each-time.json");
    let endless = case.replace("(a?)*+b", "(?:a|a)*b").replace("\"aaaa\"", &format!("\"{}\"", "a".repeat(60)));
    oracle.send(&json::read(&endless));
    oracle.send(&json::read(case));
    let no_answer = oracle.receive().unwrap_err();
    assert!(matches!(&no_answer, NoAnswer::GaveUp(condition) if condition.contains("(?:a|a)*b")), "{no_answer}");
    assert_eq!(oracle.receive().unwrap().identities.len(), 17);
}

#[test]
fn random_documents_are_answered_like_flagsmith() {
    let seed: u64 = variable("REMORA_DIFFERENTIAL_SEED").unwrap_or_else(|| fastrand::u64(..));
    let seconds: Option<u64> = variable("REMORA_DIFFERENTIAL_SECONDS");
    eprintln!("REMORA_DIFFERENTIAL_SEED={seed}");
    let mut random = Rng::with_seed(seed);
    let Some(mut oracle) = Oracle::start() else { return };
    let end = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let goes_on = |documents: usize| end.map_or(documents < DOCUMENTS, |end| Instant::now() < end);
    // Compilation takes most of the time, so a long run evaluates more identities per document.
    let identities = if seconds.is_some() { 40..160 } else { 12..28 };
    let (mut documents, mut refused, mut given_up, mut undecided, mut evaluations, mut flags) = (0, 0, 0, 0, 0, 0);
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    let mut waiting: VecDeque<Json> = VecDeque::new();
    loop {
        while waiting.len() < AHEAD && goes_on(documents + waiting.len()) {
            let case = documents::case(&mut random, identities.clone());
            oracle.send(&case);
            waiting.push_back(case);
        }
        let Some(case) = waiting.pop_front() else { break };
        documents += 1;
        let theirs = match oracle.receive() {
            Ok(theirs) => theirs,
            Err(NoAnswer::GaveUp(_)) => {
                given_up += 1;
                continue;
            }
            Err(error) => panic!("seed {seed}: {error}\n{case}"),
        };
        match compare::compare(&case, &theirs) {
            Ok(compared) if compared.differences.is_empty() => undecided += compared.undecided,
            Ok(_) => {
                waiting.iter().for_each(|_| drop(oracle.receive()));
                let case = minimize::minimize(case, |case| !differences(&mut oracle, case).is_empty());
                let differences = differences(&mut oracle, &case).join("\n");
                panic!("seed {seed}, document {documents}: other answers than Flagsmith's to\n{case}\n{differences}");
            }
            Err(_) => refused += 1,
        }
        evaluations += theirs.identities.len();
        for flag in theirs.identities.iter().flat_map(|identity| &identity.flags) {
            flags += 1;
            // The part of the reason that does not depend on the document: STATIC, TARGETING_MATCH, …
            let reason = flag.3.split(';').next().unwrap_or_default();
            *reasons.entry(reason.to_owned()).or_default() += 1;
        }
    }
    eprintln!(
        "{documents} documents ({refused} of them refused, {given_up} given up by Flagsmith's engine), {evaluations} \
         evaluations of {flags} flags ({undecided} of them beyond Remora's budget): all answers are the same; \
         reasons {reasons:?}"
    );
    for reason in ["STATIC", "DEFAULT", "TARGETING_MATCH", "SPLIT", "ERROR"] {
        assert!(reasons.contains_key(reason), "no answer had the reason {reason}: {reasons:?}");
    }
    assert!(refused * 10 <= documents, "{refused} of {documents} documents were refused");
    assert!(undecided * 1000 <= evaluations, "{undecided} of {evaluations} evaluations exhausted the budget");
    assert!(given_up * 50 <= documents, "Flagsmith's engine gave up {given_up} of {documents} documents");
}

/// Pruning features does not change the answers of the others, and an identity override that is dropped has no effect.
#[test]
fn pruning_keeps_answers_of_remaining_flags() {
    let seed: u64 = variable("REMORA_DIFFERENTIAL_SEED").unwrap_or_else(|| fastrand::u64(..));
    eprintln!("REMORA_DIFFERENTIAL_SEED={seed}");
    let mut random = Rng::with_seed(seed);
    let (mut kept, mut dropped) = (0, 0);
    for _ in 0..DOCUMENTS / 2 {
        let case = documents::case(&mut random, 4..12);
        let mut document = case.get("document").unwrap().clone();
        let globs = documents::globs(&mut random, &document);
        let (drop_server_only, drop_identity_overrides) = (random.bool(), random.bool());
        let [include, exclude] = &globs;
        let rules = Rules::compile(&Selection { include, exclude, drop_server_only, drop_identity_overrides }).unwrap();
        let pruned = compare::compiled(&document.to_string(), &rules, EnvironmentFlags::Plain);
        if drop_identity_overrides {
            document.set("identity_overrides", Json::List(Vec::new()));
        }
        let (Ok(pruned), Ok(whole)) =
            (pruned, compare::compiled(&document.to_string(), &Rules::default(), EnvironmentFlags::Plain))
        else {
            continue;
        };
        let (pruned, whole) = (compare::snapshot(&pruned), compare::snapshot(&whole));
        let mut request = RequestState::default();
        for identity in case.get("identities").unwrap().items() {
            compare::identify(&whole, &mut request, identity);
            let answers = compare::flags(&whole, &mut request);
            compare::identify(&pruned, &mut request, identity);
            let left = compare::flags(&pruned, &mut request);
            for flag in &left {
                assert!(
                    answers.contains(flag),
                    "seed {seed}: {flag:?} was not {answers:?}\n{globs:?}\n{document}\n{identity}"
                );
            }
            kept += left.len();
            dropped += answers.len() - left.len();
        }
    }
    assert!(kept > 0 && dropped > 0, "{kept} answers were kept and {dropped} dropped: nothing was proved");
}

/// The segments, requirements and percentages of an explanation give the result of the evaluation.
#[test]
fn explanation_adds_up_to_evaluation() {
    let seed: u64 = variable("REMORA_DIFFERENTIAL_SEED").unwrap_or_else(|| fastrand::u64(..));
    eprintln!("REMORA_DIFFERENTIAL_SEED={seed}");
    let mut random = Rng::with_seed(seed);
    let (mut matching, mut failing, mut hashed) = (0, 0, 0);
    let (mut explained, mut undecided) = (0, 0);
    for _ in 0..DOCUMENTS {
        let case = documents::case(&mut random, 4..12);
        let document = case.get("document").unwrap();
        let Ok(compiled) = compare::compiled(&document.to_string(), &Rules::default(), EnvironmentFlags::AllSegments)
        else {
            continue;
        };
        let snapshot = compare::snapshot(&compiled);
        let mut request = RequestState::default();
        for identity in case.get("identities").unwrap().items() {
            compare::identify(&snapshot, &mut request, identity);
            let results = snapshot.explain(&mut request);
            let is_cyclic = results.iter().any(|result| result.reason.starts_with("ERROR"));
            // A random pattern of nested repetitions may be beyond the budget.
            if snapshot.overrun(&request).is_some() {
                undecided += 1;
                continue;
            }
            explained += 1;
            for result in &results {
                let context = || format!("seed {seed}: {result:?}\n{document}\n{identity}");
                if let Some(percentage) = result.percentage {
                    assert_eq!(result.hash.as_ref().unwrap().percentage, percentage, "{}", context());
                    hashed += 1;
                }
                let segments = snapshot.explain_segments(&mut request, &result.feature);
                for segment in &segments {
                    // The order of all evaluations decides where a cycle is cut, and an explanation has another order.
                    if !is_cyclic {
                        assert_eq!(segment.trace.is_match(), segment.is_match, "{segment:#?}\n{}", context());
                    }
                    let checks = segment.trace.requirements.iter().chain(&segment.trace.conditions);
                    hashed += checks.filter(|check| check.hash.is_some()).count();
                    *if segment.is_match { &mut matching } else { &mut failing } += 1;
                }
                let strongest = segments.iter().find(|segment| segment.is_match).map(|segment| segment.rank);
                match &result.decision {
                    Decision::IdentityOverride => {}
                    _ if is_cyclic => {}
                    Decision::Default => assert_eq!(strongest, None, "{}", context()),
                    Decision::Segment { rank, .. } => assert_eq!(strongest, Some(*rank), "{}", context()),
                }
            }
        }
    }
    assert!(undecided * 10 < explained, "{undecided} explanations are beyond the budget, {explained} within it");
    assert!(matching > 100 && failing > 100 && hashed > 100, "{matching} match, {failing} do not, {hashed} are hashed");
}
