//! The values of an attribute that the segment index accepts for one segment, in words.

use super::{listed, member, quoted};
use crate::context::Value;
use crate::format::{
    layout::{AttributeIndex, Breakpoint},
    view::View,
};
use crate::values::{
    hash::{MemberKey, NO_MEMBER},
    rows::Span,
    semver::unpack,
};

/// The values of one slot that the index accepts for one segment.
pub(super) struct Accepted<'a> {
    pub(super) view: &'a View<'a>,
    pub(super) index: &'a AttributeIndex,
    /// Bit of the segment.
    pub(super) bit: u64,
}

/// The accepted values of one type.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Values {
    All,
    None,
    /// The phrase follows "must".
    Some(String),
}

impl Values {
    fn phrase(self) -> Option<String> {
        if let Self::Some(phrase) = self { Some(phrase) } else { None }
    }
}

impl Accepted<'_> {
    /// Returns true if the segment requires nothing of the slot.
    pub(super) fn is_everything(&self) -> bool {
        let AttributeIndex { unset, no, yes, unordered, unversioned, unmatched, .. } = *self.index;
        let index = self.index;
        let scales = [
            (index.below_texts, index.texts),
            (index.below_versions, index.versions),
            (index.below_integers, index.integers),
            (index.below_floats, index.floats),
        ];
        [unset, no, yes, unordered, unversioned, unmatched].into_iter().all(|word| self.has(word))
            && scales.into_iter().all(|(below, span)| {
                let points = self.view.breakpoints().range(span.start, span.length);
                self.has(below) && points.iter().all(|row| self.has(row.at) && self.has(row.above))
            })
            && self.members().all(|(_, is_accepted)| is_accepted)
            && self.patterns().is_empty()
    }

    /// Describes the requirement for a value. `own` is the value's key in sets, and the value as JSON.
    pub(super) fn describe(&self, value: Value, own: Option<(MemberKey, &str)>) -> String {
        let by_type = match value {
            Value::Null if self.has(self.index.unset) => return "may be without a value".to_owned(),
            _ if self.refuses_values() => return "must not have a value".to_owned(),
            Value::Null => Values::None,
            Value::True | Value::False => self.booleans(),
            Value::Integer(_) | Value::BigInteger(_) => self.integers(),
            Value::Float(float) if float.get().is_nan() => {
                if self.has(self.index.unordered) {
                    Values::All
                } else {
                    Values::None
                }
            }
            Value::Float(_) => self.floats(),
            Value::Text(_) => Values::All, // the phrases below are about texts
        };
        let mut phrases = match (value, by_type) {
            (Value::Text(_), _) => self.texts(own),
            (_, Values::All) => Vec::new(),
            (_, Values::Some(phrase)) => vec![phrase],
            // No value of the type is accepted, so that the phrases say which other values are.
            (_, Values::None) => match self.sets(own).phrase().or_else(|| self.integers().phrase()) {
                Some(phrase) => vec![phrase],
                None => self.texts(own),
            },
        };
        if !matches!(value, Value::True | Value::False) {
            phrases.extend(self.patterns());
        }
        match (phrases.is_empty(), value) {
            (true, _) if !self.has(self.index.unset) => "must have a value".to_owned(),
            (true, _) => "may have any value of this type".to_owned(),
            (false, Value::Null) => format!("must have a value, and must {}", phrases.join(" and ")),
            (false, _) => format!("must {}", phrases.join(" and ")),
        }
    }

    /// Returns true if no value of any type is accepted.
    fn refuses_values(&self) -> bool {
        [self.booleans(), self.integers(), self.floats()].iter().all(|values| *values == Values::None)
            && (self.sets(None) == Values::None || self.order() == Values::None)
    }

    fn has(&self, word: u64) -> bool {
        word & self.bit != 0
    }

    /// Lists the requirements on texts other than patterns.
    fn texts(&self, own: Option<(MemberKey, &str)>) -> Vec<String> {
        let index = self.index;
        let by_version = self.scale(index.below_versions, index.versions, |point| {
            let ([major, minor, patch], _) = unpack(point);
            format!("version {major}.{minor}.{patch}")
        });
        let is_version_needed = index.versions.length > 0 && !self.has(index.unversioned);
        let by_version = match by_version {
            Values::All => is_version_needed.then(|| "be a version".to_owned()),
            Values::None => Some("not be a version".to_owned()),
            Values::Some(phrase) if is_version_needed => Some(phrase),
            Values::Some(phrase) => Some(format!("{phrase} if it is a version")),
        };
        let never = |values| match values {
            Values::All => None,
            Values::None => Some("not be a text".to_owned()),
            Values::Some(phrase) => Some(phrase),
        };
        [never(self.sets(own)), never(self.order()), by_version].into_iter().flatten().collect()
    }

    /// Returns the texts that the order of texts accepts.
    fn order(&self) -> Values {
        let text = |point| quoted(self.view.text(Span::from_word(point)));
        self.scale(self.index.below_texts, self.index.texts, text)
    }

    fn booleans(&self) -> Values {
        match (self.has(self.index.yes), self.has(self.index.no)) {
            (true, true) => Values::All,
            (true, false) => Values::Some("be true".to_owned()),
            (false, true) => Values::Some("be false".to_owned()),
            (false, false) => Values::None,
        }
    }

    fn integers(&self) -> Values {
        let index = self.index;
        self.scale(index.below_integers, index.integers, |point| point.cast_signed().to_string())
    }

    fn floats(&self) -> Values {
        let index = self.index;
        self.scale(index.below_floats, index.floats, |point| f64::from_bits(point).to_string())
    }

    /// Lists the members of the sets of all segments, and whether the segment accepts each.
    fn members(&self) -> impl Iterator<Item = (MemberKey, bool)> {
        let Span { start, length } = self.index.exact_matches;
        let rows = self.view.exact_matches().range(start, length);
        rows.iter().filter(|row| row.key != NO_MEMBER).map(|row| (row.key, self.has(row.at)))
    }

    fn sets(&self, own: Option<(MemberKey, &str)>) -> Values {
        let accepts_others = self.has(self.index.unmatched);
        let mut keys: Vec<MemberKey> =
            self.members().filter(|(_, is_accepted)| *is_accepted != accepts_others).map(|(key, _)| key).collect();
        keys.sort_unstable();
        let members = || listed(keys.iter().map(|key| member(key, own)), keys.len(), "or");
        match (accepts_others, keys.is_empty()) {
            (true, true) => Values::All,
            (false, true) => Values::None,
            (true, false) => Values::Some(format!("not be {}", members())),
            (false, false) => Values::Some(format!("be {}", members())),
        }
    }

    /// Describes the accepted parts of an order of values.
    fn scale(&self, below: u64, span: Span, point: impl Fn(u64) -> String) -> Values {
        let rows: Vec<Breakpoint> = self.view.breakpoints().range(span.start, span.length).iter().collect();
        // Positions in the order: 0 is below the first point, 1 is at it, 2 is above it, 3 is at the second point.
        let mut positions = vec![self.has(below)];
        positions.extend(rows.iter().flat_map(|row| [self.has(row.at), self.has(row.above)]));
        let (accepted, refused) = (runs(&positions, true), runs(&positions, false));
        let shown =
            |position: usize| rows.get(position.saturating_sub(1) / 2).map_or_else(String::new, |row| point(row.point));
        let last = positions.len() - 1;
        let is_point = |(from, to): &(usize, usize)| from == to && from % 2 == 1;
        if refused.is_empty() {
            return Values::All;
        }
        if accepted.is_empty() {
            return Values::None;
        }
        if refused.iter().all(is_point) {
            let points = refused.iter().map(|(at, _)| shown(*at));
            return Values::Some(format!("not be {}", listed(points, refused.len(), "or")));
        }
        let parts = accepted.iter().map(|run| {
            let (from, to) = *run;
            let low = if from % 2 == 1 { "at least" } else { "more than" };
            let (high, end) = if to % 2 == 1 { ("at most", to) } else { ("less than", to + 1) };
            match (from == 0, to == last) {
                _ if is_point(run) => shown(from),
                (true, _) => format!("{high} {}", shown(end)),
                (_, true) => format!("{low} {}", shown(from)),
                _ => format!("{low} {} and {high} {}", shown(from), shown(end)),
            }
        });
        Values::Some(format!("be {}", listed(parts, accepted.len(), "or")))
    }

    /// Lists the requirements on patterns. Their texts are not stored.
    fn patterns(&self) -> Vec<String> {
        let Some(dfa) = self.index.combined_dfa.checked_sub(1).and_then(|row| self.view.combined_dfas().get(row))
        else {
            return Vec::new();
        };
        let rows = self.view.pattern_predicates().range(dfa.pattern_predicates.start, dfa.pattern_predicates.length);
        let of_segment = rows.iter().filter(|row| row.segment_bit & self.bit != 0);
        let phrases = of_segment.map(|row| {
            let count = |patterns: u64, any: &str| match patterns.count_ones() {
                0 => None,
                1 => Some(format!("{any} a pattern (stored compiled)")),
                count => Some(format!("{any} one of {count} patterns (stored compiled)")),
            };
            let parts = [count(row.found, "contain or match"), count(row.lacking, "lack")];
            let phrase = parts.into_iter().flatten().collect::<Vec<_>>().join(" or ");
            if row.negated == 0 { phrase } else { format!("not {phrase}") }
        });
        phrases.collect()
    }
}

/// Returns the runs of positions with this answer: first and last position.
fn runs(positions: &[bool], wanted: bool) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for (position, _) in positions.iter().enumerate().filter(|(_, is)| **is == wanted) {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == position => *last = position,
            _ => runs.push((position, position)),
        }
    }
    runs
}
