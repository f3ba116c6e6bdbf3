//! Fetch step: fetches the document. It publishes nothing.

use tokio::time::Instant;

use crate::{
    controller::{metrics::Metrics, reconcile::environment::Environment},
    source::fetch::{Error, FetchHints, Fetched, Fetcher, FullRead, read_within},
};

/// Answer of the source.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) fetched: Result<Fetched, Error>,
    /// True if the key is the one that the Secret holds now, and the source accepted it.
    pub(crate) has_read_key: bool,
}

/// Fetches the document, and counts the bytes that the server read for it.
pub(crate) async fn fetch(
    environment: &Environment<'_>,
    fetcher: &Fetcher,
    metrics: &Metrics,
    mut hints: FetchHints,
) -> Answer {
    let mut fetched = fetcher.fetch(environment.namespace(), environment.spec, &hints).await;
    if hints.key.is_some() && matches!(fetched, Err(Error::AuthenticationFailed { .. })) {
        // The Secret may hold another key by now.
        hints.key = None;
        fetched = fetcher.fetch(environment.namespace(), environment.spec, &hints).await;
    }
    let (is_accepted, full_read) = match &fetched {
        Ok(Fetched::Unchanged { read }) => (true, read.as_ref()),
        Ok(Fetched::Document(document)) => {
            metrics.environments.set_document_bytes(&environment.name, document.bytes());
            (true, document.read.as_ref())
        }
        _ => (false, None),
    };
    if let Some(read) = full_read {
        record_full_read(environment, fetcher, metrics, read);
    }
    let has_read_key = is_accepted && hints.key.is_none();
    Answer { fetched, has_read_key }
}

/// Records that the server returned a document or compared its content: counts it in the budget of full reads.
fn record_full_read(environment: &Environment<'_>, fetcher: &Fetcher, metrics: &Metrics, read: &FullRead) {
    let interval = environment.spec.refresh.interval.get();
    let budget = fetcher.read_budget();
    budget.record(environment.namespace(), &environment.uid, read, interval, Instant::now());
    let within = read_within(budget.rest(&environment.uid, interval), interval);
    metrics.environments.set_read_within(&environment.name, within);
}
