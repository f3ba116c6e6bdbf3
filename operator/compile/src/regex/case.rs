//! Case-insensitive matching as in Python: the text's character is lowered before the comparison, and a few letters
//! with the same capital are equivalent (`i` and `ı`, `s` and `ſ`).

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex_syntax::hir::{ClassUnicode, ClassUnicodeRange};

use super::step_budget::{OutOfSteps, StepBudget};

/// Returns Python's simple lower case. Only one character has a longer full lower case, whose first character `i` is
/// the simple one.
fn lower(c: char) -> char {
    let mut lower = c.to_lowercase();
    lower.next().unwrap_or(c)
}

/// Returns the simple upper case. `None` if the full upper case is longer than one character.
fn upper(c: char) -> Option<char> {
    let mut upper = c.to_uppercase();
    upper.next().filter(|_| upper.next().is_none())
}

struct Folds {
    /// Pairs (capital, its lower case) of all characters that change, in order.
    changes: Vec<(char, char)>,
    /// Pairs (lower case, its capital), in order.
    capitals: Vec<(char, char)>,
    /// Pairs of equivalent lower-case characters, in order.
    equivalents: Vec<(char, char)>,
    /// Characters that change.
    changed: ClassUnicode,
}

static FOLDS: LazyLock<Folds> = LazyLock::new(|| {
    let mut changes = Vec::new();
    let mut by_upper: BTreeMap<char, Vec<char>> = BTreeMap::new();
    for c in '\0'..=char::MAX {
        if lower(c) != c {
            changes.push((c, lower(c)));
        } else if let Some(capital) = upper(c).filter(|capital| *capital != c) {
            by_upper.entry(capital).or_default().push(c);
        }
    }
    // A character that is its own capital and that of others belongs to their group. Most characters are only their own
    // capital.
    for (capital, group) in &mut by_upper {
        if lower(*capital) == *capital && upper(*capital) == Some(*capital) {
            group.push(*capital);
        }
    }
    // These characters share a capital that is longer than one character.
    let mut groups: Vec<Vec<char>> =
        vec![vec!['\u{390}', '\u{1fd3}'], vec!['\u{3b0}', '\u{1fe3}'], vec!['\u{fb05}', '\u{fb06}']];
    groups.extend(by_upper.into_values().filter(|group| group.len() > 1));
    let pairs = |group: &Vec<char>| -> Vec<(char, char)> {
        group.iter().flat_map(|a| group.iter().filter(move |b| *b != a).map(move |b| (*a, *b))).collect()
    };
    let mut capitals: Vec<(char, char)> = changes.iter().map(|(capital, small)| (*small, *capital)).collect();
    capitals.sort_unstable();
    let mut equivalents: Vec<(char, char)> = groups.iter().flat_map(pairs).collect();
    equivalents.sort_unstable();
    let changed = collect(changes.iter().map(|(capital, _)| *capital));
    Folds { changes, capitals, equivalents, changed }
});

/// Returns the characters that the pairs, which are sorted, assign to the characters of a set.
fn mapped(set: &ClassUnicode, pairs: &[(char, char)], budget: &mut StepBudget) -> Result<Vec<char>, OutOfSteps> {
    let mut found = Vec::new();
    for range in set.iter() {
        let start = pairs.partition_point(|(from, _)| *from < range.start());
        let own = pairs.iter().skip(start).take_while(|(from, _)| *from <= range.end()).map(|(_, to)| *to);
        let before = found.len();
        found.extend(own);
        budget.take(1 + found.len() - before)?;
    }
    Ok(found)
}

/// Returns the characters that match a set of written characters when case is ignored. `None` if no written character
/// has another case, because Python folds a set only then. Classes such as `\d` do not count as written: Python tests
/// them with the lower-case character.
pub(super) fn fold(
    written: &ClassUnicode,
    classes: &ClassUnicode,
    ascii: bool,
    budget: &mut StepBudget,
) -> Result<Option<ClassUnicode>, OutOfSteps> {
    let smaller = mapped(written, &FOLDS.changes, budget)?;
    let capitals = mapped(written, &FOLDS.capitals, budget)?;
    let equivalents = mapped(written, &FOLDS.equivalents, budget)?;
    if smaller.is_empty() && capitals.is_empty() && equivalents.is_empty() {
        return Ok(None);
    }
    if ascii {
        return Ok(Some(fold_ascii(written, classes)));
    }
    // Lower-case characters that match.
    let mut wanted = written.clone();
    budget.take(FOLDS.changed.ranges().len())?;
    wanted.difference(&FOLDS.changed);
    wanted.union(&collect(smaller.into_iter()));
    let equivalents = mapped(&wanted, &FOLDS.equivalents, budget)?;
    wanted.union(&collect(equivalents.into_iter()));
    wanted.union(classes);
    // Characters whose lower case matches.
    let capitals = mapped(&wanted, &FOLDS.capitals, budget)?;
    wanted.difference(&FOLDS.changed);
    wanted.union(&collect(capitals.into_iter()));
    Ok(Some(wanted))
}

fn fold_ascii(written: &ClassUnicode, classes: &ClassUnicode) -> ClassUnicode {
    let mut folded = ClassUnicode::new(written.iter().copied());
    folded.union(classes);
    for (capital, small) in ('A'..='Z').zip('a'..='z') {
        if contains(written, capital) || contains(written, small) {
            folded.union(&one(capital));
            folded.union(&one(small));
        }
    }
    folded
}

/// Returns the characters that match one written character when case is ignored, even if it has no other case.
pub(super) fn fold_one(c: char, ascii: bool) -> ClassUnicode {
    if ascii {
        return if c.is_ascii_alphabetic() {
            collect([c.to_ascii_lowercase(), c.to_ascii_uppercase()].into_iter())
        } else {
            one(c)
        };
    }
    let of = |pairs: &'static [(char, char)], c: char| {
        let start = pairs.partition_point(|(from, _)| *from < c);
        pairs.iter().skip(start).take_while(move |(from, _)| *from == c).map(|(_, to)| *to)
    };
    let small = lower(c);
    let mut all = vec![small];
    all.extend(of(&FOLDS.equivalents, small));
    let capitals: Vec<char> = all.iter().flat_map(|small| of(&FOLDS.capitals, *small)).collect();
    all.extend(capitals);
    collect(all.into_iter())
}

fn collect(characters: impl Iterator<Item = char>) -> ClassUnicode {
    ClassUnicode::new(characters.map(range))
}

fn range(c: char) -> ClassUnicodeRange {
    ClassUnicodeRange::new(c, c)
}

pub(super) fn one(c: char) -> ClassUnicode {
    ClassUnicode::new([range(c)])
}

fn contains(class: &ClassUnicode, c: char) -> bool {
    let at = class.ranges().partition_point(|range| range.end() < c);
    class.ranges().get(at).is_some_and(|range| range.start() <= c)
}
