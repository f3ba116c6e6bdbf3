//! The steps that bring something new: fetch → prune → compile. What a document holds is seen by a process of its own.

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

/// How often what is published is looked at while a source takes its time.
const LOOK_AFTER: Duration = Duration::from_millis(500);

/// How often a document is fetched because the environment changed between two of its pages.
const FETCHES: usize = 3;

impl Turn<'_> {
    /// What is new becomes what is carried, or is held back.
    pub(super) async fn bring(&self, owner: &Owner, memory: &mut Memory, facts: &mut Facts) -> Result<(), Error> {
        // Said before anything is asked; the rules themselves are applied elsewhere.
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
                // A source that answers with something else than documents changes nothing of what is known of the last.
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

    /// None when there is nothing new.
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

    /// The source has a document, new or not.
    fn was_read(&self, memory: &mut Memory, facts: &mut Facts) {
        facts.fetch = Fetch::Done;
        memory.refused = None;
        let wait = schedule::after_success(self.spec.refresh.interval.get(), fastrand::f64());
        memory.next_fetch = Some(Instant::now() + wait);
        let now = Timestamp::now().as_duration().as_secs_f64();
        self.context.metrics.environments.fetched(&self.namespace, &self.name, now);
    }

    /// A source, or the compiler, may take its time; what is published is looked after meanwhile.
    async fn look_after<T>(&self, owner: &Owner, memory: &mut Memory, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        loop {
            match tokio::time::timeout(LOOK_AFTER, &mut work).await {
                Ok(done) => return done,
                Err(_) => {
                    if let Some(Carried { snapshot, record, .. }) = &memory.carried {
                        // What fails here fails again after the work, and is reported then.
                        let again =
                            self.context.publisher.publish(owner, snapshot, record.as_ref(), &mut memory.ledger);
                        let _ = again.await;
                    }
                }
            }
        }
    }

    async fn compile(&self, owner: &Owner, memory: &mut Memory, arrived: Arrived) -> Result<Response, compiler::Error> {
        let Arrived { pages, arrival, load } = arrived;
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
