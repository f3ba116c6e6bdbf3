//! Ignoring case as Python does: the text's character is made lower before it is looked for, and a few letters that
//! share their capital stand for each other (`i` and `ı`, `s` and `ſ`).

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex_syntax::hir::{ClassUnicode, ClassUnicodeRange};

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
    /// (capital, its lower case), for every character that changes.
    changes: Vec<(char, char)>,
    /// Lower-case characters that stand for each other.
    equivalents: Vec<(char, char)>,
}

static FOLDS: LazyLock<Folds> = LazyLock::new(|| {
    let mut changes = Vec::new();
    let mut by_upper: BTreeMap<char, Vec<char>> = BTreeMap::new();
    for c in '\0'..=char::MAX {
        if lower(c) != c {
            changes.push((c, lower(c)));
        } else if let Some(capital) = upper(c) {
            by_upper.entry(capital).or_default().push(c);
        }
    }
    // These share a capital that is longer than one character.
    let mut groups: Vec<Vec<char>> =
        vec![vec!['\u{390}', '\u{1fd3}'], vec!['\u{3b0}', '\u{1fe3}'], vec!['\u{fb05}', '\u{fb06}']];
    groups.extend(by_upper.into_values().filter(|group| group.len() > 1));
    let pairs = |group: &Vec<char>| -> Vec<(char, char)> {
        group.iter().flat_map(|a| group.iter().filter(move |b| *b != a).map(move |b| (*a, *b))).collect()
    };
    Folds { changes, equivalents: groups.iter().flat_map(pairs).collect() }
});

/// The characters that match a set of written ones when case is ignored. Classes such as `\d` are not written ones: they
/// are asked of the lower-case character as they are.
pub(super) fn fold(written: &ClassUnicode, classes: &ClassUnicode, ascii: bool) -> ClassUnicode {
    if ascii {
        let mut folded = ClassUnicode::new(written.iter().copied());
        folded.union(classes);
        for (capital, small) in ('A'..='Z').zip('a'..='z') {
            if contains(written, capital) || contains(written, small) {
                folded.union(&one(capital));
                folded.union(&one(small));
            }
        }
        return folded;
    }
    let changed = ClassUnicode::new(FOLDS.changes.iter().map(|(c, _)| range(*c)));
    // What is looked for, in lower case.
    let mut wanted = written.clone();
    wanted.difference(&changed);
    wanted.union(&collect(FOLDS.changes.iter().filter(|(c, _)| contains(written, *c)).map(|(_, small)| *small)));
    let equivalents = collect(FOLDS.equivalents.iter().filter(|(a, _)| contains(&wanted, *a)).map(|(_, b)| *b));
    wanted.union(&equivalents);
    wanted.union(classes);
    // What becomes that when it is made lower.
    let capitals = collect(FOLDS.changes.iter().filter(|(_, small)| contains(&wanted, *small)).map(|(c, _)| *c));
    wanted.difference(&changed);
    wanted.union(&capitals);
    wanted
}

/// Does any of these have another case? Python folds a set only then.
pub(super) fn is_cased(written: &ClassUnicode) -> bool {
    FOLDS.changes.iter().any(|(c, small)| contains(written, *c) || contains(written, *small))
        || FOLDS.equivalents.iter().any(|(c, _)| contains(written, *c))
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

pub(super) fn contains(class: &ClassUnicode, c: char) -> bool {
    let at = class.ranges().partition_point(|range| range.end() < c);
    class.ranges().get(at).is_some_and(|range| range.start() <= c)
}
