//! Fetch and compile steps: reads the source if a fetch is due. It changes nothing that is published.

pub(super) mod compile;
pub(super) mod fetch;
pub(super) mod refresh;

use std::sync::Arc;

use tokio::time::Instant;

use self::{
    compile::{CompiledDocument, compile},
    fetch::{FetchStep, SourceState, fetch, record_read},
    refresh::Requests,
};
use super::{environment::Environment, error::Error};
use crate::{
    api::FeatureEnvironmentStatus,
    compiler::{self, Compiler},
    controller::metrics::{Metrics, Outcome, Step},
    counted::Counted,
    source::{fetch::Fetcher, trigger::Trigger},
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

    /// Fetches and compiles the document if a fetch is due. `trigger` is the strongest one since the last reconciliation.
    ///
    /// # Errors
    /// If the prune rules are invalid, the source returns no document, or the document cannot be compiled.
    pub(super) async fn read_if_due(
        &self,
        environment: &Environment<'_>,
        mut trigger: Option<Trigger>,
        known: KnownState<'_>,
        source: &mut SourceState,
        requests: &mut Requests,
    ) -> Result<ReadOutcome, Error> {
        if refresh::is_pending(environment, known.status) {
            // The fetch that serves the request may be a later one, if this one has to wait for room.
            source.forget_for_request();
            if requests.start(Instant::now()) {
                trigger = Some(Trigger::Requested);
            }
        }
        source.apply_trigger(trigger, Instant::now());
        if !source.is_due(trigger, known.is_lost, Instant::now()) {
            return Ok(ReadOutcome::NotRun);
        }
        let Some(_place) = self.documents.begin_below(DOCUMENTS, environment.name.namespace.clone()) else {
            source.waits_for_room();
            self.metrics.begin(Step::Fetch).end(Outcome::Busy);
            return Ok(ReadOutcome::NotRun);
        };
        // Invalid rules are reported before the source is asked; the child process applies the rules.
        compiler::rules(&environment.spec.prune)?;
        for _ in 1..FETCHES {
            match self.read(environment, known.has_snapshot, source).await {
                Err(Error::Compile(compiler::Error::ChangedBetweenPages)) => {}
                done => return done,
            }
        }
        self.read(environment, known.has_snapshot, source).await
    }

    async fn read(
        &self,
        environment: &Environment<'_>,
        has_snapshot: bool,
        source: &mut SourceState,
    ) -> Result<ReadOutcome, Error> {
        let Self { fetcher, compiler, metrics, .. } = self;
        let document = match fetch(environment, fetcher, metrics, source, has_snapshot).await? {
            FetchStep::Postponed => return Ok(ReadOutcome::NotRun),
            FetchStep::Unchanged => return Ok(ReadOutcome::Unchanged),
            FetchStep::Document(document) => *document,
        };
        let compiled = compile(environment, compiler, metrics, document).await.map_err(Error::from);
        // A document that cannot be compiled was read all the same.
        if compiled.as_ref().map_or_else(Error::is_of_document, |_| true) {
            record_read(environment, metrics, source);
        }
        Ok(ReadOutcome::Compiled(Box::new(compiled?)))
    }
}
