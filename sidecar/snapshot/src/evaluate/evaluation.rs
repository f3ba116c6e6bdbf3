//! One evaluation: an environment, and the identity override of the subject.

use crate::budget::Undecided;
use crate::evaluate::{
    resolve,
    role::Scope,
    subject::{Subject, Value},
};
use crate::format::{
    layout::{ACCEPT, Feature, IDENTITY_FREE, Instruction, Item, READS_FLAG, REJECT, Ranked, Segment},
    view::View,
};
use crate::segments::{condition, index::place_of};
use crate::values::rows::{Row, Table};

/// The inputs of an evaluation. The results are stored in the [`Subject`].
#[derive(Clone, Copy)]
pub(crate) struct Evaluation<'a> {
    pub(crate) view: View<'a>,
    pub(crate) individual: Option<Individual<'a>>,
    pub(crate) scope: Scope,
}

/// The identity override of a subject, sorted by feature id.
#[derive(Clone, Copy)]
pub(crate) struct Individual<'a> {
    pub(crate) items: Table<'a, Item, 16>,
    pub(crate) blob: &'a [u8],
}

/// The source of a feature's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Winner {
    /// The default: no override applies.
    Default,
    /// The override of a segment, by its rank among the overrides of the feature.
    Segment(u16),
    /// The identity's own override, by its row.
    Individual(u32),
}

impl<'a> Evaluation<'a> {
    /// Returns true if the subject belongs to the segment.
    pub(crate) fn is_in(&self, subject: &mut Subject, segment: u32) -> bool {
        self.view.segments().get(segment).is_some_and(|row| {
            if !subject.budget.spend(1) {
                subject.budget.note(Undecided::Others);
                return false;
            }
            let (block, bit) = place_of(segment);
            let is_left = |subject: &mut Subject| {
                self.candidates(subject, block) & bit != 0 && self.shares(subject, block, bit) != 0
            };
            self.applies(&row) && is_left(subject) && self.accepts(subject, row.entry)
        })
    }

    /// Returns true if the segment applies to requests of this scope.
    #[inline(always)]
    pub(crate) fn applies(&self, segment: &Segment) -> bool {
        match self.scope {
            Scope::None => false,
            Scope::IdentityFree => segment.flags & IDENTITY_FREE != 0,
            Scope::All => true,
        }
    }

    /// Runs a segment's residual program, which evaluates the conditions that the index does not cover.
    ///
    /// An undecided program accepts nothing, even if it negates a condition.
    ///
    /// The program ends because every jump goes forward. This is checked here again, so that termination does not
    /// depend on the reader's validation alone.
    pub(crate) fn accepts(&self, subject: &mut Subject, entry: u32) -> bool {
        if entry == ACCEPT {
            return true; // the index decides most segments completely
        }
        let code = self.view.code();
        let mut at = entry;
        while let Some(stored) = code.stored(at) {
            let Instruction { flags, slot, on_true, on_false, .. } = Instruction::decode(stored);
            let mut value = subject.value(slot);
            if flags & READS_FLAG != 0 && value == Value::Null {
                value = resolve::flag(self, subject, slot);
            }
            let next = if condition::holds(&self.view, subject, stored, value) { on_true } else { on_false };
            if !subject.budget.spend(1) || subject.budget.was_interrupted() {
                subject.budget.note(Undecided::Program(entry));
                return false;
            }
            if next <= at {
                return false;
            }
            at = next;
        }
        debug_assert!(at == ACCEPT || at == REJECT, "a program ends at its end");
        at == ACCEPT
    }

    /// Returns the subject's own override of a feature.
    pub(crate) fn individually(&self, feature: &Feature) -> Option<Winner> {
        let items = self.individual?.items;
        let row = items.partition_point(|item| item.feature < feature.id);
        items.get(row).filter(|item| item.feature == feature.id).map(|_| Winner::Individual(row))
    }

    /// Returns the overrides of a feature by segments, strongest first.
    pub(crate) fn ranked(&self, feature: &Feature) -> Table<'a, Ranked, 8> {
        self.view.ranked().range(feature.ranked, feature.ranked_length)
    }

    /// Decides one feature by evaluating only the segments that override it.
    pub(crate) fn decide(&self, subject: &mut Subject, feature: &Feature) -> Winner {
        if let Some(winner) = self.individually(feature) {
            return winner;
        }
        let ranked = self.ranked(feature);
        let first =
            (0..ranked.len()).find(|rank| ranked.get(*rank as u32).is_some_and(|row| self.is_in(subject, row.segment)));
        first.and_then(|rank| u16::try_from(rank).ok()).map_or(Winner::Default, Winner::Segment)
    }
}
