//! Results of the checks of a volume.

use std::sync::atomic::{AtomicU64, Ordering};

label! {
    /// Result of a check of a volume.
    Reload {
        /// Another revision or other overrides are served from now on.
        Swapped = "swapped",
        /// New files with the same content are served. Answers do not change.
        Same = "same",
        /// The core file was refused.
        Refused = "refused",
        /// A file beside the core was refused. The others are served.
        PartRefused = "part_refused",
        /// The volume or its core file is missing.
        Missing = "missing",
        /// A file could not be read.
        Unreadable = "unreadable",
        /// Parts of the core are missing, or belong to another revision than the core file names.
        Incomplete = "incomplete",
    }
}

/// Counters by [`Reload`].
#[derive(Debug, Default)]
pub(crate) struct Reloads([AtomicU64; Reload::ALL.len()]);

impl Reloads {
    /// Increments the counter of `reload`.
    pub(crate) fn count(&self, reload: Reload) {
        if let Some(counter) = self.0.get(reload as usize) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Iterates over the results and their counts.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (Reload, u64)> {
        Reload::ALL.iter().zip(&self.0).map(|(reload, counter)| (*reload, counter.load(Ordering::Relaxed)))
    }

    /// Returns the count of `reload`.
    #[cfg(test)]
    pub(crate) fn of(&self, reload: Reload) -> u64 {
        self.0[reload as usize].load(Ordering::Relaxed)
    }
}
