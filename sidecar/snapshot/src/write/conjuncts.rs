//! What a segment asks of single slots, whatever else it asks: the part of its rules that the index answers. The rest is
//! left to its program.

use std::cmp::Ordering;

use crate::format::{
    layout::Operator,
    model::{self, Comparand, Comparison, Condition, Junction, Rule, Test},
};
use crate::values::{
    hash::{Fingerprint, Token},
    number::Integer,
    semver::{self, Packed},
};

/// Larger sets stay in programs: there a member is not stored once a block of segments.
const LARGEST_SET: usize = 64;

/// Something that must hold of one slot: one of some questions, or none of them.
pub(super) struct Conjunct<'a> {
    pub(super) property: usize,
    pub(super) family: Family,
    pub(super) questions: Vec<Question<'a>>,
    pub(super) negated: bool,
    /// Where it came from.
    conditions: &'a [Condition],
}

impl Conjunct<'_> {
    /// The rule that asks the same, for a program.
    pub(super) fn to_rule(&self) -> Rule {
        let junction = if self.negated { Junction::None } else { Junction::Any };
        Rule { junction, conditions: self.conditions.to_vec(), rules: Vec::new() }
    }
}

/// How texts are looked up to answer a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    /// By their order.
    Texts,
    /// By their order as versions.
    Versions,
    /// By their token: whether they equal something, or one of a set.
    Sets,
    /// By walking through them.
    Patterns,
}

/// A question whose answer depends on where a value stands among a few others.
pub(super) enum Question<'a> {
    /// Is there a value, or is there none?
    Set(bool),
    /// How does it compare?
    Compare(Operator, Places<'a>),
    /// Is it one of these?
    In(Members),
    /// Is this found in it?
    Has(Pattern<'a>),
    /// Is it a text in which this is not found?
    Lacks(Pattern<'a>),
}

/// What is looked for in a text.
#[derive(Debug, Clone, Copy)]
pub(super) enum Pattern<'a> {
    /// These bytes, anywhere in a text; numbers have none.
    Part(&'a [u8]),
    /// What an automaton matches, also in a number.
    Automaton(&'a [u8]),
}

impl<'a> Pattern<'a> {
    /// Whether it is an automaton, and its bytes.
    fn parts(self) -> (bool, &'a [u8]) {
        match self {
            Self::Part(part) => (false, part),
            Self::Automaton(program) => (true, program),
        }
    }

    /// Number of bytes.
    pub(super) fn length(self) -> usize {
        self.parts().1.len()
    }
}

impl Ord for Pattern<'_> {
    /// Conditions with one pattern share its bytes, which can be a hundred thousand: those are not compared.
    fn cmp(&self, other: &Self) -> Ordering {
        let ((kind, bytes), (other_kind, other_bytes)) = (self.parts(), other.parts());
        kind.cmp(&other_kind)
            .then_with(|| if std::ptr::eq(bytes, other_bytes) { Ordering::Equal } else { bytes.cmp(other_bytes) })
    }
}

impl PartialOrd for Pattern<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Pattern<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Pattern<'_> {}

/// A set, by the type of what is looked for in it: a number is in it if its digits are.
pub(super) struct Members {
    pub(super) tokens: Vec<Token>,
    pub(super) integers: Vec<i64>,
}

/// What a comparison compares with, by the type of the left side.
pub(super) struct Places<'a> {
    pub(super) token: Token,
    pub(super) boolean: bool,
    pub(super) integer: Option<i64>,
    pub(super) float: Option<f64>,
    pub(super) text: &'a str,
    pub(super) version: Option<Packed>,
}

/// Something that must hold, or must not, of one slot, and is computed from its value.
pub(super) struct Computed {
    pub(super) property: usize,
    pub(super) of: Computation,
    pub(super) negated: bool,
}

/// What is computed.
#[derive(Clone, Copy)]
pub(super) enum Computation {
    /// Its remainder.
    Modulo { divisor: f64, remainder: f64 },
    /// Its hash.
    Percentage { threshold: f64 },
}

/// Takes out of a segment's rules what the index can answer.
pub(super) struct Taking<'a> {
    pub(super) fingerprint: Fingerprint,
    pub(super) conjuncts: Vec<Conjunct<'a>>,
    pub(super) computed: Vec<Computed>,
}

impl<'a> Taking<'a> {
    /// Takes from rules all of which must match, and returns what is left of them.
    pub(super) fn take(&mut self, rules: &'a [Rule]) -> Vec<Rule> {
        rules.iter().filter_map(|rule| self.take_of(rule)).collect()
    }

    /// Of one rule that must match; nothing left of it: the index has it all.
    fn take_of(&mut self, rule: &'a Rule) -> Option<Rule> {
        let (conditions, rules) = match rule.junction {
            Junction::All => (self.take_each(&rule.conditions, false), self.take(&rule.rules)),
            Junction::None => (self.take_each(&rule.conditions, true), rule.rules.clone()),
            Junction::Any => {
                let conditions =
                    if self.take_as_one(&rule.conditions, false) { Vec::new() } else { rule.conditions.clone() };
                // One of one is all of them.
                let rules = if rule.rules.len() == 1 { self.take(&rule.rules) } else { rule.rules.clone() };
                (conditions, rules)
            }
        };
        let is_left = !conditions.is_empty() || !rules.is_empty();
        is_left.then_some(Rule { junction: rule.junction, conditions, rules })
    }

