//! The owner of each feature, as bits of 64 consecutive features.

use crate::format::layout::BLOCK;

/// The owner of each feature. Features without an owner have their default.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    blocks: Vec<FeatureBlock>,
}

/// 64 consecutive features, one bit each.
#[derive(Debug, Clone)]
pub(crate) struct FeatureBlock {
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
    /// A segment, by its row in `OverrideRuns`.
    OverrideRun(u32),
    /// The identity's own override.
    Identity,
    /// A result that a condition has read.
    Resolved,
}

impl Owners {
    pub(super) fn clear(&mut self, features: usize) {
        let none = FeatureBlock { decided: 0, starts: 0, owners: [Owner::Default; BLOCK] };
        self.blocks.resize(features.div_ceil(BLOCK), none);
        for block in &mut self.blocks {
            (block.decided, block.starts) = (0, 0);
        }
    }

    /// Assigns the owner to those features of a block that are not decided yet.
    #[inline(always)]
    pub(super) fn assign(&mut self, block: u32, features: u64, owner: Owner) {
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
    pub(super) fn assign_one(&mut self, feature: u32, owner: Owner) {
        self.assign(feature / BLOCK as u32, 1 << (feature % BLOCK as u32), owner);
    }

    /// Returns true if the feature is decided.
    pub(super) fn has(&self, feature: u32) -> bool {
        let block = self.blocks.get(feature as usize / BLOCK);
        block.is_some_and(|block| block.decided >> (feature % BLOCK as u32) & 1 != 0)
    }

    /// Returns the owner of a feature.
    pub(super) fn owner(&self, feature: u32) -> Owner {
        let (number, bit) = (feature as usize / BLOCK, feature % BLOCK as u32);
        let decided = self.blocks.get(number).filter(|block| block.decided >> bit & 1 != 0);
        decided.map_or(Owner::Default, |block| {
            let back = (block.starts << (63 - bit)).leading_zeros();
            block.owners.get(bit.wrapping_sub(back) as usize).copied().unwrap_or(Owner::Default)
        })
    }

    /// Iterates over the features in blocks of 64: the first feature of the block, and the owners.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = (u32, &FeatureBlock)> {
        (0_u32..).step_by(BLOCK).zip(&self.blocks)
    }
}

impl FeatureBlock {
    /// Iterates over the decided features as sequences with one owner: first feature, end (exclusive), owner.
    pub(crate) fn sequences(&self) -> impl Iterator<Item = (u32, u32, Owner)> {
        let mut starts = self.starts;
        let ends = self.starts | !self.decided;
        std::iter::from_fn(move || {
            let first = (starts != 0).then(|| starts.trailing_zeros())?;
            let owner = *self.owners.get(first as usize)?;
            let mut next = first;
            loop {
                starts &= starts - 1;
                next = (ends & u64::MAX << 1 << next).trailing_zeros();
                // Two masks of one run may be adjacent; they are one sequence.
                if starts.trailing_zeros() != next || self.owners.get(next as usize) != Some(&owner) {
                    return Some((first, next, owner));
                }
            }
        })
    }
}
