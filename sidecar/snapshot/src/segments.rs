//! Segment matching: finds the segments that a context matches. The index rules out most segments, percentage rules are
//! hashed for the remaining candidates, and residual programs decide the rest.

pub(crate) mod condition;
pub(crate) mod explain;
mod index;
mod program;

use crate::budget::{StepBudget, Undecided};
use crate::context::{EvaluationContext, Value};
use crate::format::{
    layout::{BLOCK, IDENTITY_FREE, Segment},
    view::View,
};
use crate::regex::backtrack::SearchMemory;
use crate::values::{hash::MemberKey, percentage::HashBuffers};

/// The segments that apply to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// No segments.
    None,
    /// Segments that need no identity.
    IdentityFree,
    /// All segments.
    All,
}

/// The segments of a snapshot, for one request.
#[derive(Clone, Copy)]
pub(crate) struct Segments<'a> {
    pub(crate) view: View<'a>,
    pub(crate) scope: Scope,
    pub(crate) budget: &'a StepBudget,
}

/// Scratch memory of segment matching.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// Candidates of the index by block, if they were computed.
    candidates: Vec<Option<u64>>,
    /// Candidates by block that the percentage rules leave.
    kept: Vec<u64>,
    /// Member keys of the values by slot, if they were computed.
    member_keys: Vec<Option<MemberKey>>,
    /// Buffer for printing values that are no texts.
    printed: String,
    /// Memory of backtracking searches.
    search: SearchMemory,
    /// Buffers of the batch hashing. The splits of the features use them, too.
    pub(crate) hashing: Option<Box<HashBuffers>>,
}

impl Scratch {
    /// Forgets the previous evaluation.
    pub(crate) fn clear(&mut self) {
        self.candidates.clear();
        self.member_keys.clear();
    }
}

/// The results of flags that conditions read.
pub(crate) trait Flags {
    /// Returns the value of a slot that is derived from a flag.
    fn read(&mut self, context: &mut EvaluationContext, scratch: &mut Scratch, slot: u16) -> Value;

    /// Number of cycles of flags that were cut. A match that depends on a cut does not count.
    fn cuts(&self) -> u32;
}

impl Segments<'_> {
    /// Passes each segment that the context matches to `found`.
    pub(crate) fn each_match(
        &self,
        context: &mut EvaluationContext,
        scratch: &mut Scratch,
        flags: &mut impl Flags,
        mut found: impl FnMut(&Segment),
    ) {
        let segments = self.view.segments();
        let blocks = if self.scope == Scope::None { 0 } else { self.view.blocks().len() };
        // The percentage rules of all blocks are hashed together.
        let mut kept = std::mem::take(&mut scratch.kept);
        kept.clear();
        kept.extend((0..blocks).map(|block| self.candidates(context, scratch, block)));
        self.keep_by_percentage(context, scratch, 0, &mut kept);
        for (block, mut candidates) in kept.iter().copied().enumerate() {
            while candidates != 0 {
                let bit = candidates.trailing_zeros();
                candidates &= candidates - 1;
                if let Some(segment) = segments.get((block * BLOCK) as u32 + bit) {
                    let cuts = flags.cuts();
                    let is_match = self.applies(&segment) && self.accepts(context, scratch, flags, segment.entry);
                    if is_match && flags.cuts() == cuts {
                        found(&segment);
                    }
                }
            }
        }
        scratch.kept = kept;
    }

    /// Returns true if the context matches a segment.
    pub(crate) fn is_match(
        &self,
        context: &mut EvaluationContext,
        scratch: &mut Scratch,
        flags: &mut impl Flags,
        number: u32,
    ) -> bool {
        let Some(segment) = self.view.segments().get(number) else { return false };
        if !self.budget.spend(1) {
            self.budget.note(Undecided::Others);
            return false;
        }
        let (block, bit) = (number as usize / BLOCK, 1 << (number as usize % BLOCK));
        if !self.applies(&segment) || self.candidates(context, scratch, block) & bit == 0 {
            return false;
        }
        let mut kept = [bit];
        self.keep_by_percentage(context, scratch, block, &mut kept);
        kept != [0] && self.accepts(context, scratch, flags, segment.entry)
    }

    /// Returns true if the segment applies to requests of this scope.
    #[inline(always)]
    fn applies(&self, segment: &Segment) -> bool {
        match self.scope {
            Scope::None => false,
            Scope::IdentityFree => segment.flags & IDENTITY_FREE != 0,
            Scope::All => true,
        }
    }
}
