//! Upper bound of the steps that a backtracking search for a pattern takes.
//!
//! The bound is a polynomial in the length of the text. It counts the ways in which each part of the pattern can match:
//! what follows a part is tried once for each of its ways. A repetition whose next match and whose end begin with
//! different characters has one way; all others have as many as the text has characters, and a repetition of a part
//! with several ways has exponentially many.

use std::sync::LazyLock;

use regex_syntax::hir::{ClassUnicode, ClassUnicodeRange};
use remora_snapshot::backtrack::{MAX_STEPS, MAX_TRAIL};

use super::node::{Assertion, Mode, Node};
use super::step_budget::{OutOfSteps, StepBudget};

/// Length in characters of the text that the bound is about: the longest identifier and trait value that a sidecar
/// accepts.
pub(crate) const TEXT: u32 = 2_000;

/// Maximum number of sets of a [`First`]. With more, any character may be next.
const MOST_SETS: usize = 64;

/// Maximum number of copies of a part with several ways. With more, its ways are not bounded.
const MOST_COPIES: u32 = 4;

/// The only character that can come after the places that match at a line's end.
static NEWLINE: LazyLock<ClassUnicode> = LazyLock::new(|| ClassUnicode::new([ClassUnicodeRange::new('\n', '\n')]));

/// Number of characters or entries per step ([`remora_snapshot::backtrack`]).
const A_STEP: f64 = 8.0;

/// Returns the most steps of a search through [`TEXT`] characters. Infinite if a search can exceed a limit of the engine.
///
/// # Errors
/// The budget has too few steps.
pub(super) fn most_steps(node: &Node, budget: &mut StepBudget) -> Result<f64, OutOfSteps> {
    let bound = Counter { budget }.of(node, &First::end())?;
    let steps = bound.total().at_text();
    let is_within = steps <= f64::from(MAX_STEPS) && bound.trail.at_text() <= MAX_TRAIL as f64;
    Ok(if is_within { steps } else { f64::INFINITY })
}

/// Polynomial in the number of characters, lowest coefficient first. A product of a higher degree is infinite.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Poly([f64; 4]);

impl Poly {
    const ZERO: Self = Self([0.0; 4]);
    const ONE: Self = Self::constant(1.0);
    const INFINITE: Self = Self::constant(f64::INFINITY);

    const fn constant(value: f64) -> Self {
        Self([value, 0.0, 0.0, 0.0])
    }

    /// One per `characters`, and one more.
    fn per(characters: f64) -> Self {
        Self([1.0, 1.0 / characters, 0.0, 0.0])
    }

    fn at_text(self) -> f64 {
        self.0.iter().rev().fold(0.0, |sum, coefficient| sum * f64::from(TEXT) + coefficient)
    }

    fn plus(self, other: Self) -> Self {
        let mut sum = self;
        sum.0.iter_mut().zip(other.0).for_each(|(own, other)| *own += other);
        sum
    }

    fn plus_constant(self, value: f64) -> Self {
        self.plus(Self::constant(value))
    }

    fn times(self, other: Self) -> Self {
        let mut product = Self::ZERO;
        for (one, own) in self.0.iter().enumerate().filter(|(_, own)| **own > 0.0) {
            for (two, other) in other.0.iter().enumerate().filter(|(_, other)| **other > 0.0) {
                match product.0.get_mut(one + two) {
                    Some(place) => *place += own * other,
                    None => return Self::INFINITE,
                }
            }
        }
        product
    }

    /// The larger one for every length of text.
    fn max(self, other: Self) -> Self {
        let mut most = self;
        most.0.iter_mut().zip(other.0).for_each(|(own, other)| *own = own.max(other));
        most
    }

    /// The sum over `count` parts that share the text: each has its constant, and together no more of the rest than one
    /// that has the whole text.
    fn shared_by(self, count: Self) -> Self {
        let [constant, ..] = self.0;
        let mut rest = self;
        rest.0[0] = 0.0;
        count.times(Self::constant(constant)).plus(rest)
    }
}

/// Bounds of a part of a pattern, for one visit of it.
#[derive(Clone, Copy, Debug)]
struct Bound {
    /// Number of times that a search goes beyond the first character of what follows.
    ways: Poly,
    /// Number of times that a search begins with what follows.
    tries: Poly,
    /// Steps of each visit, until the part fails at its first character. All steps, if the part consumes nothing.
    first: Poly,
    /// Further steps of a visit that gets beyond the first character, over all its ways.
    steps: Poly,
    /// Entries in the trail along one way.
    trail: Poly,
}

