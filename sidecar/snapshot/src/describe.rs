//! What is in a snapshot, for people.

use crate::Snapshot;
use crate::layout::{AUTOMATON, BACKTRACKING, SERVER_ONLY, UNSERVED};

/// What is in a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    /// In the order of the answers.
    pub features: Vec<FeatureDescription>,
    /// In the order in which ties are decided.
    pub segments: Vec<SegmentDescription>,
    /// Regular expressions that became automata.
    pub automata: usize,
    /// Regular expressions that are searched by backtracking.
    pub backtracking: usize,
    /// What the operator found worth telling.
    pub notes: Vec<String>,
}

/// A feature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeatureDescription {
    /// Flagsmith's id.
    pub id: i64,
    /// Its name.
    pub name: String,
    /// By default.
    pub enabled: bool,
    /// By default, as JSON.
    pub value: String,
    /// How many variants its default has.
    pub variants: u32,
    /// How many segments override it.
    pub overrides: u32,
    /// Client keys do not see it.
    pub server_only: bool,
    /// Nobody sees it; conditions read it.
    pub unserved: bool,
}

/// A segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentDescription {
    /// Flagsmith's id.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// How many features it overrides.
    pub overrides: u32,
}

impl<B: AsRef<[u8]>> Snapshot<B> {
    /// Tells what is in the core.
    pub fn describe(&self) -> Description {
        let view = self.view();
        let features = view.features.iter().map(|row| {
            let context = view.contexts.get(row.context).unwrap_or_default();
            let split = context.split.checked_sub(1).and_then(|split| view.splits.get(split));
            FeatureDescription {
                id: row.id,
                name: view.text(row.name).to_owned(),
                enabled: context.is_enabled(),
                value: String::from_utf8_lossy(context.value(view.blob)).into_owned(),
                variants: split.map_or(0, |split| split.length),
                overrides: row.ranked_length,
                server_only: row.flags & SERVER_ONLY != 0,
                unserved: row.flags & UNSERVED != 0,
            }
        });
        let segments = view.segments.iter().map(|row| SegmentDescription {
            id: row.id,
            name: view.text(row.name).to_owned(),
            overrides: row.targets_length,
        });
        let patterns = |kind| view.patterns.iter().filter(|row| row.kind == kind).count();
        let notes = std::str::from_utf8(view.notes).unwrap_or_default();
        Description {
            features: features.collect(),
            segments: segments.collect(),
            automata: patterns(AUTOMATON),
            backtracking: patterns(BACKTRACKING),
            notes: notes.lines().map(str::to_owned).collect(),
        }
    }
}
