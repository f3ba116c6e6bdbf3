//! Decides all features: segments claim the features that they override, the strongest claim first and up to 64
//! features at once. Features without a claim keep their default.

use crate::budget::Undecided;
use crate::evaluate::{
    evaluation::{Evaluation, Winner},
    resolve,
    role::Scope,
    subject::Subject,
};
use crate::format::layout::{BLOCK, Claim, Rank, Run, Segment, Split, Word};
use crate::values::{
    percentage::{Percentages, UNDECIDED, Whose},
    rows::Table,
};

/// The decision for every feature that does not simply have its default.
#[derive(Debug, Default)]
pub(crate) struct Choice {
    /// One bit per row of `Claims`: the subject belongs to its segment.
    claims: Vec<u64>,
    blocks: Vec<Features>,
}

/// 64 consecutive features, one bit each.
#[derive(Debug, Clone)]
pub(crate) struct Features {
    /// Features that are decided.
    decided: u64,
    /// Features at which a sequence with one owner begins.
    starts: u64,
    /// Owner of the sequence that begins at a feature. Elsewhere the entry is stale.
    owners: [Owner; BLOCK],
}

/// The source that decides consecutive features.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The default.
    Default,
    /// A segment, by its row in `Runs`.
    Run(u32),
    /// The identity's own override.
    Individual,
    /// A result that a condition has read.
    Resolved,
}

impl Choice {
    fn clear(&mut self, features: usize, claims: usize) {
        self.claims.clear();
        self.claims.resize(claims.div_ceil(64), 0);
        let none = Features { decided: 0, starts: 0, owners: [Owner::Default; BLOCK] };
        self.blocks.resize(features.div_ceil(BLOCK), none);
        for block in &mut self.blocks {
            (block.decided, block.starts) = (0, 0);
        }
    }

    /// Records that the subject belongs to the segment with this row of `Claims`.
    fn hold(&mut self, claim: u32) {
        if let Some(word) = self.claims.get_mut(claim as usize / 64) {
            *word |= 1 << (claim % 64);
        }
    }

    /// Assigns the owner to those of the features that are not decided yet.
    #[inline(always)]
    fn claim(&mut self, block: u32, features: u64, owner: Owner) {
        let Some(block) = self.blocks.get_mut(block as usize) else { return };
        let own = features & !block.decided;
        block.decided |= own;
        let mut starts = own & !(own << 1);
        block.starts |= starts;
        while starts != 0 {
            if let Some(place) = block.owners.get_mut(starts.trailing_zeros() as usize) {
                *place = owner;
            }
            starts &= starts - 1;
        }
    }

    /// Assigns the owner to one feature, unless it is decided.
    pub(crate) fn claim_one(&mut self, feature: u32, owner: Owner) {
        self.claim(feature / BLOCK as u32, 1 << (feature % BLOCK as u32), owner);
    }

    /// Decides features by the recorded claims, in row order, which is the strongest first.
    fn decide(&mut self, claims: Table<'_, Claim, 16>) {
        for number in 0..self.claims.len() {
            let mut left = self.claims.get(number).copied().unwrap_or(0);
            while left != 0 {
                if let Some(claim) = claims.get(number as u32 * 64 + left.trailing_zeros()) {
                    self.claim(claim.block, claim.features, Owner::Run(claim.run));
                }
                left &= left - 1;
            }
        }
    }

    /// Returns true if the feature is decided.
    fn decides(&self, feature: u32) -> bool {
        let block = self.blocks.get(feature as usize / BLOCK);
        block.is_some_and(|block| block.decided >> (feature % BLOCK as u32) & 1 != 0)
    }

    /// Returns the owner of a feature.
    fn owner(&self, feature: u32) -> Owner {
        let (number, bit) = (feature as usize / BLOCK, feature % BLOCK as u32);
        let decided = self.blocks.get(number).filter(|block| block.decided >> bit & 1 != 0);
        decided.map_or(Owner::Default, |block| {
            let back = (block.starts << (63 - bit)).leading_zeros();
            block.owners.get(bit.wrapping_sub(back) as usize).copied().unwrap_or(Owner::Default)
        })
    }

    /// Iterates over the features in blocks of 64: the first feature of the block, and the decisions.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = (u32, &Features)> {
        (0_u32..).step_by(BLOCK).zip(&self.blocks)
    }
}

impl Features {
    /// Iterates over the decided features as sequences with one owner: first feature, end (exclusive), owner.
    pub(crate) fn owned(&self) -> impl Iterator<Item = (u32, u32, Owner)> {
        let mut starts = self.starts;
        let ends = self.starts | !self.decided;
        std::iter::from_fn(move || {
            let first = (starts != 0).then(|| starts.trailing_zeros())?;
            let owner = *self.owners.get(first as usize)?;
            let mut next = first;
            loop {
                starts &= starts - 1;
                next = (ends & u64::MAX << 1 << next).trailing_zeros();
                // Two claims of one run may be adjacent; they are one sequence.
                if starts.trailing_zeros() != next || self.owners.get(next as usize) != Some(&owner) {
                    return Some((first, next, owner));
                }
            }
        })
    }
}

