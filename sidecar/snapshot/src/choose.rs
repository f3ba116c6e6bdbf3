//! Choosing what decides each feature: segments one after another, so that the work is what they override, not the
//! whole environment.

use crate::evaluation::{Evaluation, Winner};
use crate::layout::{BLOCK, NO_RANK, RANKS, Rank, Run, Segment, Table, Word};
use crate::percentage::{Percentages, Whose};
use crate::resolve;
use crate::role::Scope;
use crate::subject::Subject;

/// What decides each feature that is not simply its default.
#[derive(Debug, Default)]
pub(crate) struct Choice {
    /// A bit a feature: its answer may differ from the default.
    touched: Vec<u64>,
    /// By feature: the rank of a segment, [`NO_RANK`], or [`INDIVIDUAL`].
    winners: Vec<u16>,
    /// By feature: the row of the run that the rank is of, [`NOBODY`], or [`ASKED`].
    owners: Vec<u16>,
}

/// The identity has its own. No segment has this rank.
const INDIVIDUAL: u16 = RANKS as u16;
/// Nothing overrides it.
const NOBODY: u16 = u16::MAX;
/// What it is has to be asked: it is no matter of runs alone, or the run is beyond those that have a number.
const ASKED: u16 = u16::MAX - 1;

/// What decides features in a row.
pub(crate) enum Owner {
    /// They are what they are by default.
    Nobody,
    /// This row of `Runs`.
    Run(u32),
    /// Each is to be asked for.
    Asked,
}

impl Choice {
    fn clear(&mut self, features: usize) {
        self.touched.clear();
        self.touched.resize(features.div_ceil(64), 0);
        self.winners.clear();
        self.winners.resize(features, NO_RANK);
        self.owners.clear();
        self.owners.resize(features, NOBODY);
    }

    /// These features may differ from their defaults.
    fn touch(&mut self, first: u32, length: u32) {
        let (mut at, end) = (u64::from(first), u64::from(first) + u64::from(length));
        while at < end {
            let (bit, next) = (at % 64, (at | 63) + 1);
            let above = next.saturating_sub(end);
            if let Some(word) = self.touched.get_mut(at as usize / 64) {
                *word |= u64::MAX << bit & u64::MAX >> above;
            }
            at = next;
        }
    }

    /// This decides, whatever was proposed.
    pub(crate) fn set(&mut self, feature: u32, winner: Winner) {
        if let Some(place) = self.winners.get_mut(feature as usize) {
            *place = match winner {
                Winner::Default => NO_RANK,
                Winner::Segment(rank) => rank,
                Winner::Individual(_) => INDIVIDUAL,
            };
            self.ask(feature);
        }
    }

    /// What this is will be asked, unless a segment decides it.
    fn ask(&mut self, feature: u32) {
        if let Some(place) = self.owners.get_mut(feature as usize) {
            *place = ASKED;
            self.touch(feature, 1);
        }
    }

    /// The overrides of a run count where they are stronger than what was found so far: one comparison for several
    /// features at once, as processors have it.
    #[inline(always)]
    fn propose(&mut self, number: u32, first: u32, ranks: Table<'_, Rank, 2>) {
        let number = u16::try_from(number).map_or(ASKED, |number| number.min(ASKED));
        let places = first as usize..(first as usize).saturating_add(ranks.len());
        if let (Some(held), Some(owners)) = (self.winners.get_mut(places.clone()), self.owners.get_mut(places)) {
            for ((held, owner), Rank { rank }) in held.iter_mut().zip(owners).zip(ranks.iter()) {
                *owner = if rank < *held { number } else { *owner };
                *held = rank.min(*held);
            }
            self.touch(first, ranks.len() as u32);
        }
    }

    /// The features whose answers may differ from the default, as runs with one owner: the first, how many, and who.
    pub(crate) fn owned(&self) -> impl Iterator<Item = (u32, u32, Owner)> {
        self.touched().flat_map(|(mut first, mut owners)| {
            std::iter::from_fn(move || {
                let owner = *owners.first()?;
                let length = owners.iter().position(|other| *other != owner).unwrap_or(owners.len());
                owners = owners.get(length..).unwrap_or_default();
                let start = first;
                first += length as u32;
                Some((
                    start,
                    length as u32,
                    match owner {
                        NOBODY => Owner::Nobody,
                        ASKED => Owner::Asked,
                        run => Owner::Run(u32::from(run)),
                    },
                ))
            })
        })
    }

