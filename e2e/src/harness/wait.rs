//! Waits for conditions with a time limit and a description, so that a failure says which condition was not met.

use std::fmt::Debug;
use std::future::Future;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use kube::api::Api;
use kube::runtime::wait::await_condition;
use serde::de::DeserializeOwned;

/// Time limit for operations that take a cluster seconds, on a machine that is so busy that its containers wait for minutes.
pub(super) const CAP: Duration = Duration::from_secs(180);
/// Interval between two checks of something that cannot be watched, such as a program's own port.
const BETWEEN: Duration = Duration::from_millis(100);

/// Watches the object until it satisfies `condition`, and returns it. A watch that fails is repeated.
///
/// # Errors
///
/// Returns an error if the time limit passes; the error holds the object's last status.
pub async fn until<K>(
    api: &Api<K>,
    name: &str,
    what: &str,
    cap: Duration,
    condition: impl Fn(&K) -> bool,
) -> anyhow::Result<K>
where
    K: kube::Resource + Clone + Debug + DeserializeOwned + serde::Serialize + Send + 'static,
{
    let holds = async {
        loop {
            let watch = await_condition(api.clone(), name, |object: Option<&K>| object.is_some_and(&condition));
            match watch.await {
                Ok(object) => return object,
                Err(_) => tokio::time::sleep(BETWEEN).await,
            }
        }
    };
    if let Ok(object) = tokio::time::timeout(cap, holds).await {
        return object.with_context(|| format!("{name} vanished while waiting until {what}"));
    }
    let last = match api.get_opt(name).await? {
        Some(object) => {
            serde_json::to_value(&object)?.get("status").map_or("no status".to_owned(), ToString::to_string)
        }
        None => "it does not exist".to_owned(),
    };
    anyhow::bail!("{name}: not so within {cap:?}: {what}; last seen: {last}")
}

/// Calls `ask` until it returns `Some`, and returns that value. An error of `ask` counts as "not yet".
///
/// # Errors
///
/// Returns an error if the time limit passes; the error holds the last error of `ask`.
pub async fn eventually<T, F>(what: &str, cap: Duration, mut ask: impl FnMut() -> F) -> anyhow::Result<T>
where
    F: Future<Output = anyhow::Result<Option<T>>>,
{
    let start = Instant::now();
    let mut last = None;
    while start.elapsed() < cap {
        match tokio::time::timeout(cap.saturating_sub(start.elapsed()), ask()).await {
            Ok(Ok(Some(answer))) => return Ok(answer),
            Ok(Ok(None)) => last = None,
            Ok(Err(error)) => last = Some(error),
            Err(_) => break,
        }
        tokio::time::sleep(BETWEEN).await;
    }
    Err(last.unwrap_or_else(|| anyhow::anyhow!("it was not so")).context(format!("not within {cap:?}: {what}")))
}
