//! Places and memory that the controllers of all listed namespaces share, so that bounds over all environments stay the
//! same.

use super::turns::Places;
use crate::{
    publish::SnapshotReads,
    rollout::{Lists, nudge::Patches},
    source::realtime::StreamPermits,
    usage::CountsMemory,
    watched::pages::Pages,
};

/// Places and memory over all environments.
#[derive(Clone, Debug, Default)]
pub(super) struct Shared {
    /// Pages of the lists that watches begin with.
    pub(super) pages: Pages,
    /// Reconciliations at one time.
    pub(super) reconciliations: Places,
    /// Snapshots that are read back from the cluster.
    pub(super) reads: SnapshotReads,
    /// Notifications of pods.
    pub(super) patches: Patches,
    /// Lists of pods.
    pub(super) lists: Lists,
    /// Counts of used flags.
    pub(super) counts: CountsMemory,
    /// Streams of changes.
    pub(super) streams: StreamPermits,
}
