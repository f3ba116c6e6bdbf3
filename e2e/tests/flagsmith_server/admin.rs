//! Flagsmith's REST API, as the dashboard uses it.

use reqwest::{Method, RequestBuilder};
use serde_json::Value;

/// A server, with the right to create projects.
pub(crate) struct Admin {
    /// Base URL, such as `https://flags.example.org/api/v1/`.
    pub(crate) url: String,
    authorization: String,
    pub(crate) http: reqwest::Client,
}

impl Admin {
    /// `token` is a user's token, or the key of an organisation, which has a dot.
    pub(crate) fn new(url: &str, token: &str) -> Admin {
        let scheme = if token.contains('.') { "Api-Key" } else { "Token" };
        let url = format!("{}/", url.trim_end_matches('/'));
        Admin { url, authorization: format!("{scheme} {token}"), http: http() }
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        self.send(Method::GET, path, |request| request).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Value {
        self.send(Method::POST, path, |request| request.json(body)).await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> Value {
        self.send(Method::PUT, path, |request| request.json(body)).await
    }

    pub(crate) async fn delete(&self, path: &str) {
        self.send(Method::DELETE, path, |request| request).await;
    }

    /// Returns the document of the environment with this server-side key.
    pub(crate) async fn document(&self, server_key: &str) -> String {
        let request =
            self.http.get(format!("{}environment-document/", self.url)).header("X-Environment-Key", server_key);
        answered(request, "GET environment-document/").await
    }

    async fn send(&self, method: Method, path: &str, with: impl FnOnce(RequestBuilder) -> RequestBuilder) -> Value {
        let what = format!("{method} {path}");
        let request = self.http.request(method, format!("{}{path}", self.url));
        let text = answered(with(request.header("Authorization", &self.authorization)), &what).await;
        if text.is_empty() { Value::Null } else { serde_json::from_str(&text).unwrap() }
    }
}

/// Returns an HTTP client.
pub(crate) fn http() -> reqwest::Client {
    let _installed_already = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().timeout(std::time::Duration::from_secs(60)).build().unwrap()
}

async fn answered(request: RequestBuilder, what: &str) -> String {
    let response = request.send().await.unwrap_or_else(|error| panic!("{what}: {error}"));
    let (status, text) = (response.status(), response.text().await.unwrap());
    assert!(status.is_success(), "{what}: {status}: {text}");
    text
}
