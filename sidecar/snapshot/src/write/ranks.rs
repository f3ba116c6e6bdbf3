//! Which override of a feature is stronger: by feature, strongest first, and by segment, for the evaluation.

use crate::model::Segment;

/// An override as it stands in the model.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub(super) segment: usize,
    pub(super) position: usize,
}

/// A segment's strongest override of a feature.
#[derive(Clone, Copy)]
pub(super) struct Strongest {
    pub(super) feature: u32,
    pub(super) rank: u16,
    pub(super) position: usize,
}

/// The overrides of each feature, strongest first.
pub(super) struct Overrides {
    pub(super) by_feature: Vec<Vec<Place>>,
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

    /// By segment: the features that it overrides, in order, each by the strongest of its overrides.
    pub(super) fn by_segment(&self, segments: usize) -> Vec<Vec<Strongest>> {
        let mut by_segment: Vec<Vec<Strongest>> = vec![Vec::new(); segments];
        for (feature, places) in (0_u32..).zip(&self.by_feature) {
            for (rank, place) in (0_u16..).zip(places) {
                if let Some(own) = by_segment.get_mut(place.segment)
                    && own.last().is_none_or(|last| last.feature != feature)
                {
                    own.push(Strongest { feature, rank, position: place.position });
                }
            }
        }
        by_segment
    }
}
