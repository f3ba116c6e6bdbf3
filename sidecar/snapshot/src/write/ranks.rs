//! Which override of a feature is stronger, told twice: by feature, strongest first, and by segment, for the evaluation.

use super::WriteError;
use super::blob::offset;
use crate::layout::{NO_RANK, Rank, Row, Run, Span};
use crate::model::Segment;

/// So many features in a row that a segment does not override do not end a run: they take no more room than the row of
/// another one.
const GAP: u32 = 6;

/// An override as it stands in the model.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) segment: usize,
    pub(super) position: usize,
}

/// The overrides of each feature, strongest first.
pub(super) struct Overrides {
    pub(super) by_feature: Vec<Vec<Place>>,
}

/// The overrides of the segments, one after another.
#[derive(Default)]
pub(super) struct Runs {
    pub(super) rows: Vec<u8>,
    pub(super) ranks: Vec<u8>,
}

impl Overrides {
    /// The lowest priority wins, none is the highest; among equals the first in the document does.
    pub(super) fn of(segments: &[Segment], features: usize) -> Self {
        let mut by_feature = vec![Vec::new(); features];
        for (segment, content) in segments.iter().enumerate() {
            for (position, own) in content.overrides.iter().enumerate() {
                if let Some(places) = by_feature.get_mut(own.feature) {
                    places.push((own.priority.unwrap_or(f64::INFINITY), Place { segment, position }));
                }
            }
        }
        let by_feature = by_feature
            .into_iter()
            .map(|mut places: Vec<(f64, Place)>| {
                places.sort_by(|(a, _), (b, _)| a.total_cmp(b)); // stable: the document's order stays among equals
                places.into_iter().map(|(_, place)| place).collect()
            })
            .collect();
        Self { by_feature }
    }

    /// By segment: the features that it overrides, in order, each with its strongest rank.
    pub(super) fn by_segment(&self, segments: usize) -> Vec<Vec<(u32, u16)>> {
        let mut by_segment: Vec<Vec<(u32, u16)>> = vec![Vec::new(); segments];
        for (feature, places) in (0_u32..).zip(&self.by_feature) {
            for (rank, place) in (0_u16..).zip(places) {
                if let Some(own) = by_segment.get_mut(place.segment)
                    && own.last().is_none_or(|(last, _)| *last != feature)
                {
                    own.push((feature, rank));
                }
            }
        }
        by_segment
    }
}

impl Runs {
    /// Adds a segment's overrides, in the order of the features; returns its first row and their number.
    pub(super) fn add(&mut self, own: &[(u32, u16)]) -> Result<(u32, u32), WriteError> {
        let row = self.rows.len() / Run::SIZE;
        for run in own.chunk_by(|(one, _), (next, _)| next - one <= GAP + 1) {
            let Some((feature, _)) = run.first().copied() else { continue };
            let start = self.ranks.len() / Rank::SIZE;
            let mut next = feature;
            for (feature, rank) in run {
                for _ in next..*feature {
                    self.ranks.extend(Rank { rank: NO_RANK }.encode());
                }
                self.ranks.extend(Rank { rank: *rank }.encode());
                next = feature + 1;
            }
            let ranks = Span { start: offset(start)?, length: next - feature };
            self.rows.extend(Run { feature, ranks }.encode());
        }
        Ok((offset(row)?, offset(self.rows.len() / Run::SIZE - row)?))
    }
}
