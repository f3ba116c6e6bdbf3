//! The results of flags that conditions have read.

use std::collections::{HashMap, HashSet};

use super::evaluation::Winner;
use crate::budget::StepBudget;

/// Maximum length of a chain of flags. The operator reports longer chains; here the flag at the end of a longer chain
/// is not set.
pub const MAX_CHAIN: usize = 64;

/// Maximum number of flags that one evaluation resolves for conditions; later ones are not set. If flags read each
/// other in a cycle, a flag may be resolved once per path to it, and the number of paths may exceed the time of any
/// evaluation.
const MAX_RESOLUTIONS: u32 = 1 << 14;

/// The resolved flags of one evaluation.
#[derive(Debug, Default)]
pub(crate) struct Resolution {
    /// Results that conditions have read. They are final, even if another order of evaluation would give other results.
    resolved: HashMap<u32, Winner>,
    /// Features that are being resolved, outermost first.
    resolving: Vec<u32>,
    /// Overrides of the features that are being resolved, outermost first: segment and rank, sorted within a feature.
    overrides: Vec<(u32, u16)>,
    /// Features that are part of a cycle.
    cyclic: HashSet<u32>,
    /// Segment matches that were computed during resolution.
    verdicts: HashMap<u32, bool>,
    /// Number of cut cycles.
    cuts: u32,
    /// Number of resolved flags.
    resolutions: u32,
}

impl Resolution {
    pub(super) fn clear(&mut self) {
        self.resolved.clear();
        self.resolving.clear();
        self.overrides.clear();
        self.cyclic.clear();
        self.verdicts.clear();
        self.cuts = 0;
        self.resolutions = 0;
    }

    pub(super) fn is_cyclic(&self, feature: u32) -> bool {
        !self.cyclic.is_empty() && self.cyclic.contains(&feature)
    }

    /// Returns the result of a feature, if it is resolved.
    pub(super) fn result(&self, feature: u32) -> Option<Winner> {
        self.resolved.get(&feature).copied()
    }

    /// Iterates over the resolved features.
    pub(super) fn features(&self) -> impl Iterator<Item = u32> {
        self.resolved.keys().copied()
    }

    /// Number of cut cycles.
    pub(super) fn cuts(&self) -> u32 {
        self.cuts
    }

    /// Starts to resolve a feature. Returns false if it cannot be resolved: its resolution has started before, so this
    /// is a cycle, which is cut here; or a limit is reached.
    pub(super) fn start(&mut self, feature: u32, budget: &StepBudget) -> bool {
        if let Some(start) = self.resolving.iter().position(|other| *other == feature) {
            let cycle = self.resolving.get(start..).unwrap_or_default();
            budget.spend(cycle.len());
            self.cyclic.extend(cycle);
            self.cuts += 1;
            return false;
        }
        if self.resolving.len() >= MAX_CHAIN || self.resolutions >= MAX_RESOLUTIONS {
            return false;
        }
        self.resolutions += 1;
        self.resolving.push(feature);
        true
    }

    /// Ends the resolution that was started last.
    pub(super) fn end(&mut self, feature: u32, winner: Winner) {
        self.resolving.pop();
        if !self.is_cyclic(feature) {
            self.resolved.insert(feature, winner);
        }
    }

    /// Ends the resolution that was started last, without a result.
    pub(super) fn abandon(&mut self) {
        self.resolving.pop();
    }

    /// Adds the overrides of a feature, sorted by segment and rank. Returns the number of the first.
    pub(super) fn push_overrides(&mut self, overrides: impl Iterator<Item = (u32, u16)>) -> usize {
        let start = self.overrides.len();
        self.overrides.extend(overrides);
        self.overrides.get_mut(start..).unwrap_or_default().sort_unstable();
        start
    }

    /// Returns the segment and the rank of an added override.
    pub(super) fn pushed(&self, at: usize) -> Option<(u32, u16)> {
        self.overrides.get(at).copied()
    }

    /// Removes the overrides from this number on.
    pub(super) fn pop_overrides(&mut self, start: usize) {
        self.overrides.truncate(start);
    }

    /// Returns whether the context matches a segment, if that is known.
    pub(super) fn verdict(&self, segment: u32) -> Option<bool> {
        self.verdicts.get(&segment).copied()
    }

    /// Stores whether the context matches a segment.
    pub(super) fn keep_verdict(&mut self, segment: u32, verdict: bool) {
        self.verdicts.insert(segment, verdict);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolution_beyond_the_limit_is_refused() {
        let (mut resolution, budget) = (Resolution::default(), StepBudget::default());
        let mut resolve = |feature| {
            let started = resolution.start(feature, &budget);
            if started {
                resolution.end(feature, Winner::Default);
            }
            started
        };
        // A flag within a cycle is resolved again each time.
        assert!((0..MAX_RESOLUTIONS).all(|number| resolve(number % 100)));
        assert!(!resolve(0));
        resolution.clear();
        assert!(resolution.start(0, &budget));
    }

    #[test]
    fn chain_beyond_the_limit_is_refused() {
        let (mut resolution, budget) = (Resolution::default(), StepBudget::default());
        assert!((0..MAX_CHAIN as u32).all(|feature| resolution.start(feature, &budget)));
        assert!(!resolution.start(MAX_CHAIN as u32, &budget));
    }
}
