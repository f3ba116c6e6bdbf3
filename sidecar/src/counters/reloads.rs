//! Results of the checks of a volume.

use std::sync::atomic::{AtomicU64, Ordering};

/// Result of a check of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reload {
    /// Another revision or other overrides are served from now on.
    Swapped,
    /// New files with the same content are served. Answers do not change.
    Same,
    /// The core file was refused.
    Refused,
    /// A file beside the core was refused. The others are served.
    PartRefused,
    /// The volume or its core file is missing.
    Missing,
    /// A file could not be read.
    Unreadable,
    /// Parts of the core are missing, or belong to another revision than the core file names.
    Incomplete,
}

/// Counters by [`Reload`].
#[derive(Debug, Default)]
pub(crate) struct Reloads([AtomicU64; 7]);

impl Reloads {
    /// Values of the label `result`, in the order of [`Reloads::counts`].
    pub(crate) const LABELS: [&str; 7] =
        ["swapped", "same", "refused", "part_refused", "missing", "unreadable", "incomplete"];

    /// Increments the counter of `reload`.
    pub(crate) fn count(&self, reload: Reload) {
        if let Some(counter) = self.0.get(reload as usize) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The counters.
    pub(crate) fn counts(&self) -> &[AtomicU64] {
        &self.0
    }
}
