//! First pass over the environments after a start, which registers their secrets with the receiver of webhooks.

use std::{future::pending, time::Duration};

use kube::{
    ResourceExt,
    runtime::reflector::{ObjectRef, Store},
};

use super::referrers::WatchedEnvironment;
use crate::source::receiver::FirstPass;

/// Time between two looks whether the environments were reconciled.
const LOOK: Duration = Duration::from_millis(500);

/// Ends the first pass once each environment that receives webhooks was reconciled. Never returns.
pub(super) async fn end_first_pass(known: &Store<WatchedEnvironment>, pass: FirstPass) {
    if known.wait_until_ready().await.is_ok() {
        let mut waiting: Vec<ObjectRef<WatchedEnvironment>> = known
            .state()
            .iter()
            .filter(|environment| receives(environment))
            .map(|environment| reference(environment))
            .collect();
        loop {
            // An edit or a deletion may end the reception meanwhile.
            waiting.retain(|environment| {
                let namespace = environment.namespace.as_deref().unwrap_or_default();
                !pass.has_seen(namespace, &environment.name)
                    && known.get(environment).is_some_and(|environment| receives(&environment))
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

fn reference(environment: &WatchedEnvironment) -> ObjectRef<WatchedEnvironment> {
    ObjectRef::new(&environment.name_any()).within(&environment.namespace().unwrap_or_default())
}

/// True if the environment is to be reconciled, and asks for webhooks.
fn receives(environment: &WatchedEnvironment) -> bool {
    let Ok(environment) = &environment.0 else { return false };
    let flagsmith = environment.spec.source.flagsmith.as_ref();
    environment.metadata.deletion_timestamp.is_none() && flagsmith.is_some_and(|flagsmith| flagsmith.webhook.is_some())
}