impl Bound {
    /// A part with one way, and with these steps of each visit.
    fn once(first: Poly) -> Self {
        Self { ways: Poly::ONE, tries: Poly::ONE, first, steps: Poly::ZERO, trail: Poly::ZERO }
    }

    fn total(&self) -> Poly {
        self.first.plus(self.steps)
    }

    /// Steps of a part that runs on its own, with the entries of the trail that its end passes over.
    fn alone(&self) -> Poly {
        self.total().plus(self.trail.times(Poly::constant(1.0 / A_STEP))).plus_constant(4.0)
    }
}

/// Characters that may come next.
#[derive(Clone, Debug)]
struct First<'a> {
    /// `None`: any character, or none.
    sets: Option<Vec<&'a ClassUnicode>>,
    /// True if nothing follows, so that the search succeeds at once.
    is_end: bool,
}

impl<'a> First<'a> {
    fn end() -> Self {
        Self { sets: None, is_end: true }
    }

    fn any() -> Self {
        Self { sets: None, is_end: false }
    }

    fn of(sets: Vec<&'a ClassUnicode>) -> Self {
        Self { sets: Some(sets), is_end: false }
    }

    fn or(self, other: &Self) -> Self {
        match (self.sets, &other.sets) {
            (Some(mut sets), Some(others)) if sets.len() + others.len() <= MOST_SETS => {
                sets.extend(others);
                Self::of(sets)
            }
            _ => Self::any(),
        }
    }
}

struct Counter<'w> {
    budget: &'w mut StepBudget,
}

