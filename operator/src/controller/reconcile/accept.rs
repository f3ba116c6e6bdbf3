//! Guard step: takes the outcome of the read, and keeps a compiled snapshot in memory, accepted or held back.

use std::sync::Arc;

use super::{
    desired::Desired,
    environment::Environment,
    error::Error,
    guard::{self, Candidate},
    memory::keep,
    observe::Observed,
    read::{Read, compile::CompiledDocument, fetch::SourceState},
};
use crate::{controller::report::FetchOutcome, memory::Memory};

/// Returns the outcome of the fetch for the report. A document that cannot be compiled, or has no room in memory, keeps
/// the one before it in use.
///
/// # Errors
/// The read failed, or the namespace has used up its share of memory.
pub(super) fn accept(
    environment: &Environment<'_>,
    memory: &Arc<Memory>,
    observed: &Observed,
    read: Result<Read, Error>,
    source: &mut SourceState,
    candidate: &mut Candidate,
    desired: &mut Desired,
) -> Result<FetchOutcome, Error> {
    let compiled = match read {
        Ok(Read::NotRun) => return Ok(FetchOutcome::NotRun),
        Ok(Read::Unchanged) => return Ok(FetchOutcome::Done),
        Ok(Read::Compiled(mut document)) => {
            let snapshot = &mut document.compiled.snapshot;
            keep(environment, memory, snapshot, candidate, desired, observed).map(|()| document).map_err(Error::from)
        }
        Err(error) => Err(error),
    };
    match compiled {
        Ok(document) => {
            let CompiledDocument { compiled, version, provenance } = *document;
            source.record_compiled(version, provenance);
            guard::check(environment, observed, desired, candidate, compiled);
            Ok(FetchOutcome::Done)
        }
        Err(error) => {
            // Without a document, the source said nothing new about the last one, so what is known of it stays.
            if error.is_of_document() {
                candidate.not_compiled(error.to_failure());
            }
            Err(error)
        }
    }
}
