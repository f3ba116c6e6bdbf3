//! Compile step: compiles a document in a child process. This process does not parse the document.

use std::time::Duration;

use jiff::Timestamp;

use super::source_state::Provenance;
use crate::{
    compiler::{Compiler, Error, Request, Response, Task},
    controller::{
        metrics::{Metrics, Outcome, Step},
        reconcile::environment::Environment,
        status::Contents,
    },
    guard::GuardBaseline,
    publish::Snapshot,
    source::fetch::{CachedVersion, EnvironmentKey, FetchedDocument},
};

/// Time by which the clock of a source may be ahead of this machine's.
const CLOCK_SKEW: Duration = Duration::from_secs(300);

/// Compiled document, before the guard check.
#[derive(Debug)]
pub(crate) struct Compiled {
    pub(crate) snapshot: Snapshot,
    pub(crate) contents: Contents,
    pub(crate) baseline: GuardBaseline,
}

/// Compiled document, with what later fetches and the stream of changes need to know about it.
#[derive(Debug)]
pub(crate) struct CompiledDocument {
    pub(crate) compiled: Compiled,
    pub(crate) version: CachedVersion,
    pub(crate) provenance: Provenance,
}

/// Compiles the document.
///
/// # Errors
/// If the document is malformed or cannot be compiled, or if the child process fails.
pub(crate) async fn compile(
    environment: &Environment<'_>,
    compiler: &Compiler,
    metrics: &Metrics,
    document: FetchedDocument,
) -> Result<CompiledDocument, Error> {
    let FetchedDocument { pages, arrival, reservation, .. } = document;
    let server_keys = arrival.key().map(EnvironmentKey::expose).map(str::to_owned);
    let task = Task {
        environment: environment.name.name.clone(),
        server_keys: server_keys.into_iter().collect(),
        prune: environment.spec.prune.clone(),
        serve: environment.spec.serve.clone(),
    };
    let step = metrics.begin(Step::Compile);
    let answer = compiler.compile(environment.namespace(), Request { task, pages }).await;
    drop(reservation);
    step.end(answer.as_ref().map_or_else(|error| error.reason().into(), |_| Outcome::Done));
    let mut answer = answer?;
    metrics.environments.set_findings(&environment.name, answer.finding_count);
    let stated = answer.about.updated_at.clone();
    answer.about.updated_at.take_if(|at| !is_past(at, Timestamp::now()));
    let updated_at = answer.about.updated_at.as_deref();
    let provenance = Provenance {
        client_key: answer.about.client_key.clone(),
        updated_at: updated_at.and_then(|at| at.parse().ok()),
    };
    let version = arrival.cached_version(updated_at);
    Ok(CompiledDocument { compiled: compiled(environment, answer, stated), version, provenance })
}

/// Returns false for a time in the future: every genuine document would count as older than this one, and no change as news.
fn is_past(updated_at: &str, now: Timestamp) -> bool {
    updated_at.parse::<Timestamp>().is_ok_and(|at| now.checked_add(CLOCK_SKEW).is_ok_and(|latest| at <= latest))
}

fn compiled(environment: &Environment<'_>, answer: Response, stated: Option<String>) -> Compiled {
    let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    let counts = answer.summary;
    let contents = Contents {
        features: count(counts.features),
        segments: count(counts.segments),
        overrides: count(counts.identity_overrides),
        bytes: count(counts.bytes),
        updated_at: stated,
        findings: answer.findings.clone(),
        finding_count: count(answer.finding_count),
    };
    let baseline = GuardBaseline::of(&answer.about, &environment.spec.source);
    Compiled { snapshot: Snapshot::from(answer), contents, baseline }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_in_the_future_is_no_time_of_a_document() {
        let now: Timestamp = "2026-11-27T12:00:00Z".parse().unwrap();
        for (at, expected) in [
            ("2026-11-27T11:59:59.123456+00:00", true),
            ("2026-11-27T14:04:59+02:00", true),
            ("2026-11-27T12:05:01Z", false),
            ("9999-01-01T00:00:00Z", false),
            ("yesterday", false),
        ] {
            assert_eq!(is_past(at, now), expected, "{at}");
        }
    }
}