    /// The features that were touched, as runs: the first of each, and the owners.
    fn touched(&self) -> impl Iterator<Item = (u32, &[u16])> {
        (0_u32..).step_by(64).zip(&self.touched).flat_map(move |(first, word)| {
            let mut left = *word;
            std::iter::from_fn(move || {
                let start = (left != 0).then(|| left.trailing_zeros())?;
                let length = (left >> start).trailing_ones();
                left &= u64::MAX.checked_shl(start + length).unwrap_or(0);
                let run = (first + start) as usize;
                Some((first + start, self.owners.get(run..run + length as usize).unwrap_or_default()))
            })
        })
    }
}

impl Evaluation<'_> {
    /// Chooses for all features; the result is in `subject.choice`.
    pub(crate) fn choose(&self, subject: &mut Subject) {
        let view = &self.view;
        subject.choice.clear(view.features().len());
        if subject.identified {
            for feature in view.split_features().iter() {
                subject.choice.ask(feature.word);
            }
        }
        let (segments, runs, ranks) = (view.segments(), view.runs(), view.ranks());
        let blocks = if self.scope == Scope::None { 0 } else { view.blocks().len() };
        for block in 0..blocks {
            let mut left = self.candidates(subject, block);
            left = self.shares(subject, block, left);
            while left != 0 {
                let number = (block * BLOCK) as u32 + left.trailing_zeros();
                left &= left - 1;
                let Some(segment) = segments.get(number).filter(|segment| self.includes(subject, segment)) else {
                    continue;
                };
                let own = runs.range(segment.runs, segment.runs_length).iter();
                for (number, Run { feature, ranks: own, .. }) in (segment.runs..).zip(own) {
                    subject.choice.propose(number, feature, ranks.range(own.start, own.length));
                }
            }
        }
        if let Some(individual) = self.individual {
            for (row, item) in (0_u32..).zip(individual.items.iter()) {
                if let Some(feature) = view.feature_with_id(item.feature) {
                    subject.choice.set(feature, Winner::Individual(row));
                }
            }
        }
        resolve::settle(subject);
        if subject.identified && view.split_features().len() > 0 {
            self.place_in_splits(subject);
        }
    }

    /// Where the subject is in the splits of all features that nothing overrides: hashed together, that is cheaper.
    fn place_in_splits(&self, subject: &mut Subject) {
        let view = &self.view;
        let (splits, features, contexts) = (view.split_features(), view.features(), view.contexts());
        let mut places = std::mem::take(&mut subject.splits);
        places.clear();
        places.resize(splits.len(), f64::NAN);
        let mut tell = |row: usize, percentage| places.get_mut(row).into_iter().for_each(|place| *place = percentage);
        let mut percentages = Percentages::new();
        for (row, Word { word: number }) in splits.iter().enumerate() {
            if subject.choice.winners.get(number as usize) != Some(&NO_RANK) {
                continue;
            }
            let context = features.get(number).and_then(|feature| contexts.get(feature.context));
            if let Some(split) = context.and_then(|context| view.split(context)) {
                percentages.ask(row, view.bytes(split.seed), Whose(0), subject.key(view), &mut tell);
            }
        }
        percentages.tell(&mut tell);
        subject.splits = places;
    }

    /// Where the subject is in the split of a feature's default, if that was found out.
    pub(crate) fn place_in_split(&self, subject: &Subject, number: u32) -> Option<f64> {
        let features = self.view.split_features();
        let row = features.partition_point(|feature| feature.word < number);
        let place = subject.splits.get(row as usize).copied().filter(|place| !place.is_nan())?;
        (features.get(row)?.word == number).then_some(place)
    }

    /// What was chosen for a feature.
    pub(crate) fn chosen(&self, subject: &Subject, feature: u32) -> Winner {
        match subject.choice.winners.get(feature as usize).copied() {
            None | Some(NO_RANK) => Winner::Default,
            Some(INDIVIDUAL) => {
                let row = self.view.features().get(feature);
                row.and_then(|row| self.individually(&row)).unwrap_or(Winner::Default)
            }
            Some(rank) => Winner::Segment(rank),
        }
    }

    /// Does the subject belong to a segment that the index leaves?
    #[inline(always)]
    fn includes(&self, subject: &mut Subject, segment: &Segment) -> bool {
        let hits = subject.resolution.cycle_hits;
        let matched = self.applies(segment) && self.accepts(subject, segment.entry);
        // A verdict that was reached by cutting a cycle of flags is no verdict.
        matched && subject.resolution.cycle_hits == hits
    }
}
