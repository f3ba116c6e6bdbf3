//! Cohorts: who belong to the same segments have the same flags, but for splits and what somebody has alone. For the few
//! cohorts that ask again and again, those are kept as they were put together: nothing is chosen and copied again.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use crate::evaluation::Winner;
use crate::role::Role;

/// How many cohorts are kept. One takes as much memory as its answer has bytes.
const KEPT: usize = 4;

/// The longest answer of which something is kept.
const MOST_BYTES: usize = 64 * 1024;

/// To gather one more piece takes the system as long as to copy this much.
const LEAST_BYTES: usize = 2 * 1024;

/// What all of a cohort have in common.
#[derive(Debug, Default)]
pub(crate) struct Cohort {
    /// The array of flags without its opening bracket. Objects have a comma behind them, the last one the closing bracket and
    /// the brace of the object around it; if there is a gap behind it, a comma, too.
    pub(crate) bytes: Vec<u8>,
    /// Where flags are missing that depend on the identity, in order.
    pub(crate) gaps: Vec<Gap>,
    /// The sum of the digests, as if all in the gaps were what they are by default.
    pub(crate) digest: u64,
}

/// A flag with variants.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gap {
    /// Its row.
    pub(crate) feature: u32,
    /// What decides it.
    pub(crate) winner: Winner,
    /// In the bytes.
    pub(crate) place: usize,
}

impl Cohort {
    /// The bytes between gaps.
    pub(crate) fn stretches(&self) -> impl Iterator<Item = Range<usize>> {
        let starts = std::iter::once(0).chain(self.gaps.iter().map(|gap| gap.place));
        let ends = self.gaps.iter().map(|gap| gap.place).chain([self.bytes.len()]);
        starts.zip(ends).map(|(start, end)| start..end)
    }

    /// Is a flag missing behind all others?
    pub(crate) fn ends_in_gap(&self) -> bool {
        self.gaps.last().is_some_and(|gap| gap.place == self.bytes.len())
    }

    /// The longest stretch without the comma behind it, if it is long enough to be sent from where it is.
    fn longest(&self) -> Range<usize> {
        let longest = self.stretches().max_by_key(Range::len).unwrap_or_default();
        let comma = usize::from(longest.end < self.bytes.len() || self.ends_in_gap());
        let longest = longest.start..longest.end.saturating_sub(comma);
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
    pub(crate) fn of(cohort: Cohort) -> Self {
        let part = cohort.longest();
        Self { cohort: Arc::new(cohort), part }
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

/// Who belongs to a cohort: who may see the same, and has the same claims ([`crate::choose`]).
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
        if shared.cohort.bytes.len() > MOST_BYTES {
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
        Shared::of(Cohort { bytes: vec![b'x'; length], gaps: Vec::new(), digest: 0 })
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
    fn the_longest_stretch_has_no_comma_behind_it() {
        let part = |length, gaps: &[usize]| {
            let gap = |place: &usize| Gap { feature: 0, winner: Winner::Default, place: *place };
            let gaps = gaps.iter().map(gap).collect();
            Shared::of(Cohort { bytes: vec![b'x'; length], gaps, digest: 0 }).part()
        };
        let long = LEAST_BYTES * 2;
        assert_eq!(part(long, &[]), 0..long);
        assert_eq!(part(long, &[0]), 0..long, "nothing is behind it");
        assert_eq!(part(long, &[long]), 0..long - 1);
        assert_eq!(part(long, &[long, long]), 0..long - 1);
        assert_eq!(part(long, &[10]), 10..long);
        assert_eq!(part(long, &[long - 10]), 0..long - 11);
        assert_eq!(part(LEAST_BYTES - 1, &[]), 0..0);
        assert_eq!(part(0, &[]), 0..0);
    }
}
