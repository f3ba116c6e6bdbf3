//! Ranks of overrides: sorted by feature, strongest first, and by segment, for the evaluation.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::format::model::Segment;

/// Position of an override in the model.
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
pub(super) struct RankedOverrides {
    pub(super) by_feature: Vec<Vec<Place>>,
}

impl RankedOverrides {
    /// Sorts overrides by priority. The lowest priority wins, no priority loses, and the first in the document wins
    /// among equals.
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
                places.sort_by(|(a, _), (b, _)| a.total_cmp(b)); // stable: equal priorities keep the document's order
                places.into_iter().map(|(_, place)| place).collect()
            })
            .collect();
        Self { by_feature }
    }

    /// Returns the features that each segment overrides, in order, each with the strongest of the segment's overrides.
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

/// Features that a segment overrides, at one position of the common order.
pub(super) struct Layer {
    pub(super) segment: usize,
    /// Sorted rows of features.
    pub(super) features: Vec<u32>,
}

/// Puts the overrides of all features into one common order, in which a feature's stronger override always comes first.
/// A segment appears more than once if features order their segments differently.
pub(super) fn layers(by_segment: &[Vec<Strongest>], features: usize) -> Vec<Layer> {
    let mut order = Order::of(by_segment, features);
    let mut layers = Vec::new();
    while let Some((segment, mut features)) = order.next() {
        features.iter().for_each(|feature| order.advance(*feature));
        features.sort_unstable();
        layers.push(Layer { segment, features });
    }
    layers
}

/// The remaining overrides of each feature during the sort.
struct Order {
    /// Rank and segment by feature, weakest first.
    remaining: Vec<Vec<(u16, usize)>>,
    /// Features by segment of which the segment has the strongest remaining override.
    ready: Vec<Vec<u32>>,
    /// Number of features by segment that still have a stronger override.
    behind: Vec<usize>,
    /// Segments by the number of features that still have a stronger override. Entries may be stale.
    queue: BinaryHeap<Reverse<(usize, usize)>>,
}

impl Order {
    fn of(by_segment: &[Vec<Strongest>], features: usize) -> Self {
        let mut remaining = vec![Vec::new(); features];
        for (segment, own) in by_segment.iter().enumerate() {
            for Strongest { feature, rank, .. } in own {
                remaining.get_mut(*feature as usize).into_iter().for_each(|remaining| remaining.push((*rank, segment)));
            }
        }
        remaining.iter_mut().for_each(|remaining| remaining.sort_unstable_by_key(|own| Reverse(*own)));
        let ready = vec![Vec::new(); by_segment.len()];
        let mut order =
            Self { remaining, ready, behind: by_segment.iter().map(Vec::len).collect(), queue: BinaryHeap::new() };
        (0..features as u32).for_each(|feature| order.advance(feature));
        order
    }

    /// Returns the segment with the fewest blocked features, and its ready features. This keeps repetitions of segments
    /// few.
    fn next(&mut self) -> Option<(usize, Vec<u32>)> {
        while let Some(Reverse((behind, segment))) = self.queue.pop() {
            let features = match self.behind.get(segment) {
                Some(now) if *now == behind => self.ready.get_mut(segment).map(std::mem::take).unwrap_or_default(),
                _ => continue,
            };
            if !features.is_empty() {
                return Some((segment, features));
            }
        }
        None
    }

    /// Marks the segment of the strongest remaining override of a feature as ready for the feature.
    fn advance(&mut self, feature: u32) {
        if let Some((_, segment)) = self.remaining.get_mut(feature as usize).and_then(Vec::pop)
            && let (Some(ready), Some(behind)) = (self.ready.get_mut(segment), self.behind.get_mut(segment))
        {
            ready.push(feature);
            *behind -= 1;
            self.queue.push(Reverse((*behind, segment)));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// Returns the layers of features that have these segments, strongest first.
    fn of(orders: &[&[usize]]) -> Vec<(usize, Vec<u32>)> {
        let mut by_segment = vec![Vec::new(); 5];
        for (feature, order) in (0..).zip(orders) {
            for (rank, segment) in (0..).zip(*order) {
                by_segment.get_mut(*segment).unwrap().push(Strongest { feature, rank, position: 0 });
            }
        }
        layers(&by_segment, orders.len()).into_iter().map(|layer| (layer.segment, layer.features)).collect()
    }

    #[test]
    fn segments_in_equal_order_have_one_layer_each() {
        let layers = of(&[&[2, 1, 0], &[2, 0], &[4], &[2, 1], &[1, 0]]);
        assert_eq!(layers, [(2, vec![0, 1, 3]), (1, vec![0, 3, 4]), (0, vec![0, 1, 4]), (4, vec![2])]);
    }

    #[test]
    fn segments_in_different_orders_have_several_layers() {
        let layers = of(&[&[0, 1, 2], &[1, 2, 0], &[2, 0, 1]]);
        let again = [(0, vec![0]), (1, vec![0, 1]), (2, vec![0, 1, 2]), (0, vec![1, 2]), (1, vec![2])];
        assert_eq!(layers, again);
    }
}
