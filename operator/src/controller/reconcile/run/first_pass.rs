//! First pass over the environments after a start, which registers their secrets with the receiver of webhooks.

use std::{future::pending, time::Duration};

use kube::runtime::reflector::{ObjectRef, Store};

use super::referrers::WatchedEnvironment;
use crate::{api::NamespacedName, source::receiver::FirstPass};

/// Time between two looks whether the environments were reconciled.
const LOOK: Duration = Duration::from_millis(500);

/// Ends the first pass once each environment that receives webhooks was reconciled. Never returns.
pub(super) async fn end_first_pass(known: &Store<WatchedEnvironment>, pass: FirstPass) {
    if known.wait_until_ready().await.is_ok() {
        let mut waiting: Vec<NamespacedName> = known
            .state()
            .iter()
            .filter(|environment| receives(environment))
            .map(|environment| NamespacedName::of(environment.as_ref()))
            .collect();
        loop {
            // An edit or a deletion may end the reception meanwhile.
            waiting.retain(|name| {
                let reference = ObjectRef::new(&name.name).within(&name.namespace);
                !pass.has_seen(name) && known.get(&reference).is_some_and(|environment| receives(&environment))
            });
            if waiting.is_empty() {
                break;
            }
            tokio::time::sleep(LOOK).await;
        }
    }
    drop(pass);
    pending::<()>().await;
}

/// True if the environment is to be reconciled, and asks for webhooks.
fn receives(environment: &WatchedEnvironment) -> bool {
    let Ok(environment) = &environment.0 else { return false };
    let flagsmith = environment.spec.source.flagsmith.as_ref();
    environment.metadata.deletion_timestamp.is_none() && flagsmith.is_some_and(|flagsmith| flagsmith.webhook.is_some())
}