    fn take_each(&mut self, conditions: &'a [Condition], negated: bool) -> Vec<Condition> {
        conditions.chunks(1).filter(|one| !self.take_as_one(one, negated)).flatten().cloned().collect()
    }

    /// Conditions of which one must hold, or none: if all ask the same slot, and texts are looked up alike.
    fn take_as_one(&mut self, conditions: &'a [Condition], negated: bool) -> bool {
        let Some(property) = conditions.first().map(|condition| condition.property) else { return false };
        if let [Condition { test, .. }] = conditions
            && let Some(of) = computation(test)
        {
            self.computed.push(Computed { property, of, negated });
            return true;
        }
        let mut family = None;
        let mut questions = Vec::new();
        for condition in conditions {
            let Some((of, question)) = self.question(&condition.test) else { return false };
            if condition.property != property {
                return false;
            }
            family = match (family, of) {
                (family, of) if of.is_none() || family == of => family,
                (None, of) => of,
                // What equals something may as well be found by its order.
                (Some(Family::Texts), Some(Family::Sets)) if is_equality(&question) => family,
                (Some(Family::Sets), Some(Family::Texts)) if questions.iter().all(is_equality) => of,
                _ => return false,
            };
            questions.push(question);
        }
        let family = family.unwrap_or(Family::Texts);
        // Patterns are looked for in what is set anyway.
        if family == Family::Patterns && questions.iter().any(|question| matches!(question, Question::Set(_))) {
            return false;
        }
        self.conjuncts.push(Conjunct { property, family, questions, negated, conditions });
        true
    }

    /// A test as the index can answer it; without a family, every text has the same answer.
    fn question(&self, test: &'a Test) -> Option<(Option<Family>, Question<'a>)> {
        match test {
            Test::IsSet => Some((None, Question::Set(true))),
            Test::IsNotSet => Some((None, Question::Set(false))),
            // Every percentage is below.
            Test::Percentage { threshold } if *threshold >= 100.0 => Some((None, Question::Set(true))),
            Test::In(members) if members.len() <= LARGEST_SET => {
                Some((Some(Family::Sets), Question::In(self.members(members)?)))
            }
            Test::Contains(comparand) if !comparand.semver => {
                Some((Some(Family::Patterns), Question::Has(Pattern::Part(comparand.text.as_bytes()))))
            }
            Test::NotContains(comparand) => {
                Some((Some(Family::Patterns), Question::Lacks(Pattern::Part(comparand.text.as_bytes()))))
            }
            Test::Matches(model::Pattern::Automaton(program)) => {
                Some((Some(Family::Patterns), Question::Has(Pattern::Automaton(program))))
            }
            Test::Compare(comparison, comparand) => {
                let family = match comparison {
                    _ if comparand.semver => Family::Versions,
                    Comparison::Equal | Comparison::NotEqual => Family::Sets,
                    _ => Family::Texts,
                };
                Some((Some(family), Question::Compare(Operator::of(*comparison), self.places(comparand)?)))
            }
            _ => None,
        }
    }

    /// Sets with integers beyond 64 bits stay in programs.
    fn members(&self, members: &model::Members) -> Option<Members> {
        let mut integers = Vec::new();
        for member in members.iter() {
            match Integer::parse(member) {
                Some(Integer::Small(small)) if small.to_string() == member => integers.push(small),
                Some(Integer::Big { .. }) => return None,
                _ => {}
            }
        }
        let tokens = members.iter().map(|member| self.fingerprint.token(member.as_bytes())).collect();
        Some(Members { tokens, integers })
    }

    /// Versions that are more than three small numbers, integers beyond 64 bits and what is not a number stay in programs.
    fn places(&self, comparand: &'a Comparand) -> Option<Places<'a>> {
        let version = semver::pack(comparand.text.as_bytes()).filter(|_| comparand.semver);
        let integer = match comparand.integer.as_deref().map(Integer::parse) {
            None => None,
            Some(Some(Integer::Small(small))) => Some(small),
            Some(_) => return None,
        };
        let is_placed = version.is_some() == comparand.semver && !comparand.float.is_some_and(f64::is_nan);
        is_placed.then_some(Places {
            token: self.fingerprint.token(comparand.text.as_bytes()),
            boolean: comparand.boolean,
            integer,
            float: comparand.float,
            text: &comparand.text,
            version,
        })
    }
}

/// Is it answered by what a value equals, and not by a set?
fn is_equality(question: &Question<'_>) -> bool {
    matches!(question, Question::Set(_) | Question::Compare(Operator::Equal | Operator::NotEqual, _))
}

/// What a test computes. That every percentage is at most 100 need not be.
fn computation(test: &Test) -> Option<Computation> {
    match test {
        Test::Modulo { divisor, remainder } => Some(Computation::Modulo { divisor: *divisor, remainder: *remainder }),
        Test::Percentage { threshold } if *threshold < 100.0 => Some(Computation::Percentage { threshold: *threshold }),
        _ => None,
    }
}
