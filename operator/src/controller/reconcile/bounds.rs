//! Places and memory that the controllers of all listed namespaces share, so that bounds over all environments stay the
//! same.

use super::turns::ReconciliationPermits;
use crate::{
    publish::Permits,
    rollout::{Lists, nudge::Patches},
    source::realtime::StreamPermits,
    usage::CountsMemory,
    watched::pages::Pages,
};

/// Places and memory over all environments.
#[derive(Clone, Debug, Default)]
pub(super) struct Bounds {
    /// Pages of the lists that watches begin with.
    pub(super) pages: Pages,
    /// Reconciliations at one time.
    pub(super) reconciliations: ReconciliationPermits,
    /// Snapshots that are read back from the cluster.
    pub(super) objects: Permits,
    /// Notifications of pods.
    pub(super) patches: Patches,
    /// Lists of pods.
    pub(super) lists: Lists,
    /// Counts of used flags.
    pub(super) counts: CountsMemory,
    /// Streams of changes.
    pub(super) streams: StreamPermits,
}
