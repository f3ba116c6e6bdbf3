//! Uses of flags: those that SDKs report, and single flags that OFREP evaluates.
//!
//! Each feature has a count, at its number in the snapshot that is served, so that counting searches for nothing. When
//! another snapshot is served, the counts move to the numbers of the same names. A count never decreases while the
//! process runs: a reader computes what is new from two reads, and may repeat a read whose answer was lost. The one
//! exception is a feature that was removed: the counts of the [`REMOVED_MAX`] features that were removed last are kept,
//! and the count of any other starts at 0 again if the feature comes back.
//!
//! Names come from clients. So the sidecar counts by name only features of its snapshots, and all other names together.

use std::collections::{BTreeMap, HashMap};
use std::sync::MutexGuard;

use remora_snapshot::Snapshot;

use crate::lock::Lock;

/// Number of features whose counts are kept after a snapshot without them is served, in case that they come back.
const REMOVED_MAX: usize = 1024;
/// Bytes of the names of these features.
const REMOVED_BYTES: usize = 256 << 10;

/// Counts of the uses of an environment's flags.
#[derive(Debug, Default)]
pub(crate) struct Uses(Lock<Counts>);

/// Number of a snapshot in the order in which the environment's snapshots were loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Generation(u64);

impl Generation {
    /// Returns the generation of the next snapshot.
    pub(crate) fn next(self) -> Generation {
        Generation(self.0.wrapping_add(1))
    }
}

/// Count of a feature that is not in the snapshot.
#[derive(Debug, Clone, Copy)]
struct Removed {
    count: u64,
    /// Generation of the first snapshot without the feature.
    since: Generation,
}

/// The counts.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Generation of the snapshot that `by_number` belongs to.
    generation: Generation,
    /// Counts by the number of the feature.
    by_number: Vec<u64>,
    /// Counts of features that are not in this snapshot, and of requests that were answered by an earlier one.
    by_name: BTreeMap<String, Removed>,
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
        let numbers = numbers(to);
        let moved: Vec<_> = from.into_iter().flat_map(names).map(|(name, _)| (name, numbers.get(name))).collect();
        let by_number = vec![0; to.features()];
        let mut counts = self.lock();
        let before = std::mem::replace(&mut counts.by_number, by_number);
        counts.generation = generation;
        for (count, (name, place)) in before.into_iter().zip(moved).filter(|(count, _)| *count > 0) {
            match place {
                Some(place) => counts.add_to(*place, count),
                None => counts.add_to_name(name, count),
            }
        }
        let Counts { by_number, by_name, .. } = &mut *counts;
        by_name.retain(|name, removed| {
            let place = numbers.get(name.as_str());
            let count = place.and_then(|feature| by_number.get_mut(*feature as usize));
            count.map(|count| *count = count.saturating_add(removed.count)).is_none()
        });
        counts.drop_oldest();
        serve();
    }
}

/// Returns the numbers of features by their names. The look-ups of the snapshot itself would not do: its table has a
/// hash without a secret key, so that names can be chosen that all begin at one row.
fn numbers<B: AsRef<[u8]>>(snapshot: &Snapshot<B>) -> HashMap<&str, u32> {
    names(snapshot).collect()
}

