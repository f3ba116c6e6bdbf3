//! One evaluation: an environment, a subject, and what the subject has for itself.

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

/// What an evaluation reads. What it writes is in the [`Subject`].
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

/// What decides a feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Winner {
    /// Nothing overrides it.
    Default,
    /// The override of a segment, by its rank among those of the feature.
    Segment(u16),
    /// The identity's own override, by its row.
    Individual(u32),
}

impl<'a> Evaluation<'a> {
    /// Does the subject belong to the segment?
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

    /// Does the segment count for who asks?
    #[inline(always)]
    pub(crate) fn applies(&self, segment: &Segment) -> bool {
        match self.scope {
            Scope::None => false,
            Scope::IdentityFree => segment.flags & IDENTITY_FREE != 0,
            Scope::All => true,
        }
    }

    /// Runs a segment's program, which asks what the index does not know.
    ///
    /// A program that is undecided accepts nothing, whatever it negates.
    ///
    /// It ends because every jump goes forward; that is asked for here again, so that it does not rest on the reader's
    /// validation alone.
    pub(crate) fn accepts(&self, subject: &mut Subject, entry: u32) -> bool {
        if entry == ACCEPT {
            return true; // most segments are in the index as a whole
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

    /// The subject's own override of a feature.
    pub(crate) fn individually(&self, feature: &Feature) -> Option<Winner> {
        let items = self.individual?.items;
        let row = items.partition_point(|item| item.feature < feature.id);
        items.get(row).filter(|item| item.feature == feature.id).map(|_| Winner::Individual(row))
    }

    /// The segments that override a feature, strongest first.
    pub(crate) fn ranked(&self, feature: &Feature) -> Table<'a, Ranked, 8> {
        self.view.ranked().range(feature.ranked, feature.ranked_length)
    }

    /// What decides one feature, by asking only the segments that override it.
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
