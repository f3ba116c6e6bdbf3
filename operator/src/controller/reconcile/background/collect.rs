//! Collect step: has the uses of flags collected and sent to the source, and lists the flags without uses.

use std::sync::Arc;

use crate::{
    api::{IdleFlags, NamespacedName, Revision},
    controller::reconcile::{environment::Environment, publication::served, read::source_state::SourceState},
    publish::Snapshot,
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

impl Uses {
    /// Forgets the uses: none are collected.
    pub(crate) fn stop(&mut self) {
        *self = Self::default();
    }

    /// Lists the flags without uses for the status. `snapshot` is the desired one, and `written` the list of the latest
    /// status.
    pub(crate) async fn idle_flags(
        &mut self,
        environment: &NamespacedName,
        collector: &Collector,
        snapshot: Option<&Arc<Snapshot>>,
        written: Option<&IdleFlags>,
    ) -> Option<IdleFlags> {
        // Uses wait in the collector until the flags are known.
        let Some(snapshot) = snapshot else { return written.cloned() };
        let today = today();
        if self.revision.as_ref() != Some(&snapshot.revision) {
            let Some(flags) = served::flags(snapshot).await else { return written.cloned() };
            match &mut self.last {
                Some(last) => last.set_flags(&flags, today),
                None => self.last = Some(LastUses::restore(written, &flags, today)),
            }
            self.revision = Some(snapshot.revision.clone());
        }
        let last = self.last.as_mut()?;
        for (flag, day) in collector.used(environment) {
            last.used(&flag, day);
        }
        match collector.unread(environment, today) {
            // No round of this day has shown which pods were not read yesterday. A list of today would say that this is
            // decided.
            None if let Some(written) = written => return Some(written.clone()),
            // The first list has no day without uses. After a read of all pods, yesterday counts.
            None | Some(0) => {}
            // Pods that were not read may have used flags yesterday.
            Some(_) => last.skip_yesterday(today),
        }
        Some(last.list(today))
    }
}
