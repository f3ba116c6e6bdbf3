//! Bounded pages of the lists that watches begin with.
//!
//! A watch of kube requests a page by its number of objects, reads the page as a whole, and parses it as a whole. So an
//! object of 1.5 MiB, with which a hundred others come, would decide how much memory a program needs.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use http::{Request, Response, Uri, response::Parts};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Bytes;
use kube::{Client, client::Body};
use tokio::{sync::Semaphore, task::JoinError};

/// Largest number of objects in a page.
const OBJECTS: u32 = 100;
/// Largest page of several objects, in bytes. A larger one is requested again with fewer objects.
const PAGE_BYTES: usize = 8 << 20;
/// Largest page of one object, in bytes. etcd stores objects of up to 1.5 MiB, and a byte may become six in JSON.
const OBJECT_BYTES: usize = 16 << 20;
/// Number of pages that are read at one time.
const PLACES: usize = 2;
/// Timeout of one page.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Error: a page could not be read.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("an object in the list {0} is larger than {OBJECT_BYTES} bytes: reduce its annotations, or delete it")]
    TooLarge(String),
    #[error("the API server did not answer the list {0} within {seconds} s", seconds = TIMEOUT.as_secs())]
    Timeout(String),
    #[error("the request of the list {0} cannot be written with another limit: {1}")]
    Request(String, http::Error),
    #[error("cannot read the list {0}: {1}")]
    Body(String, Box<dyn std::error::Error + Send + Sync>),
    #[error("the list {0} was not read to its end: {1}")]
    Ended(String, JoinError),
}

/// Places for pages, which the watches of a process share.
#[derive(Clone, Debug)]
pub struct Pages(Arc<Semaphore>);

impl Default for Pages {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(PLACES)))
    }
}

impl Pages {
    /// Returns a client for the lists and events of one watch, whose pages are bounded.
    #[must_use]
    pub fn bound(&self, client: &Client) -> Client {
        let (places, client, objects) = (Arc::clone(&self.0), client.clone(), Arc::new(AtomicU32::new(OBJECTS)));
        let namespace = client.default_namespace().to_owned();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (places, client, objects) = (Arc::clone(&places), client.clone(), Arc::clone(&objects));
            async move {
                match limit(request.uri()) {
                    // The page is read in a task of its own: a caller may delay its read of the answer for any time,
                    // and other requests must not wait for it.
                    Some(limit) => {
                        let path = request.uri().path().to_owned();
                        let read = tokio::spawn(page(client, request, limit, objects, places));
                        read.await.map_err(|ended| failed(Error::Ended(path, ended)))?
                    }
                    None => client.send(request).await,
                }
            }
        });
        Client::new(service, namespace)
    }
}

/// Reads a page with at most this many objects.
async fn page(
    client: Client,
    request: Request<Body>,
    limit: u32,
    objects: Arc<AtomicU32>,
    places: Arc<Semaphore>,
) -> kube::Result<Response<Body>> {
    let (head, _) = request.into_parts();
    let path = || head.uri.path().to_owned();
    // The semaphore is never closed.
    let _place = places.acquire().await;
    loop {
        let number = objects.load(Ordering::Relaxed).min(limit);
        let uri = with_limit(&head.uri, number).map_err(|error| failed(Error::Request(path(), error)))?;
        let mut request = Request::new(Body::empty());
        *request.uri_mut() = uri;
        *request.method_mut() = head.method.clone();
        *request.headers_mut() = head.headers.clone();
        let bytes = if number == 1 { OBJECT_BYTES } else { PAGE_BYTES };
        let read = tokio::time::timeout(TIMEOUT, read(&client, request, bytes)).await;
        match read.map_err(|_| failed(Error::Timeout(path())))?? {
            PageRead::Page(head, text) => {
                // The next objects are as large, probably.
                objects.store(number.saturating_mul(2).min(OBJECTS), Ordering::Relaxed);
                return Ok(Response::from_parts(head, Body::from(text)));
            }
            PageRead::TooLarge if number == 1 => return Err(failed(Error::TooLarge(path()))),
            PageRead::TooLarge => objects.store((number / 4).max(1), Ordering::Relaxed),
            PageRead::Failed(error) => return Err(failed(Error::Body(path(), error))),
        }
    }
}

enum PageRead {
    Page(Parts, Bytes),
    TooLarge,
    Failed(Box<dyn std::error::Error + Send + Sync>),
}

