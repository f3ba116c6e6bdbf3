//! Reconciliation of one FeatureEnvironment.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Resource, ResourceExt, runtime::controller::Action};

use super::{
    Context,
    error::Error,
    memory::{Memory, Uid},
    schedule,
};
use crate::{
    api::{
        FeatureEnvironment, FeatureEnvironmentSpec, FeatureEnvironmentStatus, ObjectKind, Pods, names::EnvironmentName,
    },
    controller::{
        metrics::Step,
        report::{self, FETCHED, Facts, Fetch, Pin, Publication},
    },
    publish::{Owner, Snapshot},
    rollout::{nudge::Nudged, observe},
    source::{fetch::Retry, realtime::Target, wake::Haste},
};

/// Shortest wait before a reconciliation that is scheduled by time.
const LEAST_WAIT: Duration = Duration::from_millis(100);

pub(super) struct Turn<'a> {
    pub(super) context: &'a Context,
    pub(super) environment: &'a FeatureEnvironment,
    pub(super) spec: &'a FeatureEnvironmentSpec,
    pub(super) namespace: String,
    pub(super) name: String,
}

impl<'a> Turn<'a> {
    pub(super) fn new(context: &'a Context, environment: &'a FeatureEnvironment) -> Self {
        let namespace = environment.namespace().unwrap_or_default();
        Self { context, environment, spec: &environment.spec, namespace, name: environment.name_any() }
    }

    /// Creates the state of an environment that is new to this process. If its last fetch before a restart succeeded
    /// and its snapshot is published, its next fetch is delayed, so that fetches are spread.
    pub(super) async fn first_memory(&self, uid: &Uid) -> Memory {
        let mut memory = Memory::default();
        let generation = self.environment.metadata.generation;
        let before = self.environment.status.as_ref();
        let was_well = before.is_some_and(|status| {
            let fetched = status.conditions.iter().find(|condition| condition.type_ == FETCHED);
            status.observed_generation == generation && fetched.is_some_and(|fetched| fetched.status == "True")
        });
        let mut published = None;
        if let Ok(owner) = self.owner(&memory) {
            // A failure here repeats when the Secrets are needed, and is reported then.
            let _ = self.context.publisher.look(&owner, &mut memory.ledger).await;
            published = self.context.publisher.revision(&owner);
        }
        let wait = schedule::phase(&uid.0, self.spec.refresh.interval.get());
        let next_fetch = (was_well && published.is_some()).then(|| Instant::now() + wait);
        Memory { generation, next_fetch, ..memory }
    }

    /// Runs all steps of a reconciliation, reports the result, and returns when to reconcile next.
    pub(super) async fn run(&self, memory: &mut Memory) -> Action {
        memory.begin(self.environment.metadata.generation);
        let mut facts = Facts {
            generation: self.environment.metadata.generation,
            suspended: self.spec.suspend,
            fetch: Fetch::NotDue,
            publication: Publication::None,
            revision: None,
            only_in: None,
            held: None,
            pods: None,
            pin: Pin::None,
            history: Vec::new(),
            realtime: None,
            stale_after: schedule::stale_after(self.spec.refresh.interval.get()),
        };
        match self.owner(memory) {
            Err(error) => self.note(&error, memory, &mut facts),
            Ok(owner) => {
                memory.carry_as(owner.object_kind);
                if !self.spec.suspend {
                    match self.context.publisher.look(&owner, &mut memory.ledger).await {
                        Ok(()) => self.work(&owner, memory, &mut facts).await,
                        Err(error) => self.not_published(&error.into(), memory, &mut facts),
                    }
                }
                facts.held = memory.withheld.as_ref().map(|withheld| withheld.revision().to_owned());
                facts.realtime = self.listen(memory);
                facts.revision = facts.revision.take().or_else(|| self.context.publisher.revision(&owner));
                facts.only_in = self.context.publisher.only_in(&owner);
                facts.history = self.history(&owner, memory, facts.revision.as_ref());
                facts.pods = self.attend(&owner, memory, &facts);
            }
        }
        self.report(memory, facts).await;
        self.next(memory)
    }

