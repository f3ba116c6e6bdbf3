//! Outcomes of the steps, from which the report follows.

use super::observe::Observed;
use crate::{
    api::{IdleFlags, Pods},
    controller::report::{FetchOutcome, Pin, Publication},
};

/// Outcome of the steps that a suspended environment skips.
pub(super) struct WorkOutcome {
    pub(super) fetch: FetchOutcome,
    pub(super) pin: Pin,
    pub(super) publication: Publication,
    /// Revision that was published.
    pub(super) revision: Option<String>,
}

impl WorkOutcome {
    /// Returns the outcome if no document was read and no snapshot was chosen.
    pub(super) fn without_work(fetch: FetchOutcome, publication: Publication) -> Self {
        Self { fetch, pin: Pin::None, publication, revision: None }
    }

    /// Returns the revision that is published after the steps.
    pub(super) fn published<'a>(&'a self, observed: Option<&'a Observed>) -> Option<&'a str> {
        self.revision.as_deref().or_else(|| observed.and_then(|observed| observed.revision.as_deref()))
    }
}

/// States of the tasks that run beside the reconciliations, for the status. `None` if there is no such task.
pub(super) struct Upkeep {
    pub(super) webhook: Option<String>,
    pub(super) pods: Option<Pods>,
    pub(super) realtime: Option<String>,
    pub(super) analytics: Option<String>,
    pub(super) idle_flags: Option<IdleFlags>,
}
