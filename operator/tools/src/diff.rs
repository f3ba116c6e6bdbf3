//! `remora-operator diff`: prints the differences between two revisions.

mod load;
#[cfg(test)]
mod tests;
mod text;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;

use remora_snapshot::{FeatureDescription, OverrideDescription, SegmentDescription, Snapshot, VariantDescription};
use serde::Serialize;

use crate::terminal::write_line;

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
        write_line(out, format_args!("revision {} -> {}", before.revision(), after.revision()))?;
        if before.revision() == after.revision() {
            write_line(out, "the revisions are the same")?;
            return Ok(());
        }
        Differences::between(&before, &after).lines().iter().try_for_each(|line| write_line(out, line))?;
        Ok(())
    }
}

/// The differences between two snapshots.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Differences {
    /// True if the snapshots belong to two environments: their client keys differ.
    two_environments: bool,
    /// True if the revisions differ, and flags, segments and identity overrides do not. Then conditions of segments, keys
    /// or notes differ.
    only_conditions: bool,
    /// The flags that differ, by name.
    flags: Vec<FlagChange>,
    /// The segments that differ in their name or in the number of their overrides, by id.
    segments: Vec<SegmentChange>,
    /// The identities with overrides. `None` if all have the same overrides in both snapshots.
    #[serde(skip_serializing_if = "Option::is_none")]
    identity_overrides: Option<IdentityChange>,
}

/// Kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Change {
    Added,
    Removed,
    Changed,
}

/// A flag before and after.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct FlagChange {
    name: String,
    change: Change,
    /// The earlier default. `None` if the flag was added.
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<FlagState>,
    /// The later default. `None` if the flag was removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<FlagState>,
    /// The segments whose override of the flag differs, by name. Empty unless the change is `changed`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    segments: Vec<OverrideChange>,
    /// True if the same segments override the flag in another order of priority.
    #[serde(skip_serializing_if = "is_false")]
    reordered: bool,
}

/// Default of a flag.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct FlagState {
    #[serde(flatten)]
    outcome: Outcome,
    server_only: bool,
    is_served: bool,
}

/// State, value and variants of a default or of an override.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Outcome {
    enabled: bool,
    /// Value as JSON.
    value: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    variants: Vec<Variant>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Variant {
    /// Weight in percent.
    weight: String,
    /// Value as JSON.
    value: String,
}

/// The override of a flag by a segment, before and after.
#[derive(Debug, PartialEq, Serialize)]
struct OverrideChange {
    segment: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<Outcome>,
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<Outcome>,
}

/// A segment before and after.
#[derive(Debug, PartialEq, Serialize)]
struct SegmentChange {
    id: u32,
    change: Change,
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<SegmentState>,
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<SegmentState>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct SegmentState {
    name: String,
    /// Number of features that the segment overrides.
    overrides: u32,
}

/// Number of identities with overrides. Snapshots store only hashes of identifiers, so no identity is named.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct IdentityChange {
    before: usize,
    after: usize,
    /// `None` if the snapshots belong to two environments, so that their hashes cannot be compared.
    #[serde(flatten)]
    counts: Option<IdentityCounts>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct IdentityCounts {
    added: usize,
    removed: usize,
    changed: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(value: &bool) -> bool {
    !value
}

impl Differences {
    /// Compares two snapshots.
    #[must_use]
    pub fn between(before: &Snapshot<Vec<u8>>, after: &Snapshot<Vec<u8>>) -> Self {
        if before.revision() == after.revision() {
            return Self::default();
        }
        let two_environments = !before.is_of_the_environment_of(after);
        let (old, new) = (before.describe(), after.describe());
        let flags = pairs(&old.features, &new.features, |feature| feature.name);
        let flags: Vec<FlagChange> = flags.into_iter().filter_map(|(name, pair)| flag(name, pair)).collect();
        let segments = pairs(&old.segments, &new.segments, |segment| segment.id);
        let segments: Vec<SegmentChange> = segments.into_iter().filter_map(|(id, pair)| segment(id, pair)).collect();
        let identity_overrides = identities(before, after, !two_environments);
        Self {
            two_environments,
            only_conditions: flags.is_empty() && segments.is_empty() && identity_overrides.is_none(),
            flags,
            segments,
            identity_overrides,
        }
    }
}

fn kind<T: Copy>(pair: (Option<T>, Option<T>)) -> Change {
    match pair {
        (None, _) => Change::Added,
        (_, None) => Change::Removed,
        _ => Change::Changed,
    }
}

fn flag(
    name: &str,
    (old, new): (Option<&FeatureDescription<'_>>, Option<&FeatureDescription<'_>>),
) -> Option<FlagChange> {
    let (before, after) = (old.map(FlagState::from), new.map(FlagState::from));
    let (mut segments, mut reordered) = (Vec::new(), false);
    if let (Some(old), Some(new)) = (old, new) {
        let changed = pairs(&old.overrides, &new.overrides, |own| own.segment).into_iter();
        segments.extend(changed.filter(|(_, (before, after))| before != after).map(|(segment, (before, after))| {
            OverrideChange { segment: segment.to_owned(), before: outcome(before), after: outcome(after) }
        }));
        let [before, after] = [old, new].map(|of| of.overrides.iter().map(|own| own.segment));
        reordered = segments.is_empty() && !before.eq(after);
    }
    let is_changed = before != after || reordered || !segments.is_empty();
    let name = name.to_owned();
    is_changed.then(|| FlagChange { name, change: kind((old, new)), before, after, segments, reordered })
}

fn outcome(own: Option<&OverrideDescription<'_>>) -> Option<Outcome> {
    own.map(|own| Outcome::of(own.enabled, &own.value, &own.variants))
}

impl From<&FeatureDescription<'_>> for FlagState {
    fn from(feature: &FeatureDescription<'_>) -> Self {
        Self {
            outcome: Outcome::of(feature.enabled, &feature.value, &feature.variants),
            server_only: feature.server_only,
            is_served: !feature.unserved,
        }
    }
}

impl Outcome {
    fn of(enabled: bool, value: &str, variants: &[VariantDescription<'_>]) -> Self {
        let variants = variants.iter();
        Self {
            enabled,
            value: value.to_owned(),
            variants: variants
                .map(|variant| Variant { weight: variant.weight.to_owned(), value: variant.value.to_string() })
                .collect(),
        }
    }
}

fn segment(id: u32, pair: (Option<&SegmentDescription<'_>>, Option<&SegmentDescription<'_>>)) -> Option<SegmentChange> {
    let state = |of: &SegmentDescription<'_>| SegmentState { name: of.name.to_owned(), overrides: of.overrides };
    let (before, after) = (pair.0.map(state), pair.1.map(state));
    (before != after).then(|| SegmentChange { id, change: kind(pair), before, after })
}

/// Counts the identities whose overrides differ.
fn identities(before: &Snapshot<Vec<u8>>, after: &Snapshot<Vec<u8>>, comparable: bool) -> Option<IdentityChange> {
    let (old, new) = (before.identities(), after.identities());
    if old == new {
        return None;
    }
    let counts = comparable.then(|| IdentityCounts {
        added: new.keys().filter(|identity| !old.contains_key(*identity)).count(),
        removed: old.keys().filter(|identity| !new.contains_key(*identity)).count(),
        changed: new.iter().filter(|(identity, has)| old.get(*identity).is_some_and(|had| had != *has)).count(),
    });
    Some(IdentityChange { before: old.len(), after: new.len(), counts })
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