/// Lists the names of features with their numbers. It ends where the names have more bytes than the snapshot, as only in a
/// snapshot that the writer did not write.
fn names<B: AsRef<[u8]>>(snapshot: &Snapshot<B>) -> impl Iterator<Item = (&str, u32)> {
    let mut left = snapshot.bytes();
    (0..snapshot.features() as u32).map_while(move |feature| {
        let name = snapshot.feature_name(feature)?;
        left = left.checked_sub(name.len())?;
        Some((name, feature))
    })
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
            let count = count.saturating_add(self.by_name.get(name).map_or(0, |removed| removed.count));
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
        let since = self.generation;
        let removed = self.by_name.entry(name.to_owned()).or_insert(Removed { count: 0, since });
        removed.count = removed.count.saturating_add(uses);
    }

    /// Drops the counts of the features that were removed first, beyond [`REMOVED_MAX`] and [`REMOVED_BYTES`].
    fn drop_oldest(&mut self) {
        let (mut features, mut bytes) = (self.by_name.len(), self.by_name.keys().map(String::len).sum::<usize>());
        if features <= REMOVED_MAX && bytes <= REMOVED_BYTES {
            return;
        }
        let mut oldest: Vec<_> = std::mem::take(&mut self.by_name).into_iter().collect();
        oldest.sort_unstable_by(|(one, a), (other, b)| (a.since, one).cmp(&(b.since, other)));
        let kept = oldest.into_iter().skip_while(|(name, _)| {
            let is_beyond = features > REMOVED_MAX || bytes > REMOVED_BYTES;
            (features, bytes) = (features.saturating_sub(1), bytes.saturating_sub(name.len()));
            is_beyond
        });
        self.by_name = kept.collect();
    }
}

#[cfg(test)]
mod tests {
    use remora_snapshot::model::{self, Context, Feature};
    use remora_snapshot::write;

    use super::*;

    fn snapshot(names: impl IntoIterator<Item = String>) -> Snapshot<Vec<u8>> {
        let feature = |(id, name): (i64, String)| {
            let default = Context { enabled: true, value: "1".to_owned(), split: None };
            Feature { id, name, kind: "STANDARD".to_owned(), served: true, server_only: false, default }
        };
        let features = (1..).zip(names).map(feature).collect();
        let environment = model::Environment { client_key: "key".to_owned(), features, ..Default::default() };
        Snapshot::read(write(&environment, 1_000_000).unwrap().files.swap_remove(0).bytes).unwrap()
    }

    #[test]
    fn features_removed_first_lose_their_counts_first() {
        // The names of the features that are removed last come last in the alphabet.
        let first: Vec<String> = (0..10).map(|number| format!("a{number}")).collect();
        let second: Vec<String> = (0..REMOVED_MAX).map(|number| format!("b{number}")).collect();
        let all = || first.iter().chain(&second).cloned();
        let (none, all_of_them, without_first) = (snapshot([]), snapshot(all()), snapshot(second.clone()));
        let uses = Uses::default();
        let mut generation = Generation::default();
        let mut serve = |from: Option<&Snapshot<Vec<u8>>>, to: &Snapshot<Vec<u8>>| {
            generation = generation.next();
            uses.move_to(from, to, generation, || ());
            generation
        };
        let counted = serve(None, &all_of_them);
        for feature in 0..all_of_them.features() as u32 {
            uses.lock().add(feature, 1, &all_of_them, counted);
        }
        serve(Some(&all_of_them), &without_first);
        serve(Some(&without_first), &none);
        serve(Some(&none), &all_of_them);
        let mut kept = Vec::new();
        uses.lock().each(&all_of_them, |name, count| kept.push((name.to_owned(), count)));
        assert_eq!(kept, second.iter().map(|name| (name.clone(), 1)).collect::<Vec<_>>());
    }

    #[test]
    fn names_of_removed_features_take_bounded_memory() {
        let names = (0..100).map(|number| format!("{number}{}", "x".repeat(8_000)));
        let (all, none, uses) = (snapshot(names), snapshot([]), Uses::default());
        let (first, second) = (Generation::default(), Generation::default().next());
        uses.move_to(None, &all, first, || ());
        for feature in 0..all.features() as u32 {
            uses.lock().add(feature, 1, &all, first);
        }
        uses.move_to(Some(&all), &none, second, || ());
        let kept: usize = uses.lock().by_name.keys().map(String::len).sum();
        assert!(kept > REMOVED_BYTES / 2 && kept <= REMOVED_BYTES, "{kept}");
    }

    #[test]
    fn names_are_found_by_hash_with_secret_key() {
        let snapshot = snapshot((0..1_000).map(|number| number.to_string()));
        let order = || numbers(&snapshot).into_keys().map(str::to_owned).collect::<Vec<_>>();
        // Each map has a key of its own, so that no choice of names makes all of them begin at one row.
        assert_ne!(order(), order());
    }
}
