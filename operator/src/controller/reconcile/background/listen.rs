//! Listen step: follows the source's stream of changes.

use crate::{
    controller::reconcile::{environment::Environment, read::source_state::Provenance},
    source::realtime::{StreamTarget, Streams},
};

/// Follows the stream if the spec asks for it and the document's key is known, and ends it otherwise. Returns the state
/// of the stream for the status.
pub(crate) fn listen(
    environment: &Environment<'_>,
    streams: &Streams,
    provenance: Option<&Provenance>,
) -> Option<String> {
    let flagsmith = environment.spec.source.flagsmith.as_ref().filter(|_| !environment.spec.suspend);
    let wanted = flagsmith.and_then(|flagsmith| Some((flagsmith, flagsmith.realtime.as_ref()?)));
    let target = wanted.zip(provenance).map(|((flagsmith, realtime), provenance)| StreamTarget {
        uid: environment.uid.clone(),
        flagsmith: flagsmith.clone(),
        realtime: realtime.clone(),
        client_key: provenance.client_key.clone(),
    });
    let updated_at = provenance.and_then(|provenance| provenance.updated_at);
    streams.ensure(&environment.name, target, updated_at)
}
