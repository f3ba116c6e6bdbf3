//! Regular expressions: the automaton, the backtracking search and Python's `re` give the same answer.
//!
//! The input is a pattern, a NUL, and the text to search.

use std::hash::{DefaultHasher, Hasher as _};

use remora_compile::document::{self, ConditionValue, Document};
use remora_compile::{Compiled, Options};
use remora_snapshot::{RequestState, Snapshot, TraitValue};
use serde_json::json;

use crate::python::{self, Answer};
use crate::{assert_printable, pipeline};

/// Suffix that does not change the meaning of a pattern and that no automaton can express, so the pattern is searched
/// by backtracking.
const BACKTRACKING: &str = "(?=)";

/// Largest length of an input in bytes that is compared with Python, which has no budget.
const MOST_FOR_PYTHON: usize = 256;

/// Python checks one of this many inputs, which the hash of the input selects. In the replay of the corpus it checks
/// all of them.
const PYTHON_SAMPLE: u64 = if cfg!(feature = "engine") { 8 } else { 1 };

/// Parts of messages that name a limit which only Remora has, and not Python.
const OWN_LIMITS: [&str; 8] = [
    "are compiled",
    "compiles to more than",
    "keeps ",
    "nests ",
    "is not supported",
    "looks too far behind",
    "takes more work",
    "comes after others",
];

/// Outcome of a pattern.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Match,
    NoMatch,
    Refused,
    /// The pattern is beyond a limit of Remora's compiler, or the search is beyond its budget.
    Limit,
}

/// Asserts that the automaton, the backtracking search and Python give the same answer.
pub fn run(data: &[u8]) {
    let data = String::from_utf8_lossy(data);
    let Some((pattern, text)) = data.rsplit_once('\0') else { return };
    let [plain, searched] = outcomes(pattern, text);
    match (&plain, &searched) {
        // An incomplete pattern may become complete with the suffix.
        (Outcome::Refused, _) => {}
        // The backtracking program or its search can be beyond a limit that the automaton does not reach.
        (Outcome::Limit, _) | (_, Outcome::Limit) => {}
        _ => assert_eq!(plain, searched, "{pattern:?} and {pattern:?}{BACKTRACKING} on {text:?}"),
    }
    if !is_sampled(data.as_bytes()) || data.len() > MOST_FOR_PYTHON || !is_of_all_unicodes(&data) {
        return;
    }
    let wanted = match python::matches(pattern, text) {
        Answer::Match => Outcome::Match,
        Answer::NoMatch => Outcome::NoMatch,
        Answer::Refused => Outcome::Refused,
        Answer::Unknown => return,
    };
    if plain != Outcome::Limit {
        assert_eq!(plain, wanted, "{pattern:?} on {text:?}: Remora's answer and Python's");
    }
}

/// Returns the outcome of the pattern itself, and of the pattern with the suffix [`BACKTRACKING`].
fn outcomes(pattern: &str, text: &str) -> [Outcome; 2] {
    let searched = format!("{pattern}{BACKTRACKING}");
    let (compiled, limits) = compile([pattern, &searched]);
    let snapshot = pipeline::read(&compiled);
    let (enabled, undecided) = evaluate(&snapshot, text);
    let refused = |name: &str| {
        let is_about = |subject: &str| subject.contains(&format!("{name:?}"));
        compiled.findings.iter().find(|finding| is_about(&finding.subject) && finding.message.contains("the pattern"))
    };
    let outcome = |name: &str, enabled: bool| match refused(name) {
        Some(finding) if limits(&finding.message) => Outcome::Limit,
        Some(_) => Outcome::Refused,
        None if undecided.as_deref() == Some(name) => {
            let is_about = |subject: &str| subject.contains(&format!("{name:?}"));
            let is_told = compiled
                .findings
                .iter()
                .any(|found| is_about(&found.subject) && found.message.contains("of one search"));
            assert!(is_told, "a search for {pattern:?} is undecided, and no finding says that it may be: {text:?}");
            Outcome::Limit
        }
        None if enabled => Outcome::Match,
        None => Outcome::NoMatch,
    };
    [outcome("plain", enabled[0]), outcome("searched", enabled[1])]
}

fn compile(patterns: [&str; 2]) -> (Compiled, fn(&str) -> bool) {
    thread_local! {
        static DOCUMENT: Document = document();
    }
    let mut document = DOCUMENT.with(Document::clone);
    for (segment, pattern) in document.project.segments.iter_mut().zip(patterns) {
        segment.rules[0].conditions[0].value = ConditionValue::Text(pattern.to_owned());
    }
    let compiled = remora_compile::compile(&pipeline::whole(document), &Options::default()).unwrap();
    compiled.findings.iter().for_each(|finding| assert_printable(&finding.to_string()));
    (compiled, |message: &str| OWN_LIMITS.iter().any(|limit| message.contains(limit)))
}

fn document() -> Document {
    let state = |id: i64, enabled: bool| json!({"feature": {"id": id, "name": format!("f{id}")}, "enabled": enabled});
    let segment = |id: i64, name: &str| {
        json!({"id": id, "name": name, "feature_states": [state(id, true)], "rules": [
            {"type": "ALL", "conditions": [{"operator": "REGEX", "property_": "t", "value": ""}]},
        ]})
    };
    let document = json!({
        "api_key": "k", "feature_states": [state(1, false), state(2, false)],
        "project": {"segments": [segment(1, "plain"), segment(2, "searched")]},
    });
    document::parse(document.to_string().as_bytes()).unwrap()
}

/// Returns which features are enabled, and the first segment that the budget left undecided.
fn evaluate(snapshot: &Snapshot<&[u8]>, text: &str) -> ([bool; 2], Option<String>) {
    let mut request = RequestState::default();
    snapshot.identify(&mut request, "x");
    snapshot.set_trait(&mut request, "t", TraitValue::String(text));
    let flags = snapshot.explain(&mut request);
    let undecided = snapshot.overrun(&request).map(|overrun| overrun.segment.unwrap_or("searched").to_owned());
    ([flags[0].enabled, flags[1].enabled], undecided)
}

fn is_sampled(data: &[u8]) -> bool {
    let mut hasher = DefaultHasher::new();
    hasher.write(data);
    hasher.finish().is_multiple_of(PYTHON_SAMPLE)
}

/// True if all characters have the same properties in every version of Unicode: Python and Remora have different
/// versions.
fn is_of_all_unicodes(text: &str) -> bool {
    text.chars()
        .all(|c| matches!(c, '\0'..='\u{24f}' | 'Α'..='ω' | '\u{660}'..='\u{669}' | '\u{212a}' | 'ẞ' | '日' | '😀'))
}
