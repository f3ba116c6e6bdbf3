//! Import circles: modules of one folder that import each other, directly or through others.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use super::imports::{Imports, levels};

/// Modules that all reach each other by imports.
#[derive(Debug)]
pub(crate) struct Circle {
    /// Folder of the modules. Empty for the root of the crate.
    pub(crate) within: String,
    members: BTreeSet<String>,
    /// One import for each pair of members that has imports.
    ties: Vec<String>,
}

impl Circle {
    pub(crate) fn members(&self) -> String {
        self.members.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
    }
}

impl fmt::Display for Circle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let separator = if self.within.is_empty() { "" } else { ": " };
        write!(f, "{}{separator}{}", self.within, self.members())?;
        self.ties.iter().try_for_each(|tie| write!(f, "\n  {tie}"))
    }
}

pub(crate) fn circles(imports: &Imports) -> Vec<Circle> {
    let mut circles = Vec::new();
    for (level, ties) in levels(imports) {
        let mut next: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (from, to) in ties.keys() {
            next.entry(from).or_default().insert(to);
        }
        let reached: BTreeMap<&str, BTreeSet<&str>> = next.keys().map(|from| (*from, reach(from, &next))).collect();
        let mut told = BTreeSet::new();
        for (from, there) in &reached {
            if !there.contains(from) || told.contains(from) {
                continue;
            }
            let back = |other: &&&str| reached.get(**other).is_some_and(|there| there.contains(from));
            let members: BTreeSet<&str> = there.iter().filter(back).copied().collect();
            told.extend(members.iter().copied());
            let within =
                |(from, to): &(String, String)| members.contains(from.as_str()) && members.contains(to.as_str());
            circles.push(Circle {
                within: level.join("::"),
                ties: ties
                    .iter()
                    .filter(|(pair, _)| within(pair))
                    .filter_map(|(_, lines)| lines.first().cloned())
                    .collect(),
                members: members.into_iter().map(str::to_owned).collect(),
            });
        }
    }
    circles
}

/// Returns all modules that a module reaches by one import or more.
fn reach<'a>(from: &'a str, next: &BTreeMap<&'a str, BTreeSet<&'a str>>) -> BTreeSet<&'a str> {
    let (mut reached, mut waiting) = (BTreeSet::new(), vec![from]);
    while let Some(module) = waiting.pop() {
        for to in next.get(module).into_iter().flatten() {
            if reached.insert(*to) {
                waiting.push(to);
            }
        }
    }
    reached
}
