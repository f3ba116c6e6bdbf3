//! Guard step: takes the outcome of the read, and keeps a compiled snapshot in memory, accepted or held back.

use std::sync::Arc;

use super::{
    candidate::{Candidate, check},
    desired::Desired,
    environment::Environment,
    error::Error,
    memory::reserve,
    observe::Observed,
    read::{ReadOutcome, compile::CompiledDocument, fetch::SourceState},
};
use crate::{controller::report::FetchOutcome, memory::Memory};

/// Returns the outcome of the fetch for the report. If the document cannot be compiled, or has no room in memory,
/// the previous snapshot stays in use.
///
/// # Errors
/// The read failed, or the namespace has used up its share of memory.
pub(super) fn accept(
    environment: &Environment<'_>,
    memory: &Arc<Memory>,
    observed: &Observed,
    read: Result<ReadOutcome, Error>,
    source: &mut SourceState,
    candidate: &mut Candidate,
    desired: &mut Desired,
) -> Result<FetchOutcome, Error> {
    let compiled = match read {
        Ok(ReadOutcome::NotRun) => return Ok(FetchOutcome::NotRun),
        Ok(ReadOutcome::Unchanged) => return Ok(FetchOutcome::Done),
        Ok(ReadOutcome::Compiled(mut document)) => {
            let snapshot = &mut document.compiled.snapshot;
            reserve(environment, memory, snapshot, candidate, desired, observed).map(|()| document).map_err(Error::from)
        }
        Err(error) => Err(error),
    };
    match compiled {
        Ok(document) => {
            let CompiledDocument { compiled, version, provenance } = *document;
            source.record_compiled(version, provenance);
            check(environment, observed, desired, candidate, compiled);
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