async fn read(client: &Client, request: Request<Body>, bytes: usize) -> kube::Result<PageRead> {
    let (head, body) = client.send(request).await?.into_parts();
    Ok(match Limited::new(body, bytes).collect().await {
        Ok(text) => PageRead::Page(head, text.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => PageRead::TooLarge,
        Err(error) => PageRead::Failed(error),
    })
}

fn failed(error: Error) -> kube::Error {
    kube::Error::Service(error.into())
}

/// Returns the number of objects that a request asks for. `None` if it does not request a page.
fn limit(uri: &Uri) -> Option<u32> {
    parameters(uri).find_map(|(key, value)| (key == "limit").then(|| value.parse().ok())?)
}

fn with_limit(uri: &Uri, limit: u32) -> Result<Uri, http::Error> {
    let others = parameters(uri).filter(|(key, _)| *key != "limit").map(|(key, value)| format!("&{key}={value}"));
    let query = format!("{}?limit={limit}{}", uri.path(), others.collect::<String>());
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(query.try_into()?);
    Ok(Uri::from_parts(parts)?)
}

fn parameters(uri: &Uri) -> impl Iterator<Item = (&str, &str)> {
    let pairs = uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
    pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, iter, sync::atomic::AtomicUsize};

    use futures::{StreamExt, future::join_all, stream};
    use http_body_util::StreamBody;
    use hyper::body::Frame;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::{
        Api, ResourceExt,
        core::PartialObjectMeta,
        runtime::watcher::{self, Event, watcher},
    };
    use serde_json::json;

    use super::*;

    /// Counts of the bytes and answers that a server has sent.
    #[derive(Default)]
    struct Sent {
        /// Bytes of the answer that is being read.
        bytes: AtomicUsize,
        /// Bytes of the largest answer, as far as it was read.
        most: AtomicUsize,
        answers: AtomicUsize,
        running: AtomicUsize,
        most_running: AtomicUsize,
    }

    struct Running(Arc<Sent>);

    impl Drop for Running {
        fn drop(&mut self) {
            self.0.running.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Answers lists of this many objects with an annotation of this many bytes each, as they are read.
    fn server(all: usize, bytes: usize) -> (Client, Arc<Sent>) {
        let (sent, large) = (Arc::new(Sent::default()), "x".repeat(bytes));
        let counted = Arc::clone(&sent);
        let service = tower::service_fn(move |request: Request<Body>| {
            let (counted, large, uri) = (Arc::clone(&counted), large.clone(), request.uri().clone());
            async move {
                if uri.query().unwrap_or_default().contains("watch=true") {
                    std::future::pending::<()>().await;
                }
                let first =
                    parameters(&uri).find(|(key, _)| *key == "continue").map_or(0, |(_, first)| first.parse().unwrap());
                let end = all.min(first + limit(&uri).unwrap() as usize);
                counted.answers.fetch_add(1, Ordering::SeqCst);
                let running = counted.running.fetch_add(1, Ordering::SeqCst) + 1;
                counted.most_running.fetch_max(running, Ordering::SeqCst);
                counted.bytes.store(0, Ordering::SeqCst);
                let running = Running(Arc::clone(&counted));
                let token = if end < all { end.to_string() } else { String::new() };
                let head = format!(
                    r#"{{"kind": "List", "apiVersion": "v1", "metadata": {{"resourceVersion": "1", "continue": "{token}"}}, "items": ["#
                );
                let objects = (first..end).map(move |number| {
                    let _running = &running;
                    let object = json!({"metadata": {"name": number.to_string(), "annotations": {"large": large}}});
                    let text = format!("{}{object}", if number > first { "," } else { "" });
                    let bytes = counted.bytes.fetch_add(text.len(), Ordering::SeqCst) + text.len();
                    counted.most.fetch_max(bytes, Ordering::SeqCst);
                    text
                });
                let texts = iter::once(head).chain(objects).chain(iter::once("]}".to_owned()));
                let frames = texts.map(|text| Ok::<_, Infallible>(Frame::data(Bytes::from(text))));
                // Other pages are requested between two frames.
                let frames = stream::iter(frames).then(async |frame| {
                    tokio::task::yield_now().await;
                    frame
                });
                Ok::<_, Infallible>(Response::new(StreamBody::new(frames.boxed())))
            }
        });
        (Client::new(service, "shop"), sent)
    }

    /// Returns the names in the list that a watch begins with, or its first error.
    async fn listed(client: Client) -> Result<Vec<String>, watcher::Error> {
        let api: Api<PartialObjectMeta<ConfigMap>> = Api::all(client);
        let mut events = watcher(api, watcher::Config::default()).boxed();
        let mut names = Vec::new();
        loop {
            match events.next().await.unwrap()? {
                Event::InitApply(object) => names.push(object.name_any()),
                Event::InitDone => return Ok(names),
                _ => {}
            }
        }
    }

    #[tokio::test]
    async fn page_of_large_objects_is_requested_again_with_fewer() {
        let (client, sent) = server(40, 1 << 19);
        let names = listed(Pages::default().bound(&client)).await.unwrap();
        assert_eq!((names.len(), &*names[39]), (40, "39"));
        let most = sent.most.load(Ordering::SeqCst);
        assert!(most <= PAGE_BYTES + (1 << 19) + 1_000, "{most} bytes of an answer were read");
    }

    #[tokio::test]
    async fn pages_of_small_objects_have_a_hundred() {
        let (client, sent) = server(250, 100);
        assert_eq!(listed(Pages::default().bound(&client)).await.unwrap().len(), 250);
        assert_eq!(sent.answers.load(Ordering::SeqCst), 3);
    }

    #[tokio::test]
    async fn object_beyond_bound_is_an_error() {
        let (client, _) = server(1, OBJECT_BYTES);
        let error = format!("{:?}", listed(Pages::default().bound(&client)).await.unwrap_err());
        assert!(error.contains("/api/v1/configmaps"), "{error}");
        let (client, _) = server(2, PAGE_BYTES + 1_000);
        assert_eq!(listed(Pages::default().bound(&client)).await.unwrap().len(), 2);
    }

    #[tokio::test]
    async fn watches_share_the_places_for_pages() {
        let (client, sent) = server(300, 10_000);
        let pages = Pages::default();
        let lists = join_all((0..20).map(|_| listed(pages.bound(&client)))).await;
        assert!(lists.iter().all(|names| names.as_ref().unwrap().len() == 300));
        assert_eq!(sent.most_running.load(Ordering::SeqCst), PLACES);
    }
}
