//! Observe step: reads once which revision the cluster has.

use crate::{
    api::names::Format,
    publish::{Error, Owner, Publisher, Record, WriteCache},
};

/// Published objects of an environment at the start of a reconciliation.
#[derive(Debug)]
pub(super) struct Observed {
    pub(super) owner: Owner,
    /// Revision that is published in the current format.
    pub(super) revision: Option<String>,
    /// Record of the published revision.
    pub(super) record: Option<Record>,
    /// Other format in which a revision is published, if none is published in the current format.
    pub(super) only_in: Option<Format>,
}

impl Observed {
    /// Reads the publisher's cache.
    pub(super) fn cached(publisher: &Publisher, owner: Owner) -> Self {
        Self {
            revision: publisher.revision(&owner),
            record: publisher.record(&owner),
            only_in: publisher.only_in(&owner),
            owner,
        }
    }
}

/// Polls the objects that no watch reports, and reads the publisher's cache. If the poll fails, its error is returned
/// with the cached state.
pub(super) async fn observe(
    publisher: &Publisher,
    owner: Owner,
    cache: &mut WriteCache,
) -> (Observed, Result<(), Error>) {
    let polled = publisher.refresh_secrets(&owner, cache).await;
    (Observed::cached(publisher, owner), polled)
}
