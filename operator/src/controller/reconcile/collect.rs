//! Collect step: has the uses of flags collected and sent to the source.

use super::environment::Environment;
use crate::rollout::usage::{Collector, Target};

/// Collects the uses if the spec asks for it, and ends the collection otherwise. Returns the state of the collection for
/// the status.
pub(super) fn collect(environment: &Environment<'_>, collector: &Collector) -> Option<String> {
    let flagsmith = environment.spec.source.flagsmith.as_ref().filter(|_| !environment.spec.suspend);
    let wanted = flagsmith.filter(|flagsmith| flagsmith.send_analytics);
    let target = wanted.zip(environment.name.parse().ok()).map(|(flagsmith, name)| Target {
        uid: environment.uid.clone(),
        namespace: environment.namespace.clone(),
        environment: name,
        flagsmith: flagsmith.clone(),
    });
    collector.keep(&environment.namespace, &environment.name, target)
}
