//! Ignoring case as Python does: the text's character is made lower before it is looked for, and a few letters that
//! share their capital stand for each other (`i` and `ı`, `s` and `ſ`).

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex_syntax::hir::{ClassUnicode, ClassUnicodeRange};

use super::work::{Spent, Work};

/// Python's simple lower case. The one character whose full lower case is longer has `i` as its simple one.
fn lower(c: char) -> char {
    let mut lower = c.to_lowercase();
    lower.next().unwrap_or(c)
}

/// Simple upper case; characters whose upper case is longer have none.
fn upper(c: char) -> Option<char> {
    let mut upper = c.to_uppercase();
    upper.next().filter(|_| upper.next().is_none())
}

struct Folds {
    /// (capital, its lower case), for every character that changes, in order.
    changes: Vec<(char, char)>,
    /// The same the other way round, in the order of lower cases.
    capitals: Vec<(char, char)>,
    /// Pairs of lower-case characters that stand for each other, in order.
    equivalents: Vec<(char, char)>,
    /// The characters that change.
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
    // What is its own capital, and that of others, is one of them. Most characters are only their own.
    for (capital, group) in &mut by_upper {
        if lower(*capital) == *capital && upper(*capital) == Some(*capital) {
            group.push(*capital);
        }
    }
    // These share a capital that is longer than one character.
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

/// What the characters of a set lead to, by pairs that are in order.
fn leads_to(set: &ClassUnicode, pairs: &[(char, char)], work: &mut Work) -> Result<Vec<char>, Spent> {
    let mut found = Vec::new();
    for range in set.iter() {
        let start = pairs.partition_point(|(from, _)| *from < range.start());
        let own = pairs.iter().skip(start).take_while(|(from, _)| *from <= range.end()).map(|(_, to)| *to);
        let before = found.len();
        found.extend(own);
        work.take(1 + found.len() - before)?;
    }
    Ok(found)
}

/// The characters that match a set of written ones when case is ignored; `None` if none of these has another case: Python
/// folds a set only then. Classes such as `\d` are not written ones: they are asked of the lower-case character as they
/// are.
pub(super) fn fold(
    written: &ClassUnicode,
    classes: &ClassUnicode,
    ascii: bool,
    work: &mut Work,
) -> Result<Option<ClassUnicode>, Spent> {
    let smaller = leads_to(written, &FOLDS.changes, work)?;
    let capitals = leads_to(written, &FOLDS.capitals, work)?;
    let equivalents = leads_to(written, &FOLDS.equivalents, work)?;
    if smaller.is_empty() && capitals.is_empty() && equivalents.is_empty() {
        return Ok(None);
    }
    if ascii {
        return Ok(Some(fold_ascii(written, classes)));
    }
    // What is looked for, in lower case.
    let mut wanted = written.clone();
    work.take(FOLDS.changed.ranges().len())?;
    wanted.difference(&FOLDS.changed);
    wanted.union(&collect(smaller.into_iter()));
    let equivalents = leads_to(&wanted, &FOLDS.equivalents, work)?;
    wanted.union(&collect(equivalents.into_iter()));
    wanted.union(classes);
    // What becomes that when it is made lower.
    let capitals = leads_to(&wanted, &FOLDS.capitals, work)?;
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

/// The same of one character, whether it has another case or not.
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
