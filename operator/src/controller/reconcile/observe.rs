//! Observe step: reads once which revision the cluster has.

use crate::{
    api::{Revision, names::Format},
    publish::{Destination, Error, Publisher, Record, WriteCache},
};

/// Published objects of an environment at the start of a reconciliation.
#[derive(Debug)]
pub(super) struct Observed {
    pub(super) destination: Destination,
    /// Revision that is published in the current format.
    pub(super) revision: Option<Revision>,
    /// Record of the published revision.
    pub(super) record: Option<Record>,
    /// Other format in which a revision is published, if none is published in the current format.
    pub(super) only_in: Option<Format>,
}

impl Observed {
    /// Reads the publisher's cache.
    pub(super) fn cached(publisher: &Publisher, destination: Destination) -> Self {
        Self {
            revision: publisher.revision(&destination),
            record: publisher.record(&destination),
            only_in: publisher.only_in(&destination),
            destination,
        }
    }
}

/// Polls the objects that no watch reports, and reads the publisher's cache. If the poll fails, its error is returned
/// with the cached state.
pub(super) async fn observe(
    publisher: &Publisher,
    destination: Destination,
    cache: &mut WriteCache,
) -> (Observed, Result<(), Error>) {
    let polled = publisher.refresh_secrets(&destination, cache).await;
    (Observed::cached(publisher, destination), polled)
}
