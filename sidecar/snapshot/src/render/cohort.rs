//! Cohorts: who belong to the same segments have the same flags, but for splits and what somebody has alone. For the few
//! cohorts that ask again and again, those are kept as they were put together: nothing is chosen and copied again.

mod splits;

use std::ops::Range;
use std::sync::{Arc, Mutex};

use crate::evaluate::{
    evaluation::{Evaluation, Winner},
    role::Role,
};
use splits::SplitFlag;

/// How many cohorts are kept.
const KEPT: usize = 4;

/// How much memory one of them may take: as much as its answer has bytes, sixteen for each feature, and some for each gap.
const MOST_BYTES: usize = 64 * 1024;

/// What is behind the last flag.
pub(crate) const END: &[u8] = b"]}";

/// To gather one more piece takes the system as long as to copy this much.
const LEAST_BYTES: usize = 2 * 1024;

/// What all of a cohort have in common.
#[derive(Debug, Default)]
pub(crate) struct Cohort {
    /// The array of flags without its opening bracket, and the brace of the object around it. What is in the gaps is missing.
    pub(crate) bytes: Vec<u8>,
    /// Where the object of each feature begins; and behind the last one.
    pub(crate) starts: Vec<Start>,
    /// The flags that depend on the identity, in order.
    pub(crate) gaps: Vec<Gap>,
    /// Those of them that are splits.
    splits: Vec<SplitFlag>,
    /// The sum of the digests, as if all in the gaps were what they are by default.
    pub(crate) digest: u64,
}

/// Where a flag begins, and the one before it ends.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Start {
    /// In the bytes.
    pub(crate) at: usize,
    /// By how much the digests of all flags before it differ from those of their defaults.
    pub(crate) difference: u64,
}

/// A flag that others of the cohort need not have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gap {
    /// Its row.
    pub(crate) feature: u32,
    pub(crate) own: Own,
}

/// What decides a flag that others need not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Own {
    /// The identity's own override, by its row.
    Override(u32),
    /// The identity, between the variants of this split of the cohort.
    Split(u32),
}

impl Cohort {
    /// Leaves a gap for a feature, if the identity decides it between variants; tells whether it did.
    pub(crate) fn leave(&mut self, evaluation: &Evaluation<'_>, role: Role, feature: u32, winner: Winner) -> bool {
        let Some(flag) = SplitFlag::of(evaluation, role, feature, winner) else { return false };
        self.gaps.push(Gap { feature, own: Own::Split(self.splits.len() as u32) });
        self.splits.push(flag);
        true
    }

    /// Gives back room that is not needed.
    pub(crate) fn shrink_to_fit(&mut self) {
        self.bytes.shrink_to_fit();
        self.starts.shrink_to_fit();
        self.gaps.shrink_to_fit();
        self.splits.shrink_to_fit();
    }

    /// A split of the cohort.
    pub(crate) fn split(&self, number: u32) -> Option<&SplitFlag> {
        self.splits.get(number as usize)
    }

    /// How much memory it takes.
    fn size(&self) -> usize {
        let gaps = size_of_val(self.gaps.as_slice()) + size_of_val(self.splits.as_slice());
        self.bytes.len() + size_of_val(self.starts.as_slice()) + gaps
    }

    /// Where the last object ends.
    pub(crate) fn end(&self) -> usize {
        self.bytes.len().saturating_sub(END.len())
    }

    /// Where a flag of the cohort is, and by how much its digest differs from that of the default.
    pub(crate) fn flag(&self, feature: u32) -> (Range<usize>, u64) {
        let start = |row| self.starts.get(row as usize).copied().unwrap_or_default();
        let (start, end) = (start(feature), start(feature.saturating_add(1)));
        (start.at..end.at, end.difference.wrapping_sub(start.difference))
    }

