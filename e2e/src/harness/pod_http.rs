//! HTTP to a pod's port through the API server, which works on every cluster and from any place that the tests run in.
//! Cases that stop the API server ask the pod at its address.

use anyhow::Context as _;
use http::{Method, Request};
use http_body_util::BodyExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::Api;
use kube::client::Body;
use kube::{Client, Config};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::app::Reply;

/// One port of one pod.
#[derive(Clone)]
pub struct PodPort {
    client: Client,
    namespace: String,
    pod: String,
    port: u16,
    base: String,
}

/// Answer of a pod.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Status code.
    pub status: u16,
    /// Body as text.
    pub body: String,
}

impl Answer {
    /// Parses the body as JSON if the status is a success.
    ///
    /// # Errors
    ///
    /// Returns an error if the status is not a success or the body is not the expected JSON.
    pub fn json<T: DeserializeOwned>(&self) -> anyhow::Result<T> {
        anyhow::ensure!((200..300).contains(&self.status), "status {}: {}", self.status, self.body);
        serde_json::from_str(&self.body).with_context(|| format!("not the JSON that was expected: {}", self.body))
    }
}

impl PodPort {
    pub(super) fn new(client: Client, namespace: &str, pod: &str, port: u16) -> Self {
        let base = format!("/api/v1/namespaces/{namespace}/pods/{pod}:{port}/proxy");
        Self { client, namespace: namespace.to_owned(), pod: pod.to_owned(), port, base }
    }

    /// Returns the same port at the pod's present address, which needs no API server. Only the machine of the local
    /// cluster reaches it.
    ///
    /// # Errors
    ///
    /// Returns an error if the pod has no address.
    pub async fn without_api_server(&self) -> anyhow::Result<Self> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &self.namespace);
        let address = pods.get(&self.pod).await?.status.and_then(|status| status.pod_ip);
        let address = address.with_context(|| format!("pod {} has no address", self.pod))?;
        let mut config = Config::new(format!("http://{address}:{}", self.port).parse()?);
        config.default_retry = false;
        Ok(Self { client: Client::try_from(config)?, base: String::new(), ..self.clone() })
    }

    /// Returns the name of the pod.
    #[must_use]
    pub fn pod(&self) -> &str {
        &self.pod
    }

    /// Sends a request and returns the answer, whatever its status is.
    ///
    /// # Errors
    ///
    /// Returns an error if the API server cannot be reached.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> anyhow::Result<Answer> {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.base));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = self
            .client
            .send(request.body(Body::from(body.as_bytes().to_vec()))?)
            .await
            .with_context(|| path.to_owned())?;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await?.to_bytes();
        Ok(Answer { status, body: String::from_utf8_lossy(&body).into_owned() })
    }

    /// Sends a GET request and returns the body as text.
    ///
    /// # Errors
    ///
    /// Returns an error if the status is not a success.
    pub async fn text(&self, path: &str) -> anyhow::Result<String> {
        let answer = self.send(Method::GET, path, &[], "").await?;
        anyhow::ensure!(answer.status == 200, "{path}: status {}: {}", answer.status, answer.body);
        Ok(answer.body)
    }

    /// Sends a GET request and returns the body as JSON.
    ///
    /// # Errors
    ///
    /// Returns an error if the status is not a success or the body is not the expected JSON.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        self.send(Method::GET, path, &[], "").await?.json().with_context(|| path.to_owned())
    }

    /// Sends a PUT request with a JSON body.
    ///
    /// # Errors
    ///
    /// Returns an error if the status is not a success; the error holds the body of the answer.
    pub async fn put(&self, path: &str, body: &Value) -> anyhow::Result<()> {
        let answer = self.send(Method::PUT, path, &[("content-type", "application/json")], &body.to_string()).await?;
        anyhow::ensure!(answer.status == 200, "PUT {path}: status {}: {}", answer.status, answer.body);
        Ok(())
    }

    /// Asks the application to send a request to localhost inside the pod, and returns the answer.
    ///
    /// # Errors
    ///
    /// Returns an error if the application receives no answer.
    pub async fn ask(
        &self,
        method: Method,
        path: &str,
        key: Option<&str>,
        body: Option<&Value>,
    ) -> anyhow::Result<Reply> {
        let headers: Vec<_> = key.map(|key| ("x-environment-key", key)).into_iter().collect();
        self.ask_with(method, path, &headers, body).await
    }

    /// Lets the application evaluate a flag this many times.
    ///
    /// # Errors
    ///
    /// Returns an error if the application does not receive each answer.
    pub async fn use_flag(&self, flag: &str, times: u64) -> anyhow::Result<()> {
        let path = format!("/ofrep/v1/evaluate/flags/{flag}");
        for _ in 0..times {
            let reply = self.ask(Method::POST, &path, None, Some(&serde_json::json!({}))).await?;
            anyhow::ensure!(reply.status == 200, "{reply:?}");
        }
        Ok(())
    }

    /// Asks the application to send a request with these headers, as [`PodPort::ask`] does. The application sends only
    /// headers that it knows.
    ///
    /// # Errors
    ///
    /// Returns an error if the application receives no answer.
    pub async fn ask_with(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&Value>,
    ) -> anyhow::Result<Reply> {
        let path: String = path.bytes().map(escaped).collect();
        let target = format!("/ask?method={method}&path={path}");
        let headers: Vec<_> = [("content-type", "application/json")].iter().chain(headers).copied().collect();
        let text = body.map(ToString::to_string).unwrap_or_default();
        self.send(Method::POST, &target, &headers, &text).await?.json()
    }
}

/// Percent-encodes a byte of a query parameter's value, if needed.
fn escaped(byte: u8) -> String {
    if byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte) {
        char::from(byte).to_string()
    } else {
        format!("%{byte:02X}")
    }
}
