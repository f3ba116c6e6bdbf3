//! Collect step: has the uses of flags collected and sent to the source, and lists the flags without uses.

use crate::{
    api::{IdleFlags, Revision},
    controller::reconcile::{
        desired::Desired, environment::Environment, publication::served, read::source_state::SourceState,
        report::Reported,
    },
    usage::{CollectionTarget, Collector, idle::LastUses, today},
};

/// State of the collection between reconciliations.
#[derive(Debug, Default)]
pub(crate) struct Uses {
    last: Option<LastUses>,
    /// Revision whose flags `last` has.
    revision: Option<Revision>,
}

/// Collects the uses if the spec asks for it, and ends the collection otherwise. Returns the state of the collection for
/// the status.
pub(crate) fn collect(environment: &Environment<'_>, collector: &Collector, source: &SourceState) -> Option<String> {
    let flagsmith = environment.spec.source.flagsmith.as_ref().filter(|_| !environment.spec.suspend);
    let wanted = flagsmith.filter(|flagsmith| flagsmith.send_analytics);
    let target = wanted.zip(environment.name.name.parse().ok()).map(|(flagsmith, name)| CollectionTarget {
        uid: environment.uid.clone(),
        namespace: environment.name.namespace.clone(),
        environment: name,
        flagsmith: flagsmith.clone(),
    });
    collector.ensure(&environment.name, target, source.key())
}

/// Lists the flags without uses for the status. `None` if uses are not collected.
pub(crate) async fn idle_flags(
    environment: &Environment<'_>,
    collector: &Collector,
    is_collecting: bool,
    desired: &Desired,
    reported: &Reported,
    uses: &mut Uses,
) -> Option<IdleFlags> {
    if !is_collecting {
        *uses = Uses::default();
        return None;
    }
    let written = reported.status(environment).and_then(|status| status.idle_flags.as_ref());
    // Uses wait in the collector until the flags are known.
    let Some(desired) = &desired.snapshot else { return written.cloned() };
    let today = today();
    if uses.revision.as_ref() != Some(&desired.snapshot.revision) {
        let Some(flags) = served::flags(&desired.snapshot).await else { return written.cloned() };
        match &mut uses.last {
            Some(last) => last.set_flags(&flags, today),
            None => uses.last = Some(LastUses::restore(written, &flags, today)),
        }
        uses.revision = Some(desired.snapshot.revision.clone());
    }
    let last = uses.last.as_mut()?;
    for (flag, day) in collector.used(&environment.name) {
        last.used(&flag, day);
    }
    match (collector.unread(&environment.name, today), written) {
        // No round of this day has shown which pods were not read yesterday. A list of today would say that this is decided.
        (None, Some(written)) => Some(written.clone()),
        // The first list has no day without uses.
        (None, None) | (Some(0), _) => Some(last.list(today)),
        (Some(_), _) => {
            last.skip_yesterday(today);
            Some(last.list(today))
        }
    }
}
