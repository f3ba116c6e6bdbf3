//! The content of a snapshot, for people. It borrows names and values: the overrides of a feature repeat them.

use std::{borrow::Cow, collections::HashMap};

use crate::Snapshot;
use crate::format::{
    layout::{AUTOMATON, BACKTRACKING, SERVER_ONLY, UNSERVED},
    overrides::value_of,
    view::View,
};
use crate::snapshot::digest;

/// The content of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description<'a> {
    /// Features in the order of the answers.
    pub features: Vec<FeatureDescription<'a>>,
    /// Segments in the order in which ties are decided.
    pub segments: Vec<SegmentDescription<'a>>,
    /// Number of regular expressions compiled to automata.
    pub automata: usize,
    /// Number of regular expressions compiled to backtracking programs.
    pub backtracking: usize,
    /// Warnings of the operator.
    pub notes: Vec<&'a str>,
}

/// A feature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeatureDescription<'a> {
    /// Flagsmith's id.
    pub id: i64,
    /// Name of the feature.
    pub name: &'a str,
    /// Default state.
    pub enabled: bool,
    /// Default value as JSON.
    pub value: Cow<'a, str>,
    /// Variants of the default.
    pub variants: Vec<VariantDescription<'a>>,
    /// Overrides by segments, strongest first.
    pub overrides: Vec<OverrideDescription<'a>>,
    /// True if the feature is hidden from client keys.
    pub server_only: bool,
    /// True if no answer contains the feature; only conditions read it.
    pub unserved: bool,
}

/// A variant of a split.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VariantDescription<'a> {
    /// Weight in percent.
    pub weight: &'a str,
    /// Value as JSON.
    pub value: Cow<'a, str>,
}

/// The override of a feature by a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OverrideDescription<'a> {
    /// Name of the segment.
    pub segment: &'a str,
    /// Enabled or disabled.
    pub enabled: bool,
    /// Value as JSON.
    pub value: Cow<'a, str>,
    /// Variants of the override.
    pub variants: Vec<VariantDescription<'a>>,
}

/// A segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentDescription<'a> {
    /// Flagsmith's id.
    pub id: u32,
    /// Name of the segment.
    pub name: &'a str,
    /// Number of overrides of the segment.
    pub overrides: u32,
}

/// Returns state, value and variants of a context.
fn context<'a>(view: &View<'a>, context: u32) -> (bool, Cow<'a, str>, Vec<VariantDescription<'a>>) {
    let context = view.contexts().get(context).unwrap_or_default();
    let split = context.split.checked_sub(1).and_then(|split| view.splits().get(split));
    let variants = split.map(|split| view.variants().range(split.variants, split.length)).into_iter();
    let variants = variants.flat_map(|variants| variants.iter()).map(|variant| VariantDescription {
        weight: view.text(variant.weight),
        value: view.text(variant.value).into(),
    });
    let value = String::from_utf8_lossy(context.value(view.blob));
    (context.is_enabled(), value, variants.collect())
}

impl<B: AsRef<[u8]>> Snapshot<B> {
    /// Returns true if both snapshots are of one environment, so that their identities can be compared.
    pub fn is_of_the_environment_of(&self, other: &Self) -> bool {
        self.fingerprint() == other.fingerprint()
    }

    /// Returns a digest of the override of each identity, by the hash of its identifier.
    pub fn identities(&self) -> HashMap<[u8; 12], u64> {
        let mut identities = HashMap::with_capacity(self.identity_overrides());
        for overrides in self.overrides() {
            for (hash, items) in overrides.each() {
                let mut content = Vec::new();
                for item in items.iter() {
                    content.extend(item.feature.to_le_bytes());
                    content.extend(item.value_length.to_le_bytes());
                    content.extend(value_of(item).of(overrides.blob));
                }
                identities.insert(hash, digest(&content));
            }
        }
        identities
    }

    /// Describes the content of the core.
    pub fn describe(&self) -> Description<'_> {
        let view = self.view();
        let features = view.features().iter().map(|row| {
            let (enabled, value, variants) = context(&view, row.context);
            let overrides = view.segment_overrides().range(row.overrides, row.overrides_length).iter().map(|ranked| {
                let (enabled, value, variants) = context(&view, ranked.context);
                let segment = view.segments().get(ranked.segment).map(|segment| view.text(segment.name));
                OverrideDescription { segment: segment.unwrap_or_default(), enabled, value, variants }
            });
            FeatureDescription {
                id: row.id,
                name: view.text(row.name),
                enabled,
                value,
                variants,
                overrides: overrides.collect(),
                server_only: row.flags & SERVER_ONLY != 0,
                unserved: row.flags & UNSERVED != 0,
            }
        });
        let mut counts = HashMap::new();
        for row in view.segment_overrides().iter() {
            *counts.entry(row.segment).or_insert(0) += 1;
        }
        let segments = (0_u32..).zip(view.segments().iter()).map(|(number, row)| SegmentDescription {
            id: row.id,
            name: view.text(row.name),
            overrides: counts.get(&number).copied().unwrap_or_default(),
        });
        let patterns = |kind| view.patterns().iter().filter(|row| row.kind == kind).count();
        let notes = std::str::from_utf8(view.notes()).unwrap_or_default();
        Description {
            features: features.collect(),
            segments: segments.collect(),
            automata: patterns(AUTOMATON),
            backtracking: patterns(BACKTRACKING),
            notes: notes.lines().collect(),
        }
    }
}