impl Counter<'_> {
    fn of<'a>(&mut self, node: &'a Node, follow: &First<'a>) -> Result<Bound, OutOfSteps> {
        self.budget.take(1)?;
        Ok(match node {
            Node::Set(_) => Bound::once(Poly::constant(2.0)),
            Node::Assert(_) => Bound::once(Poly::constant(4.0)),
            Node::Concat(nodes) => self.concat(nodes, follow)?,
            Node::Alternate(nodes) => self.alternate(nodes, follow)?,
            Node::Repeat { node, mode: Mode::Possessive, min, max } => {
                let inner = self.of(node, &First::end())?;
                let count = self.count(node, *min, *max)?;
                let each = inner.alone().plus_constant(2.0);
                let trail = inner.trail.plus_constant(2.0).shared_by(count);
                let steps = each.shared_by(count).plus(trail.times(Poly::constant(1.0 / A_STEP))).plus_constant(4.0);
                Bound { steps, trail, ..Bound::once(inner.first.plus_constant(6.0)) }
            }
            Node::Repeat { node, min, max, .. } => self.repeat(node, *min, *max, follow)?,
            Node::Group { node, .. } => {
                let inner = self.of(node, follow)?;
                Bound {
                    steps: inner.steps.plus(inner.tries).plus_constant(1.0),
                    first: inner.first.plus_constant(1.0),
                    trail: inner.trail.plus_constant(2.0),
                    ..inner
                }
            }
            Node::Look { behind, node, .. } => {
                let inner = self.of(node, &First::end())?;
                let moved = if *behind { f64::from(TEXT) / A_STEP } else { 0.0 };
                Bound { trail: inner.trail, ..Bound::once(inner.alone().plus_constant(moved)) }
            }
            Node::Atomic(node) => {
                let inner = self.of(node, &First::end())?;
                let first = inner.first.plus_constant(4.0);
                Bound { steps: inner.alone(), trail: inner.trail, ..Bound::once(first) }
            }
            // A character has up to four bytes, and is compared alone where case is ignored.
            Node::Backreference { .. } => Bound::once(Poly([2.0, 4.0, 0.0, 0.0])),
            Node::Conditional { yes, no, .. } => {
                let (yes, no) = (self.of(yes, follow)?, self.of(no, follow)?);
                Bound {
                    ways: yes.ways.max(no.ways),
                    tries: yes.tries.max(no.tries),
                    steps: yes.steps.max(no.steps).plus(yes.tries),
                    first: yes.first.max(no.first).plus_constant(2.0),
                    trail: yes.trail.max(no.trail),
                }
            }
        })
    }

    fn concat<'a>(&mut self, nodes: &'a [Node], follow: &First<'a>) -> Result<Bound, OutOfSteps> {
        // For each node: the text that may follow it, and if the search always succeeds from the node on. If it always
        // succeeds after the node, the node may count as the last one.
        let (mut follows, mut next, mut succeeds) = (Vec::with_capacity(nodes.len()), follow.clone(), follow.is_end);
        for node in nodes.iter().rev() {
            let after = if succeeds { First::end() } else { next.clone() };
            succeeds &= is_infallible(node);
            follows.push((after, succeeds));
            next = self.first(node, &next)?;
        }
        let mut whole = Bound::once(Poly::ZERO);
        let mut is_at_first = true;
        for (node, (follow, succeeds)) in nodes.iter().zip(follows.iter().rev()) {
            self.budget.take(node.size())?;
            let part = self.of(node, follow)?;
            let can_be_empty = node.can_be_empty();
            let (ways, tries) = if *succeeds { (Poly::ONE, Poly::ONE) } else { (whole.ways, whole.tries) };
            let visits = if follow.is_end && is_decided_by_first(node) { Poly::ONE } else { ways };
            if is_at_first {
                whole.first = whole.first.plus(part.first);
                is_at_first = can_be_empty;
            }
            whole.steps = whole.steps.plus(tries.times(part.first)).plus(visits.times(part.steps));
            // Visits that fail at the first character of a part that can be empty go on behind it.
            whole.tries = ways.times(part.tries).plus(if can_be_empty { tries } else { Poly::ZERO });
            whole.ways = ways.times(part.ways);
            whole.trail = whole.trail.plus(part.trail);
        }
        Ok(whole)
    }

    fn alternate<'a>(&mut self, nodes: &'a [Node], follow: &First<'a>) -> Result<Bound, OutOfSteps> {
        let is_one_way = are_distinct_texts(nodes) || self.begin_differently(nodes)?;
        let zero = Bound { ways: Poly::ZERO, tries: Poly::ZERO, ..Bound::once(Poly::ZERO) };
        nodes.iter().try_fold(zero, |all, node| {
            let part = self.of(node, follow)?;
            Ok(Bound {
                ways: if is_one_way { all.ways.max(part.ways) } else { all.ways.plus(part.ways) },
                tries: if is_one_way { all.tries.max(part.tries) } else { all.tries.plus(part.tries) },
                // Entering an alternative, and leaving it.
                steps: all.steps.plus(part.steps).plus(part.tries),
                first: all.first.plus(part.first).plus_constant(2.0),
                trail: all.trail.max(part.trail.plus_constant(1.0)),
            })
        })
    }

    fn repeat<'a>(
        &mut self,
        node: &'a Node,
        min: u32,
        max: Option<u32>,
        follow: &First<'a>,
    ) -> Result<Bound, OutOfSteps> {
        if follow.is_end && min <= 1 {
            // Each end is a success, so that no match is tried in another way.
            let each = self.of(node, &First::end())?;
            let count = self.count(node, min, max)?;
            let choices = count.plus_constant(1.0).times(each.first.plus_constant(4.0));
            let trail = each.trail.plus_constant(2.0).shared_by(count);
            let first = each.first.plus_constant(4.0);
            return Ok(Bound { steps: each.steps.shared_by(count).plus(choices), trail, ..Bound::once(first) });
        }
        let own = self.first(node, &First::of(Vec::new()))?;
        let can_be_empty = node.can_be_empty();
        let again = if can_be_empty { First::any() } else { own.clone().or(follow) };
        let each = self.of(node, &again)?;
        let count = self.count(node, min, max)?;
        let is_fixed = max == Some(min);
        if each.ways != Poly::ONE {
            return Ok(several(&each, min, max.filter(|max| *max <= MOST_COPIES)));
        }
        // Between a match and the next one, or the end, stand different characters.
        let ends_alone = !can_be_empty && !follow.is_end && self.are_disjoint(&own, follow)?;
        let tries = each.tries.shared_by(count);
        let ways = if is_fixed || ends_alone { Poly::ONE } else { count.plus_constant(1.0) };
        // Each end of a match leads to the choice between another one and the end.
        let choices = tries.plus_constant(1.0).times(each.first.plus_constant(4.0));
        Ok(Bound {
            ways,
            tries: if is_fixed { each.tries } else { tries.plus_constant(1.0) },
            steps: each.steps.shared_by(count).plus(choices),
            first: each.first.plus_constant(4.0),
            trail: each.trail.plus_constant(2.0).shared_by(count),
        })
    }

    /// The most matches of a repetition.
    fn count(&mut self, node: &Node, min: u32, max: Option<u32>) -> Result<Poly, OutOfSteps> {
        self.budget.take(node.size())?;
        let narrowest = node.width().map_or(0, |(least, _)| least);
        let by_text = Poly::per((narrowest.max(1)) as f64).plus_constant(f64::from(min));
        let Some(max) = max.map(|max| Poly::constant(f64::from(max))) else { return Ok(by_text) };
        // Matches of nothing do not end a repetition that has a maximum.
        Ok(if narrowest == 0 || max.at_text() <= by_text.at_text() { max } else { by_text })
    }

    /// The characters that a node and what follows it begin with.
    fn first<'a>(&mut self, node: &'a Node, follow: &First<'a>) -> Result<First<'a>, OutOfSteps> {
        self.budget.take(1 + follow.sets.as_ref().map_or(0, Vec::len))?;
        Ok(match node {
            Node::Set(class) => First::of(vec![class]),
            Node::Assert(Assertion::End) => First::of(Vec::new()),
            Node::Assert(Assertion::EndOrNewline | Assertion::LineEnd) => First::of(vec![&*NEWLINE]),
            // They consume nothing, so what follows is next.
            Node::Assert(_) | Node::Look { .. } => First { is_end: false, ..follow.clone() },
            Node::Concat(nodes) => {
                let mut next = follow.clone();
                for node in nodes.iter().rev() {
                    next = self.first(node, &next)?;
                }
                next
            }
            Node::Alternate(nodes) => {
                let mut all = First::of(Vec::new());
                for node in nodes {
                    all = all.or(&self.first(node, follow)?);
                }
                all
            }
            Node::Repeat { node, min, .. } => {
                let own = self.first(node, follow)?;
                if *min == 0 { own.or(follow) } else { own }
            }
            Node::Group { node, .. } | Node::Atomic(node) => self.first(node, follow)?,
            Node::Backreference { .. } => First::any(),
            Node::Conditional { yes, no, .. } => self.first(yes, follow)?.or(&self.first(no, follow)?),
        })
    }

    /// True if no two of the nodes begin with the same character, and none can be empty.
    fn begin_differently(&mut self, nodes: &[Node]) -> Result<bool, OutOfSteps> {
        let mut before = First::of(Vec::new());
        for node in nodes {
            self.budget.take(node.size())?;
            let own = self.first(node, &First::of(Vec::new()))?;
            if node.can_be_empty() || !self.are_disjoint(&before, &own)? {
                return Ok(false);
            }
            before = before.or(&own);
        }
        Ok(true)
    }

    fn are_disjoint(&mut self, one: &First<'_>, other: &First<'_>) -> Result<bool, OutOfSteps> {
        let (Some(one), Some(other)) = (&one.sets, &other.sets) else { return Ok(false) };
        for own in one {
            for other in other {
                self.budget.take(1 + own.ranges().len() + other.ranges().len())?;
                if overlap(own, other) {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }
}

/// Bounds of a repetition of a part with several ways. `max`: `None` if there are too many copies of it.
fn several(each: &Bound, min: u32, max: Option<u32>) -> Bound {
    let infinite = Poly::INFINITE;
    let Some(max) = max else {
        return Bound { ways: infinite, tries: infinite, steps: infinite, first: infinite, trail: infinite };
    };
    let mut whole = Bound { ways: Poly::ZERO, tries: Poly::ZERO, ..Bound::once(Poly::ZERO) };
    let (mut ways, mut tries) = (Poly::ONE, Poly::ONE);
    for copy in 0..=max {
        if copy >= min {
            whole.ways = whole.ways.plus(ways);
            whole.tries = whole.tries.plus(tries);
        }
        if copy < max {
            whole.steps = whole.steps.plus(tries.times(each.total().plus_constant(4.0)));
            whole.trail = whole.trail.plus(each.trail).plus_constant(2.0);
            (ways, tries) = (ways.times(each.ways), tries.times(each.tries));
        }
    }
    Bound { first: each.first.plus_constant(4.0), ..whole }
}

/// True if the node matches at every place.
fn is_infallible(node: &Node) -> bool {
    match node {
        Node::Repeat { min, node, .. } => *min == 0 || is_infallible(node),
        Node::Concat(nodes) => nodes.iter().all(is_infallible),
        Node::Alternate(nodes) => nodes.iter().any(is_infallible),
        Node::Group { node, .. } | Node::Atomic(node) => is_infallible(node),
        Node::Conditional { yes, no, .. } => is_infallible(yes) && is_infallible(no),
        Node::Set(_) | Node::Assert(_) | Node::Look { .. } | Node::Backreference { .. } => false,
    }
}

/// True if the node matches wherever its first character matches.
fn is_decided_by_first(node: &Node) -> bool {
    match node {
        Node::Set(_) => true,
        Node::Repeat { min, node, .. } => *min <= 1 && is_decided_by_first(node),
        Node::Group { node, .. } => is_decided_by_first(node),
        _ => false,
    }
}

/// True if each node is a text of single characters, and none begins with another: at most one of them matches.
fn are_distinct_texts(nodes: &[Node]) -> bool {
    let text = |node: &Node| -> Option<Vec<char>> {
        let single = |node: &Node| match node {
            Node::Set(class) => match class.ranges() {
                [only] if only.start() == only.end() => Some(only.start()),
                _ => None,
            },
            _ => None,
        };
        match node {
            Node::Concat(nodes) => nodes.iter().map(single).collect(),
            node => single(node).map(|character| vec![character]),
        }
    };
    let Some(mut texts) = nodes.iter().map(text).collect::<Option<Vec<_>>>() else { return false };
    texts.sort_unstable();
    // A text that others begin with comes right before one of them.
    texts.windows(2).all(|pair| matches!(pair, [one, next] if !next.starts_with(one)))
}

/// True if the sets have a character in common.
fn overlap(one: &ClassUnicode, other: &ClassUnicode) -> bool {
    let (mut ones, mut others) = (one.ranges().iter().peekable(), other.ranges().iter().peekable());
    while let (Some(own), Some(other)) = (ones.peek(), others.peek()) {
        if own.end() < other.start() {
            ones.next();
        } else if other.end() < own.start() {
            others.next();
        } else {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::super::parse::parse;
    use super::*;

    fn steps(pattern: &str) -> f64 {
        let mut budget = StepBudget::new(1 << 20);
        let parsed = parse(pattern, &mut budget).unwrap();
        most_steps(&parsed.node, &mut budget).unwrap()
    }

    #[test]
    fn patterns_whose_parts_match_in_one_way_have_a_bound() {
        for pattern in [
            r"\bword\b",
            r"(?=.*[A-Z])(?=.*\d)(?=.*[!?]).{8,64}$",
            r"(a+)b\1$",
            r"(?i)(?=x)[a-z0-9._%+-]+@[a-z0-9-]+(?:\.[a-z]{2,8})+$",
            r"(?!-)[a-z0-9-]{1,63}(?<!-)$",
            r"(?=x)[a-z]+(?:,[a-z]+)*$",
            r"(?=x)(?:[a-z]+,)*[a-z]+",
            r"(?!internal-|test-|staging-)\w+",
            r"(?=x)(?>a+)+b",
            r"(?=x)(?:a++)*+b",
            r"(?=x)(?:foo|bar|fob)*x$",
            r"(\d{3})-\1-\1$",
            r"\b.*",
        ] {
            let steps = steps(pattern);
            assert!(steps > 0.0 && steps <= f64::from(MAX_STEPS), "{pattern}: {steps}");
        }
    }

    #[test]
    fn patterns_whose_parts_match_in_several_ways_have_none() {
        for pattern in [
            r"(?=a)(a|a)*b",
            r"(?=a)(?:a+)+b",
            r"(?=a)(?:a*)*b",
            r"(?=a)(?:a|ab|b)*c",
            r"(?=x)(?:\s*,\s*)*$",
            r"\b.*foo.*bar\b.",
            r"(.+).*\1x",
            r"(?=(?:a+)+b)",
            r"(?=a)(?:a?){64}b",
            // The entries of the trail: sixteen groups for each character.
            &format!("(?=a){}a{}*$", "(".repeat(16), ")".repeat(16)),
        ] {
            assert_eq!(steps(pattern), f64::INFINITY, "{pattern}");
        }
    }

    #[test]
    fn bound_takes_no_more_steps_than_it_may() {
        for pattern in [
            format!("(?=a){}a{}", "(".repeat(55), ")*".repeat(55)),
            format!("(?=a)(?:{})*b", (0..900).map(|n| format!("{n}.*")).collect::<Vec<_>>().join("|")),
            format!("(?=a){}b", r"\w*".repeat(2_000)),
        ] {
            let mut budget = StepBudget::new(1 << 26);
            let parsed = parse(&pattern, &mut budget).unwrap();
            let bounded = budget.with_part(1 << 20, 0, |budget| most_steps(&parsed.node, budget));
            assert!(bounded.is_err() || bounded == Ok(f64::INFINITY), "{bounded:?}");
        }
    }
}