impl Evaluation<'_> {
    /// Decides all features. The result is in `subject.choice`.
    pub(crate) fn choose(&self, subject: &mut Subject) {
        self.hold(subject);
        self.decide_all(subject);
    }

    /// Determines the claims of the subject.
    pub(crate) fn hold(&self, subject: &mut Subject) {
        let view = &self.view;
        subject.choice.clear(view.features().len(), view.claims().len());
        let (segments, claiming) = (view.segments(), view.claiming());
        let blocks = if self.scope == Scope::None { 0 } else { view.blocks().len() };
        for block in 0..blocks {
            let mut left = self.candidates(subject, block);
            left = self.shares(subject, block, left);
            while left != 0 {
                let number = (block * BLOCK) as u32 + left.trailing_zeros();
                left &= left - 1;
                if let Some(segment) = segments.get(number)
                    && self.includes(subject, &segment)
                {
                    let own = claiming.range(segment.claims, segment.claims_length).iter();
                    own.for_each(|claim| subject.choice.hold(claim.word));
                }
            }
        }
    }

    /// Decides all features by the claims that [`Self::hold`] has determined.
    pub(crate) fn decide_all(&self, subject: &mut Subject) {
        let view = &self.view;
        resolve::settle(subject);
        if let Some(individual) = self.individual {
            for item in individual.items.iter() {
                if let Some(feature) = view.feature_with_id(item.feature) {
                    subject.choice.claim_one(feature, Owner::Individual);
                }
            }
        }
        subject.choice.decide(view.claims());
        let splits = view.split_features();
        if subject.identified && splits.len() > 0 {
            self.find_places(subject);
            // Their default is not one stored object, so it must not be copied together with its neighbours.
            for feature in splits.iter() {
                subject.choice.claim_one(feature.word, Owner::Default);
            }
        }
    }

    /// Computes the subject's place in the splits of all defaults that apply, hashed in batches.
    fn find_places(&self, subject: &mut Subject) {
        let view = &self.view;
        let splits = view.split_features();
        let mut places = std::mem::take(&mut subject.default_places);
        places.resize(splits.len(), f64::NAN);
        let mut tell = |row: u32, percentage| {
            places.get_mut(row as usize).into_iter().for_each(|place| *place = percentage);
        };
        let mut percentages = Percentages::within(subject.hashing.take());
        for (row, Word { word: feature }) in (0..).zip(splits.iter()) {
            if !subject.choice.decides(feature)
                && let Some(split) = self.default_split(feature)
            {
                let ids = subject.key(view);
                if !subject.budget.hash(split.seed, subject.key_length(view)) {
                    subject.budget.note(Undecided::Others);
                    tell(row, UNDECIDED);
                    continue;
                }
                percentages.ask(row, view.head(split.seed), Whose::Identity, ids, &mut tell);
            }
        }
        subject.hashing = Some(percentages.tell(&mut tell));
        subject.default_places = places;
    }

    /// Returns the split of a feature's default.
    fn default_split(&self, feature: u32) -> Option<Split> {
        let feature = self.view.features().get(feature)?;
        self.view.split(self.view.contexts().get(feature.context)?)
    }

    /// Returns the subject's place in the split of a feature's default, if it has been computed.
    pub(crate) fn place_in_split(&self, subject: &Subject, number: u32) -> Option<f64> {
        let features = self.view.split_features();
        let row = features.partition_point(|feature| feature.word < number);
        let place = subject.default_places.get(row as usize).copied().filter(|place| !place.is_nan())?;
        (features.get(row)?.word == number).then_some(place)
    }

    /// Returns the decision for a feature.
    pub(crate) fn chosen(&self, subject: &Subject, feature: u32) -> Winner {
        let view = &self.view;
        let winner = match subject.choice.owner(feature) {
            Owner::Default => None,
            Owner::Run(number) => view.runs().get(number).and_then(|Run { feature: first, ranks, .. }| {
                let ranks = view.ranks().range(ranks.start, ranks.length);
                ranks.get(feature.checked_sub(first)?).map(|Rank { rank }| Winner::Segment(rank))
            }),
            Owner::Individual => view.features().get(feature).and_then(|row| self.individually(&row)),
            Owner::Resolved => subject.resolution.result(feature),
        };
        winner.unwrap_or(Winner::Default)
    }

    /// Returns true if the subject belongs to a candidate segment.
    #[inline(always)]
    fn includes(&self, subject: &mut Subject, segment: &Segment) -> bool {
        let hits = subject.resolution.cycle_hits;
        let matched = self.applies(segment) && self.accepts(subject, segment.entry);
        // A result that depends on cutting a cycle of flags does not count.
        matched && subject.resolution.cycle_hits == hits
    }
}
