//! Asks the API server to create a pod that requests flags, without storing it.

use crate::{
    api::names::sidecar,
    ask::{check::facts::DryRun, cluster::Cluster, failure::Failure},
    injection::dry_run_pod,
};

/// Name of the pod, and of the FeatureEnvironment that it requests.
const NAME: &str = "check";
/// Image of the pod. It is never pulled.
const IMAGE: &str = "nothing";

/// Reads the outcome of the dry run in a namespace. `None` if its pod cannot be built.
pub(super) async fn dry_run(cluster: &Cluster, namespace: &str) -> Result<Option<DryRun>, Failure> {
    let Ok(pod) = dry_run_pod(NAME, IMAGE) else { return Ok(None) };
    let namespace = namespace.to_owned();
    match cluster.dry_run(&namespace, &pod).await {
        Ok(created) => {
            let init = created.spec.and_then(|spec| spec.init_containers).unwrap_or_default();
            let own = init.into_iter().find(|container| container.name == sidecar::CONTAINER);
            Ok(Some(match own {
                Some(own) => DryRun::Injected { namespace, image: own.image },
                None => DryRun::NotInjected { namespace },
            }))
        }
        // The API server answers 403 to a missing right, to a full quota and to a pod that a policy refuses.
        Err(Failure::Forbidden { right, message }) if message.contains("cannot create resource") => {
            Err(Failure::Forbidden { right, message })
        }
        Err(Failure::Forbidden { message, .. } | Failure::Unanswered { message, .. }) => {
            Ok(Some(DryRun::Refused { namespace, message }))
        }
        Err(failure) => Err(failure),
    }
}