    /// The longest part that somebody with these gaps has in one piece, if it is long enough to be sent from where it is.
    fn longest(&self, gaps: &[Gap]) -> Range<usize> {
        let (mut longest, mut from) = (0..0, 0);
        for gap in gaps {
            let (flag, _) = self.flag(gap.feature);
            // The comma behind the last object may have to be taken away, and what is shared stays as it is.
            let stretch = from..flag.start.saturating_sub(1);
            if stretch.len() > longest.len() {
                longest = stretch;
            }
            from = flag.end;
        }
        if from < self.end() && self.bytes.len() - from > longest.len() {
            longest = from..self.bytes.len();
        }
        if longest.len() < LEAST_BYTES { 0..0 } else { longest }
    }
}

/// A part of an answer that others have as well, kept as long as this is.
#[derive(Debug, Clone)]
pub struct Shared {
    cohort: Arc<Cohort>,
    part: Range<usize>,
}

impl Shared {
    /// What those have who have no flags of their own.
    pub(crate) fn of(cohort: Cohort) -> Self {
        let part = cohort.longest(&cohort.gaps);
        Self { cohort: Arc::new(cohort), part }
    }

    /// What is left of it to somebody with these gaps.
    pub(crate) fn between(self, gaps: &[Gap]) -> Self {
        Self { part: self.cohort.longest(gaps), ..self }
    }

    pub(crate) fn cohort(&self) -> &Cohort {
        &self.cohort
    }

    /// Which of the cohort's bytes.
    pub(crate) fn part(&self) -> Range<usize> {
        self.part.clone()
    }
}

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        self.cohort.bytes.get(self.part.clone()).unwrap_or_default()
    }
}

/// The cohorts that are kept, each at a place that its segments say.
#[derive(Debug, Default)]
pub(crate) struct Cohorts(Mutex<[Place; KEPT]>);

#[derive(Debug, Default)]
struct Place {
    kept: Option<Kept>,
    /// Who was here last, of those that are not kept: a hash of its key.
    last: Option<u64>,
    /// Who has too long an answer.
    refused: Option<u64>,
}

#[derive(Debug)]
struct Kept {
    role: Role,
    claims: Box<[u64]>,
    shared: Shared,
}

/// Who belongs to a cohort: who may see the same, and has the same claims ([`crate::evaluate::choose`]).
#[derive(Clone, Copy)]
pub(crate) struct Key<'a> {
    pub(crate) role: Role,
    pub(crate) claims: &'a [u64],
}

impl Key<'_> {
    /// By splitmix64.
    fn hash(self) -> u64 {
        self.claims.iter().fold(self.role as u64, |hash, claims| {
            let mixed = (hash.rotate_left(1) ^ claims).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            (mixed ^ mixed >> 29).wrapping_mul(0x94d0_49bb_1331_11eb)
        })
    }
}

/// What is known of a cohort.
pub(crate) enum Found {
    /// Its flags are kept.
    Kept(Shared),
    /// It was here before, and should be kept.
    Again,
    /// Nothing.
    Nothing,
}

impl Cohorts {
    /// Looks for a cohort.
    pub(crate) fn find(&self, key: Key<'_>) -> Found {
        let hash = key.hash();
        // Nobody waits: who finds it locked puts the answer together.
        let Ok(mut places) = self.0.try_lock() else { return Found::Nothing };
        let Some(place) = places.get_mut((hash >> 32) as usize % KEPT) else { return Found::Nothing };
        match &place.kept {
            Some(kept) if kept.role == key.role && *kept.claims == *key.claims => {
                // Others have to come twice in a row, so that two of equal right do not drive each other out.
                place.last = None;
                Found::Kept(kept.shared.clone())
            }
            _ if place.refused == Some(hash) => Found::Nothing,
            _ if place.last == Some(hash) => Found::Again,
            _ => {
                place.last = Some(hash);
                Found::Nothing
            }
        }
    }

