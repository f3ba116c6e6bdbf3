//! Predicates: the part of a segment's rules that the index evaluates, because it must hold of a single slot independent
//! of other rules. The segment's program has the rest.

use std::cmp::Ordering;

use crate::format::{
    layout::Operator,
    model::{self, Comparand, Comparison, Condition, Junction, Rule, Test},
};
use crate::values::{
    hash::{Fingerprint, MemberKey},
    number::Integer,
    semver::{self, Packed},
};

/// Maximum number of members of an indexed set. Larger sets stay in programs, which do not repeat members per block of
/// segments.
const LARGEST_SET: usize = 64;

/// Predicate of a segment on one slot: at least one of some tests holds, or none of them if negated.
pub(super) struct Predicate<'a> {
    pub(super) property: usize,
    pub(super) lookup: Lookup,
    pub(super) tests: Vec<ValueTest<'a>>,
    pub(super) negated: bool,
    /// Conditions that the predicate replaces.
    conditions: &'a [Condition],
}

impl Predicate<'_> {
    /// Returns the equivalent rule, for a program.
    pub(super) fn to_rule(&self) -> Rule {
        let junction = if self.negated { Junction::None } else { Junction::Any };
        Rule { junction, conditions: self.conditions.to_vec(), rules: Vec::new() }
    }
}

/// The kind of look-up that answers a test for a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lookup {
    /// Order of texts.
    Texts,
    /// Order of versions.
    Versions,
    /// Member key: equality with a text or a member of a set.
    Sets,
    /// Search for patterns.
    Patterns,
}

/// A test that the position of a value among a few other values answers.
pub(super) enum ValueTest<'a> {
    /// The slot has a value (`true`), or has none (`false`).
    Set(bool),
    /// The comparison with these values holds.
    Compare(Operator, ComparedValue<'a>),
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
    pub(super) member_keys: Vec<MemberKey>,
    pub(super) integers: Vec<i64>,
}

/// The compared value of a condition, by the type of the left side.
pub(super) struct ComparedValue<'a> {
    pub(super) key: MemberKey,
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
pub(super) struct Extraction<'a> {
    pub(super) fingerprint: Fingerprint,
    pub(super) predicates: Vec<Predicate<'a>>,
    pub(super) computed: Vec<Computed>,
}

impl<'a> Extraction<'a> {
    /// Extracts from rules that must all match, and returns the remaining rules.
    pub(super) fn extract(&mut self, rules: &'a [Rule]) -> Vec<Rule> {
        rules.iter().filter_map(|rule| self.extract_rule(rule)).collect()
    }

    /// Extracts from one rule that must match. `None`: the index evaluates the complete rule.
    fn extract_rule(&mut self, rule: &'a Rule) -> Option<Rule> {
        let (conditions, rules) = match rule.junction {
            Junction::All => (self.extract_each(&rule.conditions, false), self.extract(&rule.rules)),
            Junction::None => (self.extract_each(&rule.conditions, true), rule.rules.clone()),
            Junction::Any => {
                let conditions =
                    if self.extract_together(&rule.conditions, false) { Vec::new() } else { rule.conditions.clone() };
                // With one sub-rule, any and all are the same.
                let rules = if rule.rules.len() == 1 { self.extract(&rule.rules) } else { rule.rules.clone() };
                (conditions, rules)
            }
        };
        let remains = !conditions.is_empty() || !rules.is_empty();
        remains.then_some(Rule { junction: rule.junction, conditions, rules })
    }

    fn extract_each(&mut self, conditions: &'a [Condition], negated: bool) -> Vec<Condition> {
        conditions.chunks(1).filter(|one| !self.extract_together(one, negated)).flatten().cloned().collect()
    }

