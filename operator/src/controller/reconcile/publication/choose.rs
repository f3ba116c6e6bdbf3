//! Choose step (pure): selects the snapshot that should be published.

use std::sync::Arc;

use crate::{
    api::{FeatureEnvironmentSpec, Reason, names::FORMAT},
    controller::{
        reconcile::{
            candidate::Candidate,
            desired::{Desired, PublishState},
            observe::Observed,
        },
        status::{Failure, Pin},
    },
    publish::{ArchivedRevision, Snapshot},
};

/// Selected snapshot, and what it means for `spec.pin`.
#[derive(Debug)]
pub(crate) struct Choice {
    /// Snapshot to publish. `None` leaves the published objects as they are.
    pub(crate) snapshot: Option<Arc<Snapshot>>,
    pub(crate) pin: Pin,
}

/// Returns the archived revision that `pin` names, unless its snapshot is in memory.
pub(crate) fn archived<'a>(
    pin: &str,
    candidate: &Candidate,
    desired: &'a Desired,
    observed: &'a Observed,
) -> Option<&'a ArchivedRevision> {
    if pin.is_empty() || in_memory(pin, candidate, desired).is_some() {
        return None;
    }
    desired.past(observed).iter().find(|past| past.revision == *pin)
}

/// Chooses the pinned snapshot, else the newest accepted one, else the last good one. `restored` is the archived
/// snapshot that [`archived`] asked for, if it could be read.
pub(crate) fn choose(
    spec: &FeatureEnvironmentSpec,
    candidate: &Candidate,
    desired: &Desired,
    observed: &Observed,
    restored: Option<Snapshot>,
) -> Choice {
    let (pin, newest) = (spec.pin.as_str(), newest(spec, candidate, observed));
    if pin.is_empty() {
        return Choice { snapshot: newest.or(last_good(desired)).cloned(), pin: Pin::None };
    }
    let kept =
        || Pin::Published { newest: newest.map(|newest| newest.revision.clone()).filter(|newest| newest != pin) };
    match in_memory(pin, candidate, desired).or(restored.map(Arc::new)) {
        Some(pinned) => Choice { snapshot: Some(pinned), pin: kept() },
        // The pinned revision is published, and could not be read back so far: its objects stay.
        None if desired.next_recovery.is_some()
            && observed.revision.as_ref().is_some_and(|revision| revision == pin) =>
        {
            Choice { snapshot: None, pin: kept() }
        }
        // A pin exists to keep the newest revision out, so no other revision is published in place of an unknown one.
        None => Choice { snapshot: desired.published_snapshot(), pin: Pin::Unknown(unknown(pin, desired, observed)) },
    }
}

/// Returns the newest accepted snapshot, unless an edit of the spec may exclude it: only a read of the source shows that. A
/// published one stays until then.
fn newest<'a>(
    spec: &FeatureEnvironmentSpec,
    candidate: &'a Candidate,
    observed: &Observed,
) -> Option<&'a Arc<Snapshot>> {
    let newest = candidate.newest()?;
    let is_published = observed.revision.as_ref() == Some(&newest.snapshot.revision);
    (is_published || newest.is_of(spec)).then_some(&newest.snapshot)
}

/// Returns the desired snapshot, or the published one that it replaces if the spec was edited since.
fn last_good(desired: &Desired) -> Option<&Arc<Snapshot>> {
    let desired = desired.snapshot.as_ref()?;
    match &desired.state {
        PublishState::Unpublished { replaces, is_outdated: true } => replaces.as_ref(),
        PublishState::Unpublished { .. } | PublishState::Published => Some(&desired.snapshot),
    }
}

fn in_memory(pin: &str, candidate: &Candidate, desired: &Desired) -> Option<Arc<Snapshot>> {
    let published = desired.published_snapshot();
    let desired = desired.snapshot.as_ref().map(|desired| &desired.snapshot);
    let newest = candidate.newest().map(|newest| &newest.snapshot);
    desired.into_iter().chain(newest).chain(&published).find(|snapshot| snapshot.revision == *pin).cloned()
}

fn unknown(pin: &str, desired: &Desired, observed: &Observed) -> Failure {
    let published = desired.published_snapshot().map(|snapshot| snapshot.revision.clone());
    let published = published.as_ref().or(observed.revision.as_ref());
    let mut known: Vec<String> = published.iter().map(|revision| format!("{revision} (is published)")).collect();
    let past = desired.history(observed, published);
    known.extend(past.iter().map(|past| format!("{} (was published at {})", past.revision, past.published_at.0)));
    let known = if known.is_empty() { "none yet".to_owned() } else { known.join(", ") };
    let kept = match observed.only_in {
        Some(format) => format!(
            "is not kept in format {FORMAT}: the objects in format {format} stay for pods that mount them, and new pods have no flags"
        ),
        None => "is not kept: the published revision stays".to_owned(),
    };
    Failure {
        reason: Reason::UnknownRevision,
        message: format!(
            "spec.pin names revision {pin}, which {kept}. Set spec.pin to a revision that is kept ({known}), or remove it"
        ),
    }
}
