//! Keeps snapshots within the namespace's share of the controller's memory.

use std::sync::Arc;

use super::{desired::Desired, environment::Environment, guard::Candidate};
use crate::{
    memory::Memory,
    publish::{Error, Snapshot},
};

/// Memory in bytes for the snapshots of all environments, unless the chart's value says otherwise.
pub const SNAPSHOTS_MAX: usize = 128 << 20;

/// Reserves the memory of a snapshot that was compiled, or that `spec.pin` names. If there is none, the snapshots that it
/// replaces are dropped first: what is published stays in the cluster, and is read back when it is needed and has room.
///
/// # Errors
/// The namespace has used up its share.
pub(super) fn keep(
    environment: &Environment<'_>,
    memory: &Arc<Memory>,
    snapshot: &mut Snapshot,
    candidate: &mut Candidate,
    desired: &mut Desired,
) -> Result<(), Error> {
    let namespace = &environment.namespace;
    if snapshot.keep_in(memory, namespace).is_ok() {
        return Ok(());
    }
    candidate.release();
    desired.release();
    snapshot.keep_in(memory, namespace)
}

/// Reserves the memory of a snapshot that was read from the cluster. Returns `None`, with a line in the log, if there is
/// none.
pub(super) fn keep_read(
    environment: &Environment<'_>,
    memory: &Arc<Memory>,
    mut snapshot: Snapshot,
) -> Option<Snapshot> {
    let (namespace, environment) = (&environment.namespace, &environment.name);
    if let Err(error) = snapshot.keep_in(memory, namespace) {
        tracing::warn!(
            namespace,
            environment,
            %error,
            "the published snapshot stays as it is: it is not restored if somebody deletes it, and not archived"
        );
        return None;
    }
    Some(snapshot)
}
