//! Commands that change a FeatureEnvironment: `pin`, `unpin`, `confirm`, `refresh`.

use std::{fmt, time::Duration};

use jiff::Timestamp;
use serde::Serialize;
use serde_json::json;

use super::{
    answer::{CommandOutput, TextOutput},
    cluster::Cluster,
    failure::Failure,
};
use crate::{
    api::{FeatureEnvironment, FeatureEnvironmentStatus, Revision, names::annotation},
    controller::status::FETCHED,
};

/// Outcome of a change.
#[derive(Debug, Serialize)]
pub(super) struct Edited {
    environment: String,
    message: String,
    #[serde(skip)]
    failed: bool,
}

impl CommandOutput for Edited {
    fn text(&self, output: &mut TextOutput) -> fmt::Result {
        output.line(&self.message)
    }

    fn exit_code(&self) -> u8 {
        u8::from(self.failed)
    }
}

fn edited(environment: &str, message: String) -> Edited {
    Edited { environment: environment.to_owned(), message, failed: false }
}

fn status(environment: FeatureEnvironment) -> FeatureEnvironmentStatus {
    environment.status.unwrap_or_default()
}

/// Sets `spec.pin`, after a check that the revision is kept.
pub(super) async fn pin(cluster: &Cluster, environment: &str, revision: &str) -> Result<Edited, Failure> {
    let status = status(cluster.environment(environment).await?);
    let past = status.history.iter().map(|past| &past.revision);
    let kept: Vec<&str> = status.revision.iter().chain(past).map(Revision::as_str).collect();
    if !kept.contains(&revision) {
        return Err(Failure::not_kept(revision, &kept));
    }
    cluster.change(environment, &json!({"spec": {"pin": revision}})).await?;
    Ok(edited(
        environment,
        format!("{environment} stays at revision {revision} until: kubectl remora unpin {environment}"),
    ))
}

/// Empties `spec.pin`.
pub(super) async fn unpin(cluster: &Cluster, environment: &str) -> Result<Edited, Failure> {
    cluster.environment(environment).await?;
    cluster.change(environment, &json!({"spec": {"pin": ""}})).await?;
    Ok(edited(environment, format!("{environment} publishes its newest revision again")))
}

/// Approves the revision that is held back. An approval of another revision is refused, because a person has seen that
/// one and not this one.
pub(super) async fn confirm(cluster: &Cluster, environment: &str, revision: Option<&str>) -> Result<Edited, Failure> {
    let Some(held) = status(cluster.environment(environment).await?).held_revision else {
        return Err(Failure::Usage(format!("no revision of {environment:?} is held back")));
    };
    if let Some(other) = revision.filter(|revision| held != **revision) {
        return Err(Failure::Usage(format!("revision {other:?} is not held back: {held} is")));
    }
    cluster.change(environment, &json!({"metadata": {"annotations": {annotation::CONFIRM: held}}})).await?;
    Ok(edited(environment, format!("{environment} publishes revision {held}")))
}

/// Requests a fetch now, and waits for its outcome if asked to.
pub(super) async fn refresh(cluster: &Cluster, environment: &str, limit: Option<Duration>) -> Result<Edited, Failure> {
    let suspended = cluster.environment(environment).await?.spec.suspend;
    if suspended {
        return Err(Failure::Usage(format!("{environment:?} is suspended: set spec.suspend to false first")));
    }
    let request = Timestamp::now().to_string();
    cluster.change(environment, &json!({"metadata": {"annotations": {annotation::REFRESH: request}}})).await?;
    let Some(limit) = limit else {
        return Ok(edited(
            environment,
            format!("requested a fetch of {environment}: status.lastRefresh becomes {request}"),
        ));
    };
    let is_served = |environment: &FeatureEnvironment| {
        environment.status.as_ref().and_then(|status| status.last_refresh.as_ref()) == Some(&request)
    };
    let found = cluster.wait(environment, limit, is_served).await?;
    Ok(outcome(environment, &found.status.unwrap_or_default(), &request, limit))
}

fn outcome(environment: &str, status: &FeatureEnvironmentStatus, request: &str, limit: Duration) -> Edited {
    let fetched = status.condition(FETCHED);
    let revision = status.revision.as_ref().map_or("none", Revision::as_str);
    let (failed, message) = match fetched {
        _ if status.last_refresh.as_deref() != Some(request) => (
            true,
            format!(
                "the operator has not fetched {environment} within {} s: kubectl remora check says if it works",
                limit.as_secs()
            ),
        ),
        Some(fetched) if fetched.status != "True" => (true, format!("the fetch failed: {}", fetched.message)),
        _ => (false, format!("fetched; revision {revision} is published")),
    };
    Edited { environment: environment.to_owned(), message, failed }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcome_of_refresh_needs_served_request_and_successful_fetch() {
        let status = |last: &str, fetched: &str| -> FeatureEnvironmentStatus {
            serde_json::from_value(json!({
                "lastRefresh": last, "revision": "abc", "conditions": [{
                    "type": "Fetched", "status": fetched, "reason": "x", "message": "no answer",
                    "lastTransitionTime": "2026-11-20T00:00:00Z",
                }],
            }))
            .unwrap()
        };
        let told = |status: &FeatureEnvironmentStatus| {
            let edited = outcome("shop", status, "2", Duration::from_secs(7));
            (edited.exit_code(), edited.message)
        };
        assert_eq!(told(&status("2", "True")), (0, "fetched; revision abc is published".to_owned()));
        assert_eq!(told(&status("2", "False")), (1, "the fetch failed: no answer".to_owned()));
        let (code, message) = told(&status("1", "True"));
        assert!(code == 1 && message.contains("within 7 s"), "{message}");
    }
}
