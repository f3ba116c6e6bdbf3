//! Conjuncts: the part of a segment's rules that the index evaluates, because it must hold of a single slot independent
//! of other rules. The segment's program has the rest.

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

/// Maximum number of members of an indexed set. Larger sets stay in programs, which do not repeat members per block of
/// segments.
const LARGEST_SET: usize = 64;

/// A requirement on one slot: at least one of some questions holds, or none of them if negated.
pub(super) struct Conjunct<'a> {
    pub(super) property: usize,
    pub(super) family: Family,
    pub(super) questions: Vec<Question<'a>>,
    pub(super) negated: bool,
    /// Conditions that the conjunct replaces.
    conditions: &'a [Condition],
}

impl Conjunct<'_> {
    /// Returns the equivalent rule, for a program.
    pub(super) fn to_rule(&self) -> Rule {
        let junction = if self.negated { Junction::None } else { Junction::Any };
        Rule { junction, conditions: self.conditions.to_vec(), rules: Vec::new() }
    }
}

/// The kind of look-up that answers a question for a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    /// Order of texts.
    Texts,
    /// Order of versions.
    Versions,
    /// Token: equality with a text or a member of a set.
    Sets,
    /// Search for patterns.
    Patterns,
}

/// A question that the position of a value among a few other values answers.
pub(super) enum Question<'a> {
    /// The slot has a value (`true`), or has none (`false`).
    Set(bool),
    /// The comparison with these values holds.
    Compare(Operator, Places<'a>),
    /// The value is one of these.
    In(Members),
    /// The pattern is found in the value.
    Has(Pattern<'a>),
    /// The value is a text in which the pattern is not found.
    Lacks(Pattern<'a>),
}

/// A pattern that is searched in a text.
#[derive(Debug, Clone, Copy)]
pub(super) enum Pattern<'a> {
    /// These bytes, anywhere in a text. Numbers are not searched.
    Part(&'a [u8]),
    /// An automaton. Numbers are searched, too.
    Automaton(&'a [u8]),
}

impl<'a> Pattern<'a> {
    /// Returns true for an automaton, and the bytes.
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
    /// Compares addresses first: conditions with one pattern share its bytes, up to a hundred thousand of them.
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

/// A set, by the type of the value: a number is a member if its digits are.
pub(super) struct Members {
    pub(super) tokens: Vec<Token>,
    pub(super) integers: Vec<i64>,
}

/// The compared value of a condition, by the type of the left side.
pub(super) struct Places<'a> {
    pub(super) token: Token,
    pub(super) boolean: bool,
    pub(super) integer: Option<i64>,
    pub(super) float: Option<f64>,
    pub(super) text: &'a str,
    pub(super) version: Option<Packed>,
}

/// A requirement on one slot that is computed from its value.
pub(super) struct Computed {
    pub(super) property: usize,
    pub(super) of: Computation,
    pub(super) negated: bool,
}

/// A computation on a value.
#[derive(Clone, Copy)]
pub(super) enum Computation {
    /// Modulo rule.
    Modulo { divisor: f64, remainder: f64 },
    /// Percentage rule.
    Percentage { threshold: f64 },
}

/// Extracts from a segment's rules the part that the index evaluates.
pub(super) struct Taking<'a> {
    pub(super) fingerprint: Fingerprint,
    pub(super) conjuncts: Vec<Conjunct<'a>>,
    pub(super) computed: Vec<Computed>,
}

impl<'a> Taking<'a> {
    /// Extracts from rules that must all match, and returns the remaining rules.
    pub(super) fn take(&mut self, rules: &'a [Rule]) -> Vec<Rule> {
        rules.iter().filter_map(|rule| self.take_of(rule)).collect()
    }

    /// Extracts from one rule that must match. `None`: the index evaluates the complete rule.
    fn take_of(&mut self, rule: &'a Rule) -> Option<Rule> {
        let (conditions, rules) = match rule.junction {
            Junction::All => (self.take_each(&rule.conditions, false), self.take(&rule.rules)),
            Junction::None => (self.take_each(&rule.conditions, true), rule.rules.clone()),
            Junction::Any => {
                let conditions =
                    if self.take_as_one(&rule.conditions, false) { Vec::new() } else { rule.conditions.clone() };
                // With one sub-rule, any and all are the same.
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

    /// Extracts conditions of which one must hold, or none if negated. All must read the same slot and use the same
    /// kind of look-up.
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
                // An equality can also be answered by the order of texts.
                (Some(Family::Texts), Some(Family::Sets)) if is_equality(&question) => family,
                (Some(Family::Sets), Some(Family::Texts)) if questions.iter().all(is_equality) => of,
                _ => return false,
            };
            questions.push(question);
        }
        let family = family.unwrap_or(Family::Texts);
        // Patterns are searched in set values only, so a test for a set value does not fit.
        if family == Family::Patterns && questions.iter().any(|question| matches!(question, Question::Set(_))) {
            return false;
        }
        self.conjuncts.push(Conjunct { property, family, questions, negated, conditions });
        true
    }

    /// Returns a test as a question of the index. Without a family, every text has the same answer.
    fn question(&self, test: &'a Test) -> Option<(Option<Family>, Question<'a>)> {
        match test {
            Test::IsSet => Some((None, Question::Set(true))),
            Test::IsNotSet => Some((None, Question::Set(false))),
            // Every percentage is below 100.
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

    /// Returns the members of a set. `None`: sets with integers beyond 64 bits stay in programs.
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

    /// Returns the compared values. `None`: versions that are not three small numbers, integers beyond 64 bits, and NaN
    /// stay in programs.
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

/// Returns true if equality of the value answers the question, without a set.
fn is_equality(question: &Question<'_>) -> bool {
    matches!(question, Question::Set(_) | Question::Compare(Operator::Equal | Operator::NotEqual, _))
}

/// Returns the computation of a test. A threshold of 100 needs none: every percentage is below it.
fn computation(test: &Test) -> Option<Computation> {
    match test {
        Test::Modulo { divisor, remainder } => Some(Computation::Modulo { divisor: *divisor, remainder: *remainder }),
        Test::Percentage { threshold } if *threshold < 100.0 => Some(Computation::Percentage { threshold: *threshold }),
        _ => None,
    }
}