    /// Fetches, prunes, compiles and publishes. The last good snapshot stays published if a step fails.
    async fn work(&self, owner: &Owner, memory: &mut Memory, facts: &mut Facts) {
        let urgent = self.context.memories.take_urgency(&self.namespace, &self.name);
        let lost = memory.failures == 0
            && memory.newest.is_none()
            && memory.withheld.is_none()
            && memory.carried.is_none()
            && self.context.publisher.revision(owner).is_none();
        if urgent == Some(Haste::FetchWhole) {
            memory.whole = None;
        }
        // A stream event does not shorten the back-off of a failing source.
        let called = match urgent {
            Some(Haste::Mended) => true,
            Some(Haste::Fetch | Haste::FetchWhole) => memory.failures == 0,
            Some(Haste::Look) | None => false,
        };
        if called || lost || memory.is_due(Instant::now()) {
            match self.bring(owner, memory, facts).await {
                Ok(()) => {}
                Err(error) => {
                    self.note(&error, memory, facts);
                    self.postpone_fetch(memory, error.retry());
                    self.recover(owner, memory).await;
                }
            }
        }
        self.confirm(memory);
        if memory.withheld.is_some() {
            self.recover(owner, memory).await;
        }
        match self.publish(owner, memory, facts).await {
            Ok(()) => self.nudge(owner, memory).await,
            Err(error) => self.not_published(&error, memory, facts),
        }
    }

    fn not_published(&self, error: &Error, memory: &mut Memory, facts: &mut Facts) {
        self.note(error, memory, facts);
        memory.retry_publish = Some(self.later(error.retry(), memory.publish_failures));
        memory.publish_failures = memory.publish_failures.saturating_add(1);
    }

    /// Notifies the pods of a new revision. Kubelets deliver it in any case, so a failure is only logged and counted,
    /// and the next reconciliation tries again.
    async fn nudge(&self, owner: &Owner, memory: &mut Memory) {
        let Some(revision) = memory.carried_snapshot().map(|snapshot| snapshot.revision.clone()) else { return };
        if !self.spec.delivery.nudge || memory.told.as_ref() == Some(&revision) {
            return;
        }
        let (namespace, environment) = (&self.namespace, &self.name);
        let step = self.context.metrics.begin(Step::Nudge);
        match self.context.nudger.nudge(namespace, &owner.environment, &revision).await {
            Ok(Nudged { pods, notified, failed }) => {
                step.end(if failed > 0 { "PodsNotTold" } else { "Done" });
                if notified + failed > 0 {
                    tracing::info!(
                        namespace,
                        environment,
                        revision,
                        pods,
                        notified,
                        failed,
                        "notified pods of the revision"
                    );
                }
                memory.told = (failed == 0).then_some(revision);
            }
            Err(error) => {
                step.end(error.reason());
                tracing::warn!(namespace, environment, %error, "pods get the revision when their kubelets sync them");
            }
        }
    }

    /// Follows the source's stream of changes, if the spec asks for it and the document's key is known. Returns the
    /// state of the stream.
    fn listen(&self, memory: &Memory) -> Option<String> {
        let flagsmith = self.spec.source.flagsmith.as_ref().filter(|_| !self.spec.suspend);
        let asked = flagsmith.and_then(|flagsmith| Some((flagsmith, flagsmith.realtime.as_ref()?)));
        let target = asked.zip(memory.origin.as_ref()).map(|((flagsmith, realtime), origin)| Target {
            uid: self.environment.uid().unwrap_or_default(),
            flagsmith: flagsmith.clone(),
            realtime: realtime.clone(),
            client_key: origin.client_key.clone(),
        });
        let held = memory.origin.as_ref().and_then(|origin| origin.updated_at);
        self.context.streams.keep(&self.namespace, &self.name, target, held)
    }

    /// Starts or updates the pod queries for the published revision, and returns the latest counts.
    fn attend(&self, owner: &Owner, memory: &Memory, facts: &Facts) -> Option<Pods> {
        if self.spec.suspend {
            self.context.observer.stop(&self.namespace, &self.name);
            return None;
        }
        let published = |snapshot: &Arc<Snapshot>| facts.revision.as_ref() == Some(&snapshot.revision);
        let snapshot = memory.carried_snapshot().filter(published)?;
        let pods = self.context.observer.observe(observe::Target {
            uid: self.environment.uid().unwrap_or_default(),
            namespace: self.namespace.clone(),
            environment: owner.environment.clone(),
            revision: snapshot.revision.clone(),
            bytes: snapshot.size(),
            object_kind: owner.object_kind,
            overrides_files: snapshot.overrides_files(),
            nudge: self.spec.delivery.nudge,
        })?;
        self.context.metrics.environments.pods(&self.namespace, &self.name, &pods);
        Some(pods)
    }

