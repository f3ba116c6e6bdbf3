//! The steps that bring something new: fetch → prune → compile.

use std::{
    pin::pin,
    time::{Duration, Instant},
};

use jiff::Timestamp;

use super::{
    carry::Carried,
    error::Error,
    judge::Candidate,
    memory::{Memory, Provenance},
    schedule,
    turn::Turn,
};
use crate::{
    api::{AppliedTo, BooleanFlags, DisabledFlags, Finding, ObjectFlags},
    compile::{self, Compiled, compile},
    document::{Document, Original},
    fetch::{self, EnvironmentKey, Fetched, Lessons, Load, Retry},
    guard::Outline,
    metrics::Step,
    prune::{Rules, prune},
    publish::{Owner, Snapshot},
    report::{Contents, Facts, Failure, Fetch},
};

/// How often what is published is looked at while a source takes its time.
const LOOK_AFTER: Duration = Duration::from_millis(500);

/// A document that came, and what it came with.
struct Brought {
    document: Box<Document>,
    original: Option<Original>,
    key: Option<EnvironmentKey>,
    updated_at: Option<String>,
    /// Kept until it is compiled.
    load: Load,
}

impl Turn<'_> {
    /// What is new becomes what is carried, or is held back.
    pub(super) async fn bring(&self, owner: &Owner, memory: &mut Memory, facts: &mut Facts) -> Result<(), Error> {
        let rules = self.rules()?;
        let Some(brought) = self.fetch(owner, memory, facts).await? else {
            return Ok(());
        };
        let updated_at = brought.updated_at.clone();
        let outline = Outline::of(&brought.document, &self.spec.source);
        match self.prune_and_compile(brought, rules).await {
            Ok(compiled) => {
                self.judge(owner, memory, self.candidate(compiled, updated_at, outline));
                Ok(())
            }
            Err(error) => {
                memory.withheld = None;
                memory.uncompiled = Some(Failure { reason: error.reason(), message: error.to_string() });
                Err(error)
            }
        }
    }

    /// None when there is nothing new.
    async fn fetch(&self, owner: &Owner, memory: &mut Memory, facts: &mut Facts) -> Result<Option<Brought>, Error> {
        let lessons = memory.lessons(Instant::now());
        let step = self.context.metrics.begin(Step::Fetch);
        let fetched = self.fetch_and_look_after(owner, memory, &lessons).await;
        let (outcome, brought) = match fetched {
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
            Ok(Fetched::Document { document, original, key, held, bytes, load }) => {
                self.context.metrics.environments.document(&self.namespace, &self.name, bytes);
                memory.held = Some(held);
                memory.expected = Some(bytes);
                memory.whole = Some(Instant::now());
                let updated_at = document.updated_at().map(str::to_owned);
                memory.origin = Some(Provenance {
                    client_key: document.api_key.clone(),
                    updated_at: updated_at.as_deref().and_then(|at| at.parse().ok()),
                });
                ("Done", Some(Brought { document, original, key, updated_at, load }))
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
        facts.fetch = Fetch::Done;
        memory.refused = None;
        let wait = schedule::after_success(self.spec.refresh.interval.get(), fastrand::f64());
        memory.next_fetch = Some(Instant::now() + wait);
        let now = Timestamp::now().as_duration().as_secs_f64();
        self.context.metrics.environments.fetched(&self.namespace, &self.name, now);
        Ok(brought)
    }

    /// A source may take its time; what is published is looked after meanwhile.
    async fn fetch_and_look_after(
        &self,
        owner: &Owner,
        memory: &mut Memory,
        lessons: &Lessons,
    ) -> Result<Fetched, fetch::Error> {
        let mut fetching = pin!(self.context.fetcher.fetch(&self.namespace, self.spec, lessons));
        loop {
            match tokio::time::timeout(LOOK_AFTER, &mut fetching).await {
                Ok(fetched) => return fetched,
                Err(_) => {
                    if let Some(Carried { snapshot, record, .. }) = &memory.carried {
                        // What fails here fails again after the fetch, and is reported then.
                        let again =
                            self.context.publisher.publish(owner, snapshot, record.as_ref(), &mut memory.ledger);
                        let _ = again.await;
                    }
                }
            }
        }
    }

    /// Large documents take long enough to hold up a worker thread.
    async fn prune_and_compile(&self, brought: Brought, rules: Rules) -> Result<Compiled, Error> {
        let step = self.context.metrics.begin(Step::Compile);
        let (environment, environment_flags, ofrep) = (self.name.clone(), self.environment_flags(), self.ofrep());
        let work = tokio::task::spawn_blocking(move || {
            let pruned = prune(*brought.document, &rules);
            let server_keys: Vec<&str> = brought.key.iter().map(EnvironmentKey::expose).collect();
            let options = compile::Options {
                environment: &environment,
                server_keys: &server_keys,
                environment_flags,
                ofrep,
                document: brought.original.as_ref(),
            };
            let compiled = compile(&pruned, &options);
            drop((pruned, brought.original, brought.load));
            compiled
        });
        let compiled = match work.await {
            Ok(compiled) => compiled.map_err(Error::from),
            Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
        };
        step.end(compiled.as_ref().map_or_else(Error::reason, |_| "Done"));
        compiled
    }

    fn candidate(&self, compiled: Compiled, updated_at: Option<String>, outline: Outline) -> Candidate {
        let summary = compiled.summary;
        self.context.metrics.environments.compiled(&self.namespace, &self.name, summary.bytes, compiled.findings.len());
        let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let contents = Contents {
            features: count(summary.features),
            segments: count(summary.segments),
            overrides: count(summary.identity_overrides),
            bytes: count(summary.bytes),
            updated_at,
            findings: compiled.findings.iter().map(listed).collect(),
        };
        Candidate { snapshot: Snapshot::from(compiled), contents, outline }
    }

    fn rules(&self) -> Result<Rules, Error> {
        let prune = &self.spec.prune;
        let (server_only, overrides) = (prune.server_only_features.is_drop(), prune.identity_overrides.is_drop());
        Ok(Rules::new(&prune.features.include, &prune.features.exclude, server_only, overrides)?)
    }

    fn ofrep(&self) -> compile::Ofrep {
        let ofrep = self.spec.serve.ofrep;
        compile::Ofrep {
            boolean_flags: match ofrep.boolean_flags {
                BooleanFlags::Value => compile::BooleanFlags::Value,
                BooleanFlags::Enabled => compile::BooleanFlags::Enabled,
            },
            disabled_flags: match ofrep.disabled_flags {
                DisabledFlags::CodeDefault => compile::DisabledFlags::CodeDefault,
                DisabledFlags::Value => compile::DisabledFlags::Value,
            },
            object_flags: match ofrep.object_flags {
                ObjectFlags::Text => compile::ObjectFlags::Text,
                ObjectFlags::Object => compile::ObjectFlags::Object,
            },
        }
    }

    fn environment_flags(&self) -> compile::Mode {
        match self.spec.serve.environment_flags {
            AppliedTo::Plain => compile::Mode::Plain,
            AppliedTo::IdentityFree => compile::Mode::IdentityFree,
            AppliedTo::AllSegments => compile::Mode::AllSegments,
        }
    }
}

fn listed(finding: &compile::Finding) -> Finding {
    Finding { subject: finding.subject.clone(), message: finding.message.clone() }
}
