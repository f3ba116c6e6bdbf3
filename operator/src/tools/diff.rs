//! `remora-operator diff`: prints the differences between two revisions.

mod load;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;

use remora_snapshot::{Description, FeatureDescription, Snapshot, VariantDescription};

/// Print the differences between two revisions of an environment.
#[derive(Debug, clap::Args)]
pub struct Diff {
    /// Earlier revision: a directory that `remora-operator compile` wrote, a mounted snapshot volume, or a file with
    /// the output of `kubectl get configmap NAME… -o json`.
    #[arg(value_name = "A")]
    before: PathBuf,
    /// Later revision, in any of the same forms.
    #[arg(value_name = "B")]
    after: PathBuf,
    /// Environment to compare. Required if a directory holds several environments.
    #[arg(long, value_name = "NAME")]
    environment: Option<String>,
}

impl Diff {
    /// Writes the differences to `out`, one per line.
    ///
    /// # Errors
    /// If one of the two is not a snapshot.
    pub fn run(&self, out: &mut impl Write) -> anyhow::Result<()> {
        let before = load::snapshot(&self.before, self.environment.as_deref())?;
        let after = load::snapshot(&self.after, self.environment.as_deref())?;
        writeln!(out, "revision {} -> {}", before.revision(), after.revision())?;
        if before.revision() == after.revision() {
            writeln!(out, "the revisions are the same")?;
            return Ok(());
        }
        differences(&before, &after).iter().try_for_each(|line| writeln!(out, "{line}"))?;
        Ok(())
    }
}

/// Lists the differences between two snapshots, one per line. Empty if both have the same revision.
#[must_use]
pub fn differences(before: &Snapshot<Vec<u8>>, after: &Snapshot<Vec<u8>>) -> Vec<String> {
    let mut lines = Vec::new();
    if before.revision() == after.revision() {
        return lines;
    }
    let same_environment = before.is_of_the_environment_of(after);
    if !same_environment {
        lines.push("the revisions belong to two environments: their client keys differ".to_owned());
    }
    let (old, new) = (before.describe(), after.describe());
    let described = lines.len();
    lines.extend(flags(&old, &new));
    lines.extend(segments(&old, &new));
    lines.extend(identities(before, after, same_environment));
    if lines.len() == described {
        let rest = "flags and segments are equal: the revisions differ in conditions of segments, keys, or notes";
        lines.push(rest.to_owned());
    }
    lines
}

/// Lists the differences between the features of both revisions.
fn flags(old: &Description, new: &Description) -> Vec<String> {
    let pairs = pairs(&old.features, &new.features, |feature| feature.name.clone());
    let lines = pairs.into_iter().map(|(name, (before, after))| match (before, after) {
        (None, Some(after)) => vec![format!("+ flag {name}: {}", describe_default(after))],
        (Some(before), None) => vec![format!("- flag {name}: {}", describe_default(before))],
        (Some(before), Some(after)) => changes(&name, before, after),
        (None, None) => Vec::new(),
    });
    lines.flatten().collect()
}

fn changes(name: &str, before: &FeatureDescription, after: &FeatureDescription) -> Vec<String> {
    let mut lines = Vec::new();
    if describe_default(before) != describe_default(after) {
        lines.push(format!("~ flag {name}: {} -> {}", describe_default(before), describe_default(after)));
    }
    let outcomes = |feature: &FeatureDescription| -> Vec<(String, String)> {
        let overrides = feature.overrides.iter();
        overrides.map(|own| (own.segment.clone(), outcome(own.enabled, &own.value, &own.variants))).collect()
    };
    let (old, new) = (outcomes(before), outcomes(after));
    for (segment, (before, after)) in pairs(&old, &new, |(segment, _)| segment.clone()) {
        let text = |outcome: Option<&(String, String)>| outcome.map_or("none", |(_, text)| text).to_owned();
        if before != after {
            lines.push(format!("~ flag {name}, segment {segment:?}: {} -> {}", text(before), text(after)));
        }
    }
    let order = |outcomes: &[(String, String)]| outcomes.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    if lines.is_empty() && order(&old) != order(&new) {
        lines.push(format!("~ flag {name}: the order of its segment overrides changed"));
    }
    lines
}

fn describe_default(feature: &FeatureDescription) -> String {
    let mut text = outcome(feature.enabled, &feature.value, &feature.variants);
    for (applies, what) in [(feature.server_only, "server keys only"), (feature.unserved, "not served")] {
        if applies {
            text = format!("{text}, {what}");
        }
    }
    text
}

fn outcome(enabled: bool, value: &str, variants: &[VariantDescription]) -> String {
    let mut text = format!("{} {}", if enabled { "on" } else { "off" }, super::shortened(value));
    for variant in variants {
        text = format!("{text}, {} % {}", variant.weight, super::shortened(&variant.value));
    }
    text
}

fn segments(old: &Description, new: &Description) -> Vec<String> {
    let pairs = pairs(&old.segments, &new.segments, |segment| segment.id);
    let lines = pairs.into_values().filter_map(|pair| match pair {
        (None, Some(after)) => Some(format!("+ segment {:?} ({}): {} features", after.name, after.id, after.overrides)),
        (Some(before), None) => {
            Some(format!("- segment {:?} ({}): {} features", before.name, before.id, before.overrides))
        }
        (Some(before), Some(after)) if before != after => Some(format!(
            "~ segment {:?} ({}): {} features -> {:?}, {} features",
            before.name, before.id, before.overrides, after.name, after.overrides
        )),
        _ => None,
    });
    lines.collect()
}

/// Counts the identities whose overrides differ. Snapshots store only hashes of identifiers, so no identity is named.
fn identities(before: &Snapshot<Vec<u8>>, after: &Snapshot<Vec<u8>>, comparable: bool) -> Option<String> {
    let (old, new) = (before.identities(), after.identities());
    if old == new {
        return None;
    }
    let mut line = format!("~ identities with overrides: {} -> {}", old.len(), new.len());
    if comparable {
        let added = new.keys().filter(|identity| !old.contains_key(*identity)).count();
        let removed = old.keys().filter(|identity| !new.contains_key(*identity)).count();
        let changed = new.iter().filter(|(identity, has)| old.get(*identity).is_some_and(|had| had != *has)).count();
        line += &format!(" ({added} added, {removed} removed, {changed} changed)");
    }
    Some(line)
}

/// Pairs the rows of both lists by key.
fn pairs<'a, T, K: Ord>(
    old: &'a [T],
    new: &'a [T],
    key: impl Fn(&T) -> K,
) -> BTreeMap<K, (Option<&'a T>, Option<&'a T>)> {
    let mut pairs: BTreeMap<K, (Option<&T>, Option<&T>)> = BTreeMap::new();
    for row in old {
        pairs.entry(key(row)).or_default().0 = Some(row);
    }
    for row in new {
        pairs.entry(key(row)).or_default().1 = Some(row);
    }
    pairs
}
