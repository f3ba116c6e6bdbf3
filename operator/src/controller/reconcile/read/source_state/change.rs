//! Facts about a source that change its state.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use crate::{
    controller::reconcile::error::Error,
    source::fetch::{CachedVersion, ContentDigest},
};

/// Properties of the last document that a stream of changes needs: the key to subscribe with, and the time to compare
/// events with.
#[derive(Debug)]
pub(crate) struct Provenance {
    pub(crate) client_key: String,
    pub(crate) updated_at: Option<Timestamp>,
}

/// Fact about the source that a reconciliation has found.
#[derive(Debug)]
pub(crate) enum SourceChange<'a> {
    /// The Secret with the key was read at this time, and the source accepted the key.
    KeyRead(Instant),
    /// The Secret still holds the refused key. No request was sent.
    StillRefused,
    /// The fetch waits for other fetches, or for memory.
    NoRoom {
        /// Size in bytes of a document that is larger than expected.
        expected: Option<usize>,
    },
    /// A document arrived.
    Arrived { bytes: usize, digest: ContentDigest },
    /// The source still has the document that was compiled last.
    Unchanged {
        /// Newer version of that document.
        version: Option<CachedVersion>,
        /// True if its content was compared, not only its time of change.
        is_content_compared: bool,
    },
    /// The document that arrived was compiled.
    Compiled { version: CachedVersion, provenance: Provenance },
    /// The fetch failed, or a later step with its document.
    Failed(&'a Error),
}

/// Input of the time of the next fetch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    pub(crate) now: Instant,
    /// Time between two fetches.
    pub(crate) interval: Duration,
    /// Random number from 0 to 1.
    pub(crate) chance: f64,
}

impl Timing {
    /// Returns the current time, with a random number.
    pub(crate) fn of(interval: Duration) -> Self {
        Self { now: Instant::now(), interval, chance: fastrand::f64() }
    }
}
