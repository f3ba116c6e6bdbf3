//! Flag uses that SDKs report, by the flag's name.
//!
//! The names come from clients. So the sidecar keeps only names of the environment's own features, never more of them
//! than it has features, and counts all others together.

use std::collections::BTreeMap;
use std::sync::MutexGuard;

use remora_snapshot::{Budget, Snapshot};

use crate::lock::Lock;

/// Counts of the uses of an environment's flags.
#[derive(Debug, Default)]
pub(crate) struct Uses(Lock<Counts>);

/// Counts by name.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    known: BTreeMap<String, u64>,
    other: u64,
}

impl Uses {
    /// Locks the counts, to add to them.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock()
    }

    /// Calls `with` for every flag that was used.
    pub(crate) fn each(&self, mut with: impl FnMut(&str, u64)) {
        self.lock().known.iter().for_each(|(flag, count)| with(flag, *count));
    }

    /// Number of uses of flags that do not exist.
    pub(crate) fn other(&self) -> u64 {
        self.lock().other
    }
}

impl Counts {
    /// Adds `uses` of `flag`. `budget` limits the look-ups of one body.
    pub(crate) fn add<B: AsRef<[u8]>>(&mut self, flag: &str, uses: u64, snapshot: &Snapshot<B>, budget: &Budget) {
        if let Some(count) = self.known.get_mut(flag) {
            *count = count.saturating_add(uses);
        } else if snapshot.has_feature(flag, budget) {
            self.known.insert(flag.to_owned(), uses);
            if self.known.len() > snapshot.features() {
                // Some names belong to features that were removed and are not counted any more.
                self.known.retain(|flag, _| snapshot.has_feature(flag, &Budget::default()));
            }
        } else {
            self.other = self.other.saturating_add(uses);
        }
    }
}
