//! Fetch and compile steps: reads the source if a fetch is due. It changes nothing that is published.

pub(super) mod compile;
mod edit_pace;
mod fetch;
pub(super) mod refresh;
pub(super) mod source_state;

use std::sync::Arc;

use jiff::Timestamp;
use tokio::time::Instant;

use self::{
    compile::{CompiledDocument, compile},
    fetch::{Answer, fetch},
    refresh::Requests,
    source_state::{SourceChange, SourceState, Timing},
};
use super::{environment::Environment, error::Error};
use crate::{
    api::FeatureEnvironmentStatus,
    compiler::{self, Compiler},
    controller::metrics::{Metrics, Outcome, Step},
    counted::Counted,
    source::{
        fetch::{Fetched, FetchedDocument, Fetcher},
        trigger::{Trigger, Triggers},
    },
};

/// Largest number of documents of a namespace from the fetch to the compiled snapshot: an eighth of all reconciliations,
/// and half of the requests that all servers get at one time.
const DOCUMENTS: usize = 16;
/// Number of fetches in one reconciliation if the environment changes between two pages of its document.
const FETCHES: usize = 3;

/// Outcome of the read.
#[derive(Debug)]
pub(super) enum ReadOutcome {
    /// No fetch was due, or it is postponed.
    NotRun,
    /// The source still has the document that was compiled last.
    Unchanged,
    /// The document was fetched and compiled. It is not accepted yet.
    Compiled(Box<CompiledDocument>),
}

/// Facts about earlier documents when the read begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct KnownState<'a> {
    /// Latest status.
    pub(super) status: Option<&'a FeatureEnvironmentStatus>,
    /// True if the last document's snapshot is in memory or not needed, so that the fetch may be conditional.
    pub(super) has_snapshot: bool,
    /// True if no snapshot exists anywhere and none is expected, so that waiting for the next poll has no purpose.
    pub(super) is_lost: bool,
}

/// Reads sources: what all environments share for it.
pub(super) struct Reader {
    fetcher: Arc<Fetcher>,
    compiler: Arc<Compiler>,
    /// Documents from the fetch to the compiled snapshot, by namespace.
    documents: Counted<String>,
    metrics: Metrics,
}

impl Reader {
    pub(super) fn new(fetcher: Arc<Fetcher>, compiler: Arc<Compiler>, metrics: Metrics) -> Self {
        Self { fetcher, compiler, documents: Counted::default(), metrics }
    }

    /// Fetches and compiles the document if a fetch is due. `triggers` are those since the last reconciliation.
    ///
    /// # Errors
    /// If the prune rules are invalid, the source returns no document, or the document cannot be compiled.
    pub(super) async fn read_if_due(
        &self,
        environment: &Environment<'_>,
        mut triggers: Triggers,
        known: KnownState<'_>,
        source: &mut SourceState,
        requests: &mut Requests,
    ) -> Result<ReadOutcome, Error> {
        if refresh::is_pending(environment, known.status) {
            // The fetch that serves the request may be a later one, if this one has to wait for room.
            source.forget_for_request();
            if requests.start(Instant::now()) {
                triggers.insert(Trigger::Requested);
            }
        }
        source.apply_triggers(&triggers, Instant::now());
        if !source.is_due(&triggers, known.is_lost, Instant::now()) {
            return Ok(ReadOutcome::NotRun);
        }
        let Some(_place) = self.documents.begin_below(DOCUMENTS, environment.name.namespace.clone()) else {
            let timing = Timing::of(environment.spec.refresh.interval.get());
            source.apply(SourceChange::NoRoom { expected: None }, timing);
            self.metrics.begin(Step::Fetch).end(Outcome::Busy);
            return Ok(ReadOutcome::NotRun);
        };
        // Invalid rules are reported before the source is asked; the child process applies the rules.
        compiler::rules(&environment.spec.prune)?;
        let mut read = self.read(environment, known.has_snapshot, source).await;
        for _ in 1..FETCHES {
            if !matches!(read, Err(Error::Compile(compiler::Error::ChangedBetweenPages))) {
                break;
            }
            read = self.read(environment, known.has_snapshot, source).await;
        }
        // A document that cannot be compiled was read all the same.
        let is_read = match &read {
            Ok(outcome) => !matches!(outcome, ReadOutcome::NotRun),
            Err(error) => error.is_of_document(),
        };
        if is_read {
            self.metrics.environments.set_fetched(&environment.name, Timestamp::now().as_duration().as_secs_f64());
        }
        read
    }

    /// Fetches the document, and compiles it unless it is the one that was compiled last.
    async fn read(
        &self,
        environment: &Environment<'_>,
        has_snapshot: bool,
        source: &mut SourceState,
    ) -> Result<ReadOutcome, Error> {
        let Self { fetcher, metrics, .. } = self;
        let interval = environment.spec.refresh.interval.get();
        let rest = fetcher.read_budget().rest(&environment.uid, interval);
        let began = Instant::now();
        let step = metrics.begin(Step::Fetch);
        let hints = source.hints(has_snapshot, rest, began);
        let Answer { fetched, has_read_key } = fetch(environment, fetcher, metrics, hints).await;
        let timing = Timing::of(interval);
        if has_read_key {
            source.apply(SourceChange::KeyRead(began), timing);
        }
        let (change, outcome) = match fetched {
            Ok(Fetched::StillRefused) => (SourceChange::StillRefused, Outcome::StillRefused),
            Ok(Fetched::Busy) => (SourceChange::NoRoom { expected: None }, Outcome::Busy),
            Ok(Fetched::OverBudget { expected }) => {
                (SourceChange::NoRoom { expected: Some(expected) }, Outcome::OverBudget)
            }
            Ok(Fetched::Unchanged { read }) => {
                let is_content_compared = read.is_some();
                (SourceChange::Unchanged { version: None, is_content_compared }, Outcome::Unchanged)
            }
            Ok(Fetched::Document(document)) => {
                let (bytes, digest) = (document.bytes(), document.digest());
                source.apply(SourceChange::Arrived { bytes, digest }, timing);
                let Some(version) = source.confirmed_version(&document.arrival).filter(|_| has_snapshot) else {
                    step.end(Outcome::Done);
                    return self.compile(environment, *document).await;
                };
                (SourceChange::Unchanged { version: Some(version), is_content_compared: true }, Outcome::Unchanged)
            }
            Err(error) => {
                step.end(error.reason());
                return Err(error.into());
            }
        };
        step.end(outcome);
        let is_unchanged = matches!(change, SourceChange::Unchanged { .. });
        source.apply(change, timing);
        Ok(if is_unchanged { ReadOutcome::Unchanged } else { ReadOutcome::NotRun })
    }

    async fn compile(&self, environment: &Environment<'_>, document: FetchedDocument) -> Result<ReadOutcome, Error> {
        let compiled = compile(environment, &self.compiler, &self.metrics, document).await?;
        Ok(ReadOutcome::Compiled(Box::new(compiled)))
    }
}