    /// Keeps what a cohort has, if it is not too much.
    pub(crate) fn keep(&self, key: Key<'_>, shared: &Shared) {
        let hash = key.hash();
        let Ok(mut places) = self.0.try_lock() else { return };
        let Some(place) = places.get_mut((hash >> 32) as usize % KEPT) else { return };
        if shared.cohort.size() > MOST_BYTES {
            place.refused = Some(hash);
            return;
        }
        place.last = None;
        place.kept = Some(Kept { role: key.role, claims: key.claims.into(), shared: shared.clone() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(length: usize) -> Shared {
        Shared::of(Cohort { bytes: vec![b'x'; length], ..Cohort::default() })
    }

    #[test]
    fn who_comes_twice_in_a_row_is_kept_and_stays() {
        let cohorts = Cohorts::default();
        let key = |claims| Key { role: Role::Client, claims };
        // Places are few: some of these share one.
        let keys: Vec<[u64; 1]> = (0..64).map(|number| [number]).collect();
        for claims in &keys {
            assert!(matches!(cohorts.find(key(claims)), Found::Nothing), "it was not here before");
        }
        let [first, second, ..] = keys.as_slice() else { panic!("there are 64") };
        assert!(matches!(cohorts.find(key(first)), Found::Nothing));
        assert!(matches!(cohorts.find(key(first)), Found::Again));
        cohorts.keep(key(first), &shared(10));
        for claims in &keys {
            assert!(!matches!(cohorts.find(key(claims)), Found::Again));
            assert!(matches!(cohorts.find(key(first)), Found::Kept(_)));
        }
        assert!(!matches!(cohorts.find(Key { role: Role::Server, claims: first }), Found::Kept(_)));
        assert!(!matches!(cohorts.find(key(second)), Found::Kept(_)));
    }

    #[test]
    fn too_much_is_not_kept_and_not_put_together_again() {
        let cohorts = Cohorts::default();
        let key = Key { role: Role::Client, claims: &[1] };
        assert!(matches!(cohorts.find(key), Found::Nothing));
        assert!(matches!(cohorts.find(key), Found::Again));
        cohorts.keep(key, &shared(MOST_BYTES + 1));
        assert!(matches!(cohorts.find(key), Found::Nothing));
        assert!(matches!(cohorts.find(key), Found::Nothing));
    }

    #[test]
    fn the_longest_stretch_leaves_a_comma_behind() {
        let long = LEAST_BYTES * 2;
        // Flags of these lengths, the numbered ones missing.
        let part = |lengths: &[usize], gaps: &[u32]| {
            let mut cohort = Cohort::default();
            let starts = lengths.iter().scan(0, |sum, length| Some(std::mem::replace(sum, *sum + length)));
            let length = lengths.iter().sum();
            cohort.starts = starts.chain([length]).map(|at| Start { at, difference: 0 }).collect();
            cohort.bytes = vec![b'x'; length + END.len()];
            let gap = |feature: &u32| Gap { feature: *feature, own: Own::Override(0) };
            Shared::of(cohort).between(&gaps.iter().map(gap).collect::<Vec<_>>()).part()
        };
        assert_eq!(part(&[long], &[]), 0..long + 2);
        assert_eq!(part(&[0, long], &[0]), 0..long + 2);
        assert_eq!(part(&[10, long], &[0]), 10..long + 12);
        assert_eq!(part(&[long, 0], &[1]), 0..long - 1);
        assert_eq!(part(&[long, 10], &[1]), 0..long - 1);
        assert_eq!(part(&[long, 10, 0, 20], &[1, 2]), 0..long - 1);
        assert_eq!(part(&[long, 10, long, 10, 30], &[1, 3]), 0..long - 1, "the first of two");
        assert_eq!(part(&[long], &[0]), 0..0);
        assert_eq!(part(&[LEAST_BYTES - 3], &[]), 0..0);
        assert_eq!(part(&[], &[]), 0..0);
    }
}