    /// Extracts conditions of which one must hold, or none if negated. All must read the same slot and use the same
    /// kind of look-up.
    fn extract_together(&mut self, conditions: &'a [Condition], negated: bool) -> bool {
        let Some(property) = conditions.first().map(|condition| condition.property) else { return false };
        if let [Condition { test, .. }] = conditions
            && let Some(of) = computation(test)
        {
            self.computed.push(Computed { property, of, negated });
            return true;
        }
        let mut lookup = None;
        let mut tests = Vec::new();
        for condition in conditions {
            let Some((of, test)) = self.test(&condition.test) else { return false };
            if condition.property != property {
                return false;
            }
            lookup = match (lookup, of) {
                (lookup, of) if of.is_none() || lookup == of => lookup,
                (None, of) => of,
                // An equality can also be answered by the order of texts.
                (Some(Lookup::Texts), Some(Lookup::Sets)) if is_equality(&test) => lookup,
                (Some(Lookup::Sets), Some(Lookup::Texts)) if tests.iter().all(is_equality) => of,
                _ => return false,
            };
            tests.push(test);
        }
        let lookup = lookup.unwrap_or(Lookup::Texts);
        // Patterns are searched in set values only, so a test for a set value does not fit.
        if lookup == Lookup::Patterns && tests.iter().any(|test| matches!(test, ValueTest::Set(_))) {
            return false;
        }
        self.predicates.push(Predicate { property, lookup, tests, negated, conditions });
        true
    }

    /// Returns a condition's test as a test of the index. Without a look-up, every text has the same answer.
    fn test(&self, test: &'a Test) -> Option<(Option<Lookup>, ValueTest<'a>)> {
        match test {
            Test::IsSet => Some((None, ValueTest::Set(true))),
            Test::IsNotSet => Some((None, ValueTest::Set(false))),
            // Every percentage is below 100.
            Test::Percentage { threshold } if *threshold >= 100.0 => Some((None, ValueTest::Set(true))),
            Test::In(members) if members.len() <= LARGEST_SET => {
                Some((Some(Lookup::Sets), ValueTest::In(self.members(members)?)))
            }
            Test::Contains(comparand) if !comparand.semver => {
                Some((Some(Lookup::Patterns), ValueTest::Has(Pattern::Part(comparand.text.as_bytes()))))
            }
            Test::NotContains(comparand) => {
                Some((Some(Lookup::Patterns), ValueTest::Lacks(Pattern::Part(comparand.text.as_bytes()))))
            }
            Test::Matches(model::Pattern::Automaton(program)) => {
                Some((Some(Lookup::Patterns), ValueTest::Has(Pattern::Automaton(program))))
            }
            Test::Compare(comparison, comparand) => {
                let lookup = match comparison {
                    _ if comparand.semver => Lookup::Versions,
                    Comparison::Equal | Comparison::NotEqual => Lookup::Sets,
                    _ => Lookup::Texts,
                };
                Some((Some(lookup), ValueTest::Compare(Operator::of(*comparison), self.compared(comparand)?)))
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
        let member_keys = members.iter().map(|member| self.fingerprint.member_key(member.as_bytes())).collect();
        Some(Members { member_keys, integers })
    }

    /// Returns the compared values. `None`: versions that are not three small numbers, integers beyond 64 bits, and NaN
    /// stay in programs.
    fn compared(&self, comparand: &'a Comparand) -> Option<ComparedValue<'a>> {
        let version = semver::pack(comparand.text.as_bytes()).filter(|_| comparand.semver);
        let integer = match comparand.integer.as_deref().map(Integer::parse) {
            None => None,
            Some(Some(Integer::Small(small))) => Some(small),
            Some(_) => return None,
        };
        let is_placed = version.is_some() == comparand.semver && !comparand.float.is_some_and(f64::is_nan);
        is_placed.then_some(ComparedValue {
            key: self.fingerprint.member_key(comparand.text.as_bytes()),
            boolean: comparand.boolean,
            integer,
            float: comparand.float,
            text: &comparand.text,
            version,
        })
    }
}

/// Returns true if equality of the value answers the test, without a set.
fn is_equality(test: &ValueTest<'_>) -> bool {
    matches!(test, ValueTest::Set(_) | ValueTest::Compare(Operator::Equal | Operator::NotEqual, _))
}

/// Returns the computation of a test. A threshold of 100 needs none: every percentage is below it.
fn computation(test: &Test) -> Option<Computation> {
    match test {
        Test::Modulo { divisor, remainder } => Some(Computation::Modulo { divisor: *divisor, remainder: *remainder }),
        Test::Percentage { threshold } if *threshold < 100.0 => Some(Computation::Percentage { threshold: *threshold }),
        _ => None,
    }
}
