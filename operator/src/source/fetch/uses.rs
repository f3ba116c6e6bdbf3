//! Sends counts of used flags to a server, as Flagsmith's SDKs do.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use reqwest::{StatusCode, header};

use super::{
    EnvironmentKey, Error, Fetcher,
    connect::Purpose,
    connector::Server,
    failure::{CHECK_PATH, explain, unavailable},
    interrupted::Interrupted,
    pages::status_error,
};
use crate::api::Flagsmith;

/// Path of the endpoint, below the base URL of the API.
const PATH: [&str; 3] = ["analytics", "flags", ""];
/// Maximum time from the request to the header of its answer.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Counts that the server has not confirmed.
#[derive(Debug)]
pub struct Unsent {
    /// Reason of the failure.
    pub error: Error,
    /// True if the server may have stored the counts: the request was sent, and no answer of the server came.
    pub may_have_arrived: bool,
}

impl From<Error> for Unsent {
    fn from(error: Error) -> Self {
        Self { error, may_have_arrived: false }
    }
}

impl Fetcher {
    /// Sends counts by the flag's name, with this environment key of the source. Without a key, it is read from its
    /// Secret.
    ///
    /// The checks of a fetch apply to it, too: origins, addresses, certificates. It waits for other requests to the
    /// server, and is not sent while the server's circuit is open. Its own failures open no circuit, because documents
    /// matter more.
    ///
    /// # Errors
    /// The spec, an object that it refers to, or the server's answer cannot be used: see [`Error`].
    pub async fn send_uses(
        &self,
        namespace: &str,
        flagsmith: &Flagsmith,
        key: Option<&EnvironmentKey>,
        uses: &BTreeMap<Arc<str>, u64>,
    ) -> Result<(), Unsent> {
        let server = self.server(&flagsmith.api_url, &PATH)?;
        let admitted = self.admit(Purpose::Send, &server, namespace, flagsmith, key).await;
        let Server { url, origin, .. } = server;
        let (key, client) = admitted.map_err(|interrupted| interrupted.error(&origin))?;
        let permit = self.limiter.acquire(&origin, namespace).await;
        let _permit = permit.map_err(|rejection| Interrupted::from(rejection).error(&origin))?;
        // Requests that wait hold no body.
        let body: BTreeMap<&str, u64> = uses.iter().map(|(flag, count)| (flag.as_ref(), *count)).collect();
        let body =
            serde_json::to_vec(&body).map_err(|_| Error::InvalidSource("the names of flags are no JSON".to_owned()))?;
        let request = client
            .post(url.clone())
            .header("X-Environment-Key", key.header())
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json")
            .body(body);
        let response = match tokio::time::timeout(TIMEOUT, request.send()).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => {
                return Err(Unsent { may_have_arrived: !error.is_connect(), error: explain(&error, &origin, &url) });
            }
            Err(_) => {
                let error = unavailable(&origin, &format!("no answer in time; {CHECK_PATH}"));
                return Err(Unsent { may_have_arrived: true, error });
            }
        };
        match response.status() {
            status if status.is_success() => {
                // The request may have been the probe after a pause.
                self.limiter.record_answer(&origin, namespace);
                Ok(())
            }
            // A gateway gave up on the server, which may go on.
            StatusCode::GATEWAY_TIMEOUT => {
                let error = status_error(StatusCode::GATEWAY_TIMEOUT, &response, &origin, &key);
                Err(Unsent { may_have_arrived: true, error })
            }
            status => Err(status_error(status, &response, &origin, &key).into()),
        }
    }
}
