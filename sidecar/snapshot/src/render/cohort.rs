//! Cohorts: identities that match the same segments have the same flags, except for splits and identity overrides. The
//! assembled answers of the few most frequent cohorts are cached, so that nothing is decided and copied again.

mod splits;

use std::ops::Range;
use std::sync::{Arc, Mutex};

use crate::evaluate::{
    evaluation::{Evaluation, Winner},
    role::Role,
};
use splits::SplitFlag;

/// Number of cached cohorts.
const KEPT: usize = 4;

/// Maximum memory of a cached cohort in bytes: the bytes of its answer, sixteen per feature, and some per gap.
const MOST_BYTES: usize = 64 * 1024;

/// The bytes after the last flag.
pub(crate) const END: &[u8] = b"]}";

/// Minimum size of a shared part in bytes: gathering one more piece takes the system as long as copying this much.
const LEAST_BYTES: usize = 2 * 1024;

/// The answer that all identities of a cohort share.
#[derive(Debug, Default)]
pub(crate) struct Cohort {
    /// The array of flags without its opening bracket, and the brace of the enclosing object. Flags in gaps are
    /// missing.
    pub(crate) bytes: Vec<u8>,
    /// Start of each feature's object, and the end of the last one.
    pub(crate) starts: Vec<Start>,
    /// Flags that depend on the identity, in order.
    pub(crate) gaps: Vec<Gap>,
    /// The gaps that are splits.
    splits: Vec<SplitFlag>,
    /// Sum of the digests, as if every flag in a gap had its default.
    pub(crate) digest: u64,
}

/// Start of a flag, which is also the end of the previous one.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Start {
    /// Offset in the bytes.
    pub(crate) at: usize,
    /// Sum of the digests of all flags before it, minus the sum of the digests of their defaults.
    pub(crate) difference: u64,
}

/// Gap: a flag that may differ within the cohort.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gap {
    /// Row of the feature.
    pub(crate) feature: u32,
    pub(crate) own: Own,
}

/// The source of a flag that may differ within the cohort.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Own {
    /// The identity's own override, by its row.
    Override(u32),
    /// The identity's place in this split of the cohort.
    Split(u32),
}

impl Cohort {
    /// Adds a gap for a feature, and returns true, if the identity's place in a split decides it.
    pub(crate) fn leave(&mut self, evaluation: &Evaluation<'_>, role: Role, feature: u32, winner: Winner) -> bool {
        let Some(flag) = SplitFlag::of(evaluation, role, feature, winner) else { return false };
        self.gaps.push(Gap { feature, own: Own::Split(self.splits.len() as u32) });
        self.splits.push(flag);
        true
    }

    /// Releases unused capacity.
    pub(crate) fn shrink_to_fit(&mut self) {
        self.bytes.shrink_to_fit();
        self.starts.shrink_to_fit();
        self.gaps.shrink_to_fit();
        self.splits.shrink_to_fit();
    }

    /// Returns a split of the cohort.
    pub(crate) fn split(&self, number: u32) -> Option<&SplitFlag> {
        self.splits.get(number as usize)
    }

    /// Size of the cohort in bytes of memory.
    fn size(&self) -> usize {
        let gaps = size_of_val(self.gaps.as_slice()) + size_of_val(self.splits.as_slice());
        self.bytes.len() + size_of_val(self.starts.as_slice()) + gaps
    }

    /// Offset of the end of the last object.
    pub(crate) fn end(&self) -> usize {
        self.bytes.len().saturating_sub(END.len())
    }

    /// Returns the range of a flag, and its digest minus the default's digest.
    pub(crate) fn flag(&self, feature: u32) -> (Range<usize>, u64) {
        let start = |row| self.starts.get(row as usize).copied().unwrap_or_default();
        let (start, end) = (start(feature), start(feature.saturating_add(1)));
        (start.at..end.at, end.difference.wrapping_sub(start.difference))
    }

    /// Returns the longest range without a gap, or an empty range if it is too short to be sent in place.
    fn longest(&self, gaps: &[Gap]) -> Range<usize> {
        let (mut longest, mut from) = (0..0, 0);
        for gap in gaps {
            let (flag, _) = self.flag(gap.feature);
            // The comma after the last object may have to be removed, and shared bytes cannot change.
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

/// A part of an answer that a cohort shares. Its bytes stay valid as long as this value exists.
#[derive(Debug, Clone)]
pub struct Shared {
    cohort: Arc<Cohort>,
    part: Range<usize>,
}

impl Shared {
    /// Creates the shared part for identities without overrides.
    pub(crate) fn of(cohort: Cohort) -> Self {
        let part = cohort.longest(&cohort.gaps);
        Self { cohort: Arc::new(cohort), part }
    }

    /// Returns the shared part for identities with these gaps.
    pub(crate) fn between(self, gaps: &[Gap]) -> Self {
        Self { part: self.cohort.longest(gaps), ..self }
    }

    pub(crate) fn cohort(&self) -> &Cohort {
        &self.cohort
    }

    /// Returns the range in the cohort's bytes.
    pub(crate) fn part(&self) -> Range<usize> {
        self.part.clone()
    }
}

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        self.cohort.bytes.get(self.part.clone()).unwrap_or_default()
    }
}

/// The cached cohorts. The hash of a cohort's key chooses its place.
#[derive(Debug, Default)]
pub(crate) struct Cohorts(Mutex<[Place; KEPT]>);

#[derive(Debug, Default)]
struct Place {
    kept: Option<Kept>,
    /// Hash of the last key that was looked up here and is not cached.
    last: Option<u64>,
    /// Hash of a key whose answer is too large to be cached.
    refused: Option<u64>,
}

#[derive(Debug)]
struct Kept {
    role: Role,
    claims: Box<[u64]>,
    shared: Shared,
}

/// Key of a cohort: the role and the bits of the claims ([`crate::evaluate::choose`]).
#[derive(Clone, Copy)]
pub(crate) struct Key<'a> {
    pub(crate) role: Role,
    pub(crate) claims: &'a [u64],
}

impl Key<'_> {
    /// Hashes the key by splitmix64.
    fn hash(self) -> u64 {
        self.claims.iter().fold(self.role as u64, |hash, claims| {
            let mixed = (hash.rotate_left(1) ^ claims).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            (mixed ^ mixed >> 29).wrapping_mul(0x94d0_49bb_1331_11eb)
        })
    }
}

/// Result of a look-up.
pub(crate) enum Found {
    /// The cohort is cached.
    Kept(Shared),
    /// The cohort was looked up before, and should be cached.
    Again,
    /// The cohort is not cached.
    Nothing,
}

impl Cohorts {
    /// Looks up a cohort.
    pub(crate) fn find(&self, key: Key<'_>) -> Found {
        let hash = key.hash();
        // Never waits: if the lock is taken, the caller assembles the answer.
        let Ok(mut places) = self.0.try_lock() else { return Found::Nothing };
        let Some(place) = places.get_mut((hash >> 32) as usize % KEPT) else { return Found::Nothing };
        match &place.kept {
            Some(kept) if kept.role == key.role && *kept.claims == *key.claims => {
                // Another cohort must come twice in a row to take the place, so that two equally frequent ones do not
                // evict each other.
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

    /// Caches a cohort's answer, unless it is too large.
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
        // Some keys share a place: the cache has fewer places than keys.
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
        // Flags of these lengths, with gaps at the given features.
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