    /// Derives the new status and writes it. A status that cannot be written is kept, and a later reconciliation writes
    /// it.
    async fn report(&self, memory: &mut Memory, facts: Facts) {
        let published = facts.revision.clone().filter(|_| matches!(facts.publication, Publication::Done { .. }));
        let unknown = FeatureEnvironmentStatus::default();
        let written = memory.written.as_ref().or(self.environment.status.as_ref()).unwrap_or(&unknown);
        let status = report::follow(memory.status.as_ref().unwrap_or(written), facts, Timestamp::now());
        let step = self.context.metrics.begin(Step::Report);
        let reported = self.context.reports.report(self.environment, written, &status).await;
        step.end(if reported.is_ok() { "Done" } else { "ReportFailed" });
        for condition in &status.conditions {
            let is_true = condition.status == "True";
            self.context.metrics.environments.condition(&self.namespace, &self.name, &condition.type_, is_true);
        }
        self.context.metrics.environments.held(&self.namespace, &self.name, status.held_revision.is_some());
        memory.reported = published.or(memory.reported.take());
        match reported {
            Ok(()) => {
                memory.written = Some(status.clone());
                memory.retry_report = None;
                memory.report_failures = 0;
            }
            Err(error) => self.not_reported(&error, memory),
        }
        memory.status = Some(status);
    }

    /// Postpones the next status write. Only the first failure in a row is logged as a warning.
    fn not_reported(&self, error: &report::Error, memory: &mut Memory) {
        let (namespace, environment) = (&self.namespace, &self.name);
        if memory.report_failures == 0 {
            tracing::warn!(namespace, environment, %error, "the status is not up to date");
        } else {
            tracing::debug!(namespace, environment, %error, "the status is still not up to date");
        }
        memory.retry_report = Some(self.later(Retry::Backoff, memory.report_failures));
        memory.report_failures = memory.report_failures.saturating_add(1);
    }

    /// Stores the failure in the facts. It is logged as a warning only if the status does not have its reason yet.
    fn note(&self, error: &Error, memory: &Memory, facts: &mut Facts) {
        let (namespace, environment, reason) = (&self.namespace, &self.name, error.reason());
        let known =
            memory.status.iter().flat_map(|status| &status.conditions).any(|condition| condition.reason == reason);
        if known || error.is_ending() {
            tracing::debug!(namespace, environment, reason, %error, "still not up to date");
        } else {
            tracing::warn!(namespace, environment, reason, %error, "not up to date");
        }
        error.note(facts);
    }

    pub(super) fn postpone_fetch(&self, memory: &mut Memory, retry: Retry) {
        memory.next_fetch = Some(self.later(retry, memory.failures));
        memory.failures = memory.failures.saturating_add(1);
    }

    fn later(&self, retry: Retry, failures: u32) -> Instant {
        let interval = self.spec.refresh.interval.get();
        Instant::now() + schedule::after_failure(retry, failures, interval, fastrand::f64())
    }

    fn next(&self, memory: &Memory) -> Action {
        let work = memory.next_fetch.into_iter().chain(memory.retry_publish).filter(|_| !self.spec.suspend);
        match work.chain(memory.retry_report).min() {
            Some(next) => Action::requeue(next.saturating_duration_since(Instant::now()).max(LEAST_WAIT)),
            None => Action::await_change(),
        }
    }

    fn owner(&self, memory: &Memory) -> Result<Owner, Error> {
        let environment: EnvironmentName = self.name.parse()?;
        let reference = OwnerReference {
            api_version: FeatureEnvironment::api_version(&()).into_owned(),
            kind: FeatureEnvironment::kind(&()).into_owned(),
            name: self.name.clone(),
            uid: self.environment.uid().unwrap_or_default(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        };
        let object_kind = self.spec.delivery.object_kind;
        let was_other = self.was_carried_by(object_kind.other(), memory);
        Ok(Owner { namespace: self.namespace.clone(), environment, reference, object_kind, was_other })
    }

    /// True if objects of this kind may exist, according to the last status.
    fn was_carried_by(&self, object_kind: ObjectKind, memory: &Memory) -> bool {
        let Some(status) = memory.status.as_ref().or(self.environment.status.as_ref()) else { return false };
        match &status.delivery {
            Some(delivered) => delivered.object_kind == object_kind || delivered.formerly == Some(object_kind),
            // A version that knew only ConfigMaps wrote this status.
            None => object_kind == ObjectKind::ConfigMap && status.revision.is_some(),
        }
    }
}
