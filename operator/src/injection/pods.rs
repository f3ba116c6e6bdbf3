//! Lists pods in pages, and keeps only the selected parts of each page.

use std::time::Duration;

use http_body_util::{BodyExt, LengthLimitError, Limited};
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{
    Client, Resource,
    api::ListParams,
    client::Body,
    core::{ObjectList, Request, Status},
};
use serde::de::DeserializeOwned;

use super::annotations::MOST_ENVIRONMENTS;
use crate::{
    api::names::{EnvironmentName, annotation, label},
    api_call::{CallError, within},
};

/// Number of pods in a page, while no page has more than [`PAGE_BYTES`].
const PAGE: u32 = 500;
/// Largest page that is read, in bytes. A larger one is requested again with fewer pods: a pod may have 1.5 MiB, of which
/// the metadata may be almost all.
const PAGE_BYTES: usize = 16 << 20;
/// Timeout of one page.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Error: the pods could not be listed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A page cannot be read.
    #[error(transparent)]
    Call(#[from] CallError),
    /// A page of one pod is larger than the bound.
    #[error("a pod is larger than {PAGE_BYTES} bytes")]
    TooLarge,
}

/// The parts of pods that the API server sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// All fields.
    Object,
    /// Metadata only.
    Metadata,
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
    ListParams::default().labels(labels).fields("status.phase!=Succeeded,status.phase!=Failed")
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

/// Lists the pods of a namespace, or of all, page by page. Each page is dropped before the next is requested, except for
/// what `keep` returns.
pub(crate) async fn list<T: DeserializeOwned + Clone, U>(
    client: &Client,
    namespace: Option<&str>,
    form: Form,
    mut parameters: ListParams,
    keep: impl Fn(T) -> Option<U>,
) -> Result<Vec<U>, Error> {
    let mut kept = Vec::new();
    let mut pods = PAGE;
    loop {
        parameters.limit = Some(pods);
        let Some(page) = within(TIMEOUT, page::<T>(client, namespace, form, &parameters)).await? else {
            if pods == 1 {
                return Err(Error::TooLarge);
            }
            // Pages stay as small: the next pods are as large, probably.
            pods = (pods / 4).max(1);
            continue;
        };
        kept.extend(page.items.into_iter().filter_map(&keep));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => parameters = parameters.continue_token(&token),
            None => return Ok(kept),
        }
    }
}

/// Requests a page. Returns `None` if it is larger than [`PAGE_BYTES`].
async fn page<T: DeserializeOwned + Clone>(
    client: &Client,
    namespace: Option<&str>,
    form: Form,
    parameters: &ListParams,
) -> Result<Option<ObjectList<T>>, kube::Error> {
    let request = Request::new(Pod::url_path(&(), namespace));
    let request = match form {
        Form::Object => request.list(parameters),
        Form::Metadata => request.list_metadata(parameters),
    };
    let answer = client.send(request.map_err(kube::Error::BuildRequest)?.map(Body::from)).await?;
    let code = answer.status();
    let text = match Limited::new(answer.into_body(), PAGE_BYTES).collect().await {
        Ok(text) => text.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => return Ok(None),
        Err(error) => return Err(kube::Error::Service(error)),
    };
    if code.is_success() {
        return serde_json::from_slice(&text).map(Some).map_err(kube::Error::SerdeError);
    }
    let status = serde_json::from_slice(&text)
        .unwrap_or_else(|_| Status::failure(&format!("the API server answered {code}"), "").with_code(code.as_u16()));
    Err(kube::Error::Api(status.boxed()))
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, convert::Infallible, iter, sync::Arc};

    use futures::stream;
    use http_body_util::StreamBody;
    use hyper::body::{Bytes, Frame};
    use kube::core::PartialObjectMeta;
    use parking_lot::Mutex;
    use serde_json::json;

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

    /// Number of requested pods and of read pods in each answer.
    type Answered = Arc<Mutex<Vec<(usize, usize)>>>;

    /// Answers lists of this many pods, each with labels of this many bytes, as they are read.
    fn server(all: usize, bytes: usize) -> (Client, Answered) {
        let (answered, label) = (Answered::default(), "x".repeat(bytes));
        let counted = Arc::clone(&answered);
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let query = request.uri().query().unwrap_or_default().to_owned();
            let parameter = |key: &str| {
                let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
                pairs.filter(|(found, _)| *found == key).find_map(|(_, value)| value.parse::<usize>().ok())
            };
            let (limit, first) = (parameter("limit").unwrap(), parameter("continue").unwrap_or_default());
            let end = all.min(first + limit);
            counted.lock().push((end - first, 0));
            let token = if end < all { end.to_string() } else { String::new() };
            let head =
                format!(r#"{{"kind": "List", "apiVersion": "v1", "metadata": {{"continue": "{token}"}}, "items": ["#);
            let (counted, label) = (Arc::clone(&counted), label.clone());
            let pods = (first..end).map(move |number| {
                counted.lock().last_mut().unwrap().1 += 1;
                let pod = json!({"metadata": {"name": format!("web-{number}"), "labels": {"large": label}}});
                format!("{}{pod}", if number > first { "," } else { "" })
            });
            let texts = iter::once(head).chain(pods).chain(iter::once("]}".to_owned()));
            let frames = texts.map(|text| Ok::<_, Infallible>(Frame::data(Bytes::from(text))));
            let body = StreamBody::new(stream::iter(frames));
            async move { Ok::<_, Infallible>(http::Response::new(body)) }
        });
        (Client::new(service, "shop"), answered)
    }

    async fn names_of(client: &Client) -> Result<Vec<String>, Error> {
        let name = |pod: PartialObjectMeta<Pod>| pod.metadata.name;
        list(client, None, Form::Metadata, not_injected(), name).await
    }

    #[tokio::test]
    async fn pages_of_large_pods_are_requested_again_with_fewer() {
        let (client, answered) = server(200, 1 << 20);
        let found = names_of(&client).await.unwrap();
        assert_eq!((found.len(), &*found[199]), (200, "web-199"));
        let mut answered = answered.lock().clone();
        assert!(answered.iter().all(|(_, read)| *read <= 16), "more than the bound is read");
        assert_eq!(answered.drain(..3).map(|(requested, _)| requested).collect::<Vec<_>>(), [200, 125, 31]);
        assert_eq!((answered.len(), answered.iter().max()), (29, Some(&(7, 7))));
    }

    #[tokio::test]
    async fn pages_of_small_pods_have_five_hundred() {
        let (client, answered) = server(1_200, 1_000);
        assert_eq!(names_of(&client).await.unwrap().len(), 1_200);
        assert_eq!(*answered.lock(), [(500, 500), (500, 500), (200, 200)]);
    }

    #[tokio::test]
    async fn pod_beyond_bound_is_an_error() {
        let (client, answered) = server(1, PAGE_BYTES);
        assert!(matches!(names_of(&client).await, Err(Error::TooLarge)));
        assert_eq!(answered.lock().len(), 5);
    }
}
