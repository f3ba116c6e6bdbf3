//! Lists pods in pages, and keeps only the selected parts of each page.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{api::ListParams, core::ObjectList};

use super::annotations::MOST_ENVIRONMENTS;
use crate::api::names::{EnvironmentName, annotation, label};

/// Number of pods in a page.
const PAGE: u32 = 500;
/// Timeout of one page.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Error: the pods could not be listed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The API server refused, or could not be reached.
    #[error(transparent)]
    Refused(#[from] kube::Error),
    /// The API server did not answer within the timeout.
    #[error("the API server did not answer within {} s", TIMEOUT.as_secs())]
    Timeout,
}

/// Selects injected pods that may still run.
pub(crate) fn injected() -> ListParams {
    still_running(&format!("{}={}", label::SIDECAR, label::INJECTED))
}

/// Selects pods without a sidecar that may still run.
pub(crate) fn not_injected() -> ListParams {
    still_running(&format!("{}!={}", label::SIDECAR, label::INJECTED))
}

fn still_running(labels: &str) -> ListParams {
    ListParams::default().labels(labels).fields("status.phase!=Succeeded,status.phase!=Failed").limit(PAGE)
}

/// True if a pod requests the environment and is not being deleted.
pub(crate) fn requests(pod: &ObjectMeta, environment: &EnvironmentName) -> bool {
    names(pod, environment) && pod.deletion_timestamp.is_none()
}

/// True if a pod requests the environment.
pub(crate) fn names(pod: &ObjectMeta, environment: &EnvironmentName) -> bool {
    environments(pod).contains(environment)
}

/// Returns the environments that a pod requests. Empty if the annotation names more than the webhook admits: whoever may
/// change a pod may write 256 KiB of names after its admission, and the label as well.
pub(crate) fn environments(pod: &ObjectMeta) -> Vec<EnvironmentName> {
    let asked = pod.annotations.as_ref().and_then(|annotations| annotations.get(annotation::INJECT));
    let mut environments = Vec::new();
    for (place, name) in asked.into_iter().flat_map(|asked| asked.split(',')).enumerate() {
        if place == MOST_ENVIRONMENTS {
            return Vec::new();
        }
        environments.extend(name.trim().parse().ok().filter(|name| !environments.contains(name)));
    }
    environments
}

/// Lists page by page. Each page is dropped before the next is requested, except for what `keep` returns.
pub(crate) async fn list<T: Clone, U, F: Future<Output = Result<ObjectList<T>, kube::Error>>>(
    mut parameters: ListParams,
    page: impl Fn(ListParams) -> F,
    keep: impl Fn(T) -> Option<U>,
) -> Result<Vec<U>, Error> {
    let mut kept = Vec::new();
    loop {
        let answer = tokio::time::timeout(TIMEOUT, page(parameters.clone())).await.map_err(|_| Error::Timeout)??;
        kept.extend(answer.items.into_iter().filter_map(&keep));
        match answer.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => parameters = parameters.continue_token(&token),
            None => return Ok(kept),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn requested(inject: &str) -> Vec<String> {
        let annotations = Some(BTreeMap::from([(annotation::INJECT.to_owned(), inject.to_owned())]));
        let pod = ObjectMeta { annotations, ..ObjectMeta::default() };
        environments(&pod).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn pod_requests_each_environment_once() {
        assert_eq!(requested("a, b,a,No Name,b"), ["a", "b"]);
        assert_eq!(requested(""), [""; 0]);
    }

    #[test]
    fn pod_that_names_more_environments_than_the_webhook_admits_requests_none() {
        let list = |number: usize| (0..number).map(|number| format!("e{number}")).collect::<Vec<_>>().join(",");
        assert_eq!(requested(&list(MOST_ENVIRONMENTS)).len(), MOST_ENVIRONMENTS);
        assert_eq!(requested(&list(MOST_ENVIRONMENTS + 1)), [""; 0]);
        assert_eq!(requested(&list(62_000)), [""; 0]);
    }
}
