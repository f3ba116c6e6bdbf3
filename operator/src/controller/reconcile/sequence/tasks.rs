//! Observe pods, listen and collect steps: the tasks that run beside the reconciliations.

use crate::{
    api::Revision,
    controller::{
        reconcile::{
            Context,
            background::{collect::collect, listen::listen, observe_pods::observe_pods},
            environment::Environment,
            observe::Observed,
            state::EnvironmentState,
        },
        status::TaskStates,
    },
};

/// Starts, changes or ends the tasks, and returns their states, with that of the reception of webhooks, which began before
/// the other steps. `published` is the revision that is published.
pub(super) async fn start_tasks(
    environment: &Environment<'_>,
    context: &Context,
    state: &mut EnvironmentState,
    observed: Option<&Observed>,
    published: Option<&Revision>,
) -> TaskStates {
    let Context { observer, streams, collector, metrics, .. } = context;
    let EnvironmentState { source, desired, reported, reception, uses, .. } = state;
    let pods = observed
        .and_then(|observed| observe_pods(environment, observer, metrics, &observed.destination, desired, published));
    let realtime = listen(environment, streams, source.provenance());
    let analytics = collect(environment, collector, source);
    let idle_flags = if analytics.is_some() {
        let snapshot = desired.snapshot.as_ref().map(|desired| &desired.snapshot);
        let written = reported.status(environment).and_then(|status| status.idle_flags.as_ref());
        uses.idle_flags(&environment.name, collector, snapshot, written).await
    } else {
        uses.stop();
        None
    };
    TaskStates { webhook: reception.state_text(), pods, realtime, analytics, idle_flags }
}
