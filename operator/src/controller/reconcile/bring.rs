//! Steps that produce a new snapshot: fetch → prune → compile. A child process parses the document; this process does
//! not.

use std::{
    pin::pin,
    time::{Duration, Instant},
};

use jiff::Timestamp;

use super::{
    error::Error,
    memory::{Candidate, Carried, Memory, Provenance},
    schedule,
    turn::Turn,
};
use crate::{
    compile::guard::Outline,
    compiler::{self, Request, Response, Task},
    controller::{
        metrics::Step,
        report::{Contents, Facts, Failure, Fetch},
    },
    publish::{Owner, Snapshot},
    source::fetch::{self, Arrived, EnvironmentKey, Fetched, Retry},
};

/// Time between two restorations of the published objects while a fetch or a compilation is running.
const LOOK_AFTER: Duration = Duration::from_millis(500);

/// Number of fetches in one reconciliation if the environment changes between two pages of its document.
const FETCHES: usize = 3;

impl Turn<'_> {
    /// Fetches and compiles the document if it is new, then accepts the result or holds it back for approval.
    pub(super) async fn bring(&self, owner: &Owner, memory: &mut Memory, facts: &mut Facts) -> Result<(), Error> {
        // Invalid rules are reported before the source is asked; the child process applies the rules.
        compiler::rules(&self.spec.prune)?;
        let mut compiled = Err(compiler::Error::ChangedBetweenPages);
        for _ in 0..FETCHES {
            if !matches!(compiled, Err(compiler::Error::ChangedBetweenPages)) {
                break;
            }
            let Some(arrived) = self.fetch(owner, memory, facts).await? else {
                return Ok(());
            };
            compiled = self.compile(owner, memory, arrived).await;
        }
        match compiled {
            Ok(compiled) => {
                self.was_read(memory, facts);
                let candidate = self.candidate(compiled);
                self.judge(owner, memory, candidate);
                Ok(())
            }
            Err(error) => {
                // A source that does not return a document says nothing new about the last document, so what is known
                // of it stays.
                let is_document =
                    !matches!(error, compiler::Error::Malformed(_) | compiler::Error::ChangedBetweenPages);
                let error = Error::from(error);
                if is_document {
                    self.was_read(memory, facts);
                    memory.withheld = None;
                    memory.uncompiled = Some(Failure { reason: error.reason(), message: error.to_string() });
                }
                Err(error)
            }
        }
    }

    /// Fetches the document. `None` if nothing is new, or if the fetch has to wait for a limit or a new key.
    async fn fetch(&self, owner: &Owner, memory: &mut Memory, facts: &mut Facts) -> Result<Option<Arrived>, Error> {
        let lessons = memory.lessons(Instant::now());
        let step = self.context.metrics.begin(Step::Fetch);
        let fetching = self.context.fetcher.fetch(&self.namespace, self.spec, &lessons);
        let fetched = self.look_after(owner, memory, fetching).await;
        let (outcome, arrived) = match fetched {
            Ok(Fetched::StillRefused) => {
                self.postpone_fetch(memory, Retry::Slow);
                step.end("StillRefused");
                return Ok(None);
            }
            Ok(Fetched::Busy) => {
                memory.next_fetch = Some(Instant::now() + Duration::from_secs(1).mul_f64(1.0 + fastrand::f64()));
                step.end("Busy");
                return Ok(None);
            }
            Ok(Fetched::Crowded { expected }) => {
                memory.expected = Some(expected);
                memory.next_fetch = Some(Instant::now() + Duration::from_secs(1).mul_f64(1.0 + fastrand::f64()));
                step.end("Crowded");
                return Ok(None);
            }
            Ok(Fetched::Unchanged) => {
                memory.failures = 0;
                ("Unchanged", None)
            }
            Ok(Fetched::Document(arrived)) => {
                let bytes = arrived.bytes();
                self.context.metrics.environments.document(&self.namespace, &self.name, bytes);
                memory.expected = Some(bytes);
                memory.whole = Some(Instant::now());
                ("Done", Some(arrived))
            }
            Err(error) => {
                step.end(error.reason());
                if let fetch::Error::AuthenticationFailed { key, .. } = &error {
                    memory.refused = Some((key.clone(), Instant::now()));
                }
                return Err(error.into());
            }
        };
        step.end(outcome);
        if arrived.is_none() {
            self.was_read(memory, facts);
        }
        Ok(arrived)
    }

    /// Records a successful fetch, with or without a new document.
    fn was_read(&self, memory: &mut Memory, facts: &mut Facts) {
        facts.fetch = Fetch::Done;
        memory.refused = None;
        let wait = schedule::after_success(self.spec.refresh.interval.get(), fastrand::f64());
        memory.next_fetch = Some(Instant::now() + wait);
        let now = Timestamp::now().as_duration().as_secs_f64();
        self.context.metrics.environments.fetched(&self.namespace, &self.name, now);
    }

    /// Restores the published objects at intervals while `work`, which may take long, is running.
    async fn look_after<T>(&self, owner: &Owner, memory: &mut Memory, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        loop {
            match tokio::time::timeout(LOOK_AFTER, &mut work).await {
                Ok(done) => return done,
                Err(_) => {
                    if let Some(Carried { snapshot, record, .. }) = &memory.carried {
                        // A failure here repeats after the work and is reported then.
                        let again =
                            self.context.publisher.publish(owner, snapshot, record.as_ref(), &mut memory.ledger);
                        let _ = again.await;
                    }
                }
            }
        }
    }

    async fn compile(&self, owner: &Owner, memory: &mut Memory, arrived: Arrived) -> Result<Response, compiler::Error> {
        let Arrived { pages, arrival, reservation: load } = arrived;
        let server_keys = arrival.key().map(EnvironmentKey::expose).map(str::to_owned);
        let task = Task {
            environment: self.name.clone(),
            server_keys: server_keys.into_iter().collect(),
            prune: self.spec.prune.clone(),
            serve: self.spec.serve.clone(),
        };
        let step = self.context.metrics.begin(Step::Compile);
        let compiling = self.context.compiler.compile(&self.namespace, Request { task, pages });
        let compiled = self.look_after(owner, memory, compiling).await;
        drop(load);
        step.end(compiled.as_ref().map_or_else(compiler::Error::reason, |_| "Done"));
        let compiled = compiled?;
        let about = &compiled.about;
        memory.held = Some(arrival.held(about.updated_at.as_deref()));
        memory.origin = Some(Provenance {
            client_key: about.client_key.clone(),
            updated_at: about.updated_at.as_deref().and_then(|at| at.parse().ok()),
        });
        Ok(compiled)
    }

    fn candidate(&self, compiled: Response) -> Candidate {
        let summary = compiled.summary;
        self.context.metrics.environments.compiled(&self.namespace, &self.name, summary.bytes, compiled.finding_count);
        let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let contents = Contents {
            features: count(summary.features),
            segments: count(summary.segments),
            overrides: count(summary.identity_overrides),
            bytes: count(summary.bytes),
            updated_at: compiled.about.updated_at.clone(),
            findings: compiled.findings.clone(),
            finding_count: count(compiled.finding_count),
        };
        let outline = Outline::of(&compiled.about, &self.spec.source);
        Candidate { snapshot: Snapshot::from(compiled), contents, outline }
    }
}
