//! Report step: derives the status from the outcome of the other steps, and writes it if it changed.

mod status_writer;

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

pub(super) use self::status_writer::{Error, StatusWriter};
use super::{
    environment::{Environment, may_have_objects},
    schedule,
};
use crate::{
    api::{FeatureEnvironment, FeatureEnvironmentStatus, ObjectKind, Reason, resource_version::is_older},
    controller::{
        metrics::{Metrics, Outcome, Step},
        status::{Facts, next_status},
    },
    source::back_off::Retry,
};

/// State of the reports between reconciliations.
#[derive(Debug, Default)]
pub(super) struct Reported {
    /// Latest status, written or not. The next status follows from it.
    status: Option<FeatureEnvironmentStatus>,
    /// Last status that this process wrote. The watch may lag behind it.
    written: Option<Written>,
    /// Time of the next attempt after a failed status write.
    retry: Option<Instant>,
    /// Number of status writes that failed in a row.
    failures: u32,
}

/// Status that this process wrote.
#[derive(Debug)]
struct Written {
    status: FeatureEnvironmentStatus,
    /// The status as the API server stored it.
    stored: Option<FeatureEnvironmentStatus>,
    /// Resource version of the FeatureEnvironment with it.
    version: String,
}

impl Written {
    fn new(status: FeatureEnvironmentStatus, stored: &FeatureEnvironment) -> Self {
        let version = stored.metadata.resource_version.clone().unwrap_or_default();
        Self { status, stored: stored.status.clone(), version }
    }

    /// True if the watch shows a later status: a process that holds the lease no more sent it before, and it arrived late.
    fn is_replaced(&self, seen: &FeatureEnvironment) -> bool {
        let version = seen.metadata.resource_version.as_deref().unwrap_or_default();
        is_older(&self.version, version) && seen.status != self.stored
    }
}

impl Reported {
    /// Returns the latest status, which for a new process is the one that an earlier process wrote.
    pub(super) fn status<'a>(&'a self, environment: &'a Environment<'_>) -> Option<&'a FeatureEnvironmentStatus> {
        self.status.as_ref().or(environment.object.status.as_ref())
    }

    /// Returns the status that was written last, by this process or another one.
    pub(super) fn written<'a>(&'a self, environment: &'a Environment<'_>) -> Option<&'a FeatureEnvironmentStatus> {
        match &self.written {
            Some(written) if !written.is_replaced(environment.object) => Some(&written.status),
            _ => environment.object.status.as_ref(),
        }
    }

    /// Returns the status whose Events were recorded last, by this process or an earlier one.
    fn announced<'a>(&'a self, environment: &'a Environment<'_>) -> Option<&'a FeatureEnvironmentStatus> {
        self.written.as_ref().map(|written| &written.status).or(environment.object.status.as_ref())
    }

    /// True if a condition of this process's latest status has this reason.
    pub(super) fn has(&self, reason: Reason) -> bool {
        self.status.iter().flat_map(|status| &status.conditions).any(|condition| condition.reason == reason.as_str())
    }

    pub(super) fn retry(&self) -> Option<Instant> {
        self.retry
    }

    /// Postpones the next status write. Only the first failure in a row is logged as a warning.
    fn failed(&mut self, environment: &Environment<'_>, error: &Error, interval: Duration) {
        let (namespace, environment) = (environment.namespace(), &environment.name.name);
        if self.failures == 0 {
            tracing::warn!(namespace, environment, %error, "the status is not up to date: the write is retried");
        } else {
            tracing::debug!(namespace, environment, %error, "the status is still not up to date: the write is retried");
        }
        let wait = schedule::after_failure(Retry::Backoff, self.failures, interval, fastrand::f64());
        self.retry = Some(Instant::now() + wait);
        self.failures = self.failures.saturating_add(1);
    }
}

/// Derives the new status and writes it. A status that cannot be written is kept, and a later reconciliation writes it.
pub(super) async fn report(
    environment: &Environment<'_>,
    writer: &StatusWriter,
    metrics: &Metrics,
    facts: Facts,
    reported: &mut Reported,
) {
    let unknown = FeatureEnvironmentStatus::default();
    let written = reported.written(environment).unwrap_or(&unknown);
    let announced = reported.announced(environment).unwrap_or(&unknown);
    let status = next_status(reported.status.as_ref().unwrap_or(written), facts, Timestamp::now());
    let step = metrics.begin(Step::Report);
    let outcome = if status == *written {
        Ok(None)
    } else {
        writer.write(environment.object, announced, &status).await.map(Some)
    };
    step.end(if outcome.is_ok() { Outcome::Done } else { Outcome::Failed(Reason::ReportFailed) });
    for condition in &status.conditions {
        metrics.environments.set_condition(&environment.name, &condition.type_, condition.status == "True");
    }
    metrics.environments.set_held(&environment.name, status.held_revision.is_some());
    match outcome {
        Ok(stored) => {
            let seen = reported.written.as_ref().is_none_or(|written| written.is_replaced(environment.object));
            if let Some(stored) = stored.as_ref().or(seen.then_some(environment.object)) {
                reported.written = Some(Written::new(status.clone(), stored));
            }
            reported.retry = None;
            reported.failures = 0;
        }
        Err(error) => reported.failed(environment, &error, environment.spec.refresh.interval.get()),
    }
    reported.status = Some(status);
}

/// Writes to the status that objects of this kind may exist, ahead of the first of them: a process that ends before the
/// publication is complete leaves Secrets that the next one finds only by the status. ConfigMaps are watched instead.
///
/// # Errors
/// The status was not written.
pub(super) async fn report_ahead(
    environment: &Environment<'_>,
    writer: &StatusWriter,
    kind: ObjectKind,
    reported: &mut Reported,
) -> Result<(), Error> {
    let unknown = FeatureEnvironmentStatus::default();
    let written = reported.written(environment).unwrap_or(&unknown);
    if kind == ObjectKind::ConfigMap || may_have_objects(written, kind) || written.unfinished == Some(kind) {
        return Ok(());
    }
    let announced = reported.announced(environment).unwrap_or(&unknown);
    let latest = reported.status.as_ref().unwrap_or(written).clone();
    let status = FeatureEnvironmentStatus { unfinished: Some(kind), ..latest };
    let stored = writer.write(environment.object, announced, &status).await?;
    reported.written = Some(Written::new(status.clone(), &stored));
    reported.status = Some(status);
    Ok(())
}
