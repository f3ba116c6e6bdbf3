//! Uses of flags: those that SDKs report, and single flags that OFREP evaluates.
//!
//! Each feature has a count, at its number in the snapshot that is served, so that counting searches for nothing. When
//! another snapshot is served, the counts move to the numbers of the same names. A count never decreases while the
//! process runs: a reader computes what is new from two reads, and may repeat a read whose answer was lost.
//!
//! Names come from clients. So the sidecar counts by name only features of its snapshots, and all other names together.

use std::collections::BTreeMap;
use std::sync::MutexGuard;

use remora_snapshot::{Snapshot, StepBudget};

use crate::lock::Lock;

/// Number of features whose counts are kept after a snapshot without them is served, in case that they come back.
const REMOVED_MAX: usize = 1024;

/// Counts of the uses of an environment's flags.
#[derive(Debug, Default)]
pub(crate) struct Uses(Lock<Counts>);

/// Number of a snapshot in the order in which the environment's snapshots were loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Generation(u64);

impl Generation {
    /// Returns the generation of the next snapshot.
    pub(crate) fn next(self) -> Generation {
        Generation(self.0.wrapping_add(1))
    }
}

/// The counts.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Generation of the snapshot that `by_number` belongs to.
    generation: Generation,
    /// Counts by the number of the feature.
    by_number: Vec<u64>,
    /// Counts of features that are not in this snapshot, and of requests that were answered by an earlier one.
    by_name: BTreeMap<String, u64>,
    unknown: u64,
}

impl Uses {
    /// Locks the counts, to add to them or to read them.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock()
    }

    /// Moves the counts to the numbers of another snapshot. Calls `serve`, which makes `to` the snapshot that is served,
    /// before anybody can count again.
    pub(crate) fn move_to<B: AsRef<[u8]>>(
        &self,
        from: Option<&Snapshot<B>>,
        to: &Snapshot<B>,
        generation: Generation,
        serve: impl FnOnce(),
    ) {
        // Requests wait for the lock, so everything that takes long comes before it.
        let names = from.map_or(0, Snapshot::features) as u32;
        let name = |feature| from.and_then(|from| from.feature_name(feature));
        let places: Vec<Option<u32>> =
            (0..names).map(|feature| to.feature_number(name(feature)?, &StepBudget::default())).collect();
        let by_number = vec![0; to.features()];
        let mut counts = self.lock();
        let before = std::mem::replace(&mut counts.by_number, by_number);
        counts.generation = generation;
        for ((feature, count), place) in (0..).zip(before).zip(places).filter(|((_, count), _)| *count > 0) {
            match (place, name(feature)) {
                (Some(place), _) => counts.add_to(place, count),
                (None, Some(name)) => counts.add_to_name(name, count),
                (None, None) => {}
            }
        }
        for (name, count) in std::mem::take(&mut counts.by_name) {
            match to.feature_number(&name, &StepBudget::default()) {
                Some(feature) => counts.add_to(feature, count),
                None => counts.add_to_name(&name, count),
            }
        }
        while counts.by_name.len() > REMOVED_MAX {
            counts.by_name.pop_last();
        }
        serve();
    }
}

impl Counts {
    /// Adds uses of a feature of the snapshot of this generation.
    pub(crate) fn add<B: AsRef<[u8]>>(
        &mut self,
        feature: u32,
        uses: u64,
        snapshot: &Snapshot<B>,
        generation: Generation,
    ) {
        if self.generation == generation {
            self.add_to(feature, uses);
        } else if let Some(name) = snapshot.feature_name(feature) {
            self.add_to_name(name, uses);
        }
    }

    /// Adds uses of a name that no feature has.
    pub(crate) fn add_unknown(&mut self, uses: u64) {
        self.unknown = self.unknown.saturating_add(uses);
    }

    /// Number of uses of names that no feature has.
    pub(crate) fn unknown(&self) -> u64 {
        self.unknown
    }

    /// Calls `with` for each flag of the snapshot that was used. `snapshot` is the one that is served.
    pub(crate) fn each<'s, B: AsRef<[u8]>>(&self, snapshot: &'s Snapshot<B>, mut with: impl FnMut(&'s str, u64)) {
        for (feature, count) in (0..).zip(&self.by_number) {
            let Some(name) = snapshot.feature_name(feature) else { continue };
            let count = count.saturating_add(self.by_name.get(name).copied().unwrap_or_default());
            if count > 0 {
                with(name, count);
            }
        }
    }

    fn add_to(&mut self, feature: u32, uses: u64) {
        if let Some(count) = self.by_number.get_mut(feature as usize) {
            *count = count.saturating_add(uses);
        }
    }

    #[cold]
    fn add_to_name(&mut self, name: &str, uses: u64) {
        let count = self.by_name.entry(name.to_owned()).or_default();
        *count = count.saturating_add(uses);
    }
}
