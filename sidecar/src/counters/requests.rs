//! Counters of answers and of evaluations.

use std::sync::atomic::{AtomicU64, Ordering};

use http::StatusCode;

use crate::routes::Route;

/// Counters of answers, by route and class of status.
#[derive(Debug, Default)]
pub(crate) struct Requests([[AtomicU64; 4]; Requests::ROUTES.len()]);

impl Requests {
    /// Values of the label `route`, in the order of [`Requests::rows`].
    pub(crate) const ROUTES: [&str; 12] = [
        "assignment",
        "flags",
        "identities",
        "analytics",
        "realtime",
        "health",
        "liveness",
        "ofrep_flag",
        "ofrep_flags",
        "ofrep_stream",
        "unknown",
        "environment_document",
    ];
    /// Values of the label `status`, in the order of the counters of a row.
    pub(crate) const CLASSES: [&str; 4] = ["2xx", "3xx", "4xx", "5xx"];

    /// Counts an answer.
    pub(crate) fn count(&self, route: Route<'_>, status: StatusCode) {
        let row = match route {
            Route::Assignment => 0,
            Route::Flags => 1,
            Route::Identities => 2,
            Route::Analytics => 3,
            Route::Realtime(_) => 4,
            Route::Health => 5,
            Route::Liveness => 6,
            Route::OfrepFlag(_) => 7,
            Route::OfrepFlags => 8,
            Route::OfrepStream => 9,
            Route::Unknown => 10,
            Route::Document => 11,
        };
        let class = usize::from(status.as_u16() / 100).saturating_sub(2);
        if let Some(counter) = self.0.get(row).and_then(|row: &[AtomicU64; 4]| row.get(class)) {
            add_one(counter);
        }
    }

    /// The counters, one row for each route.
    pub(crate) fn rows(&self) -> &[[AtomicU64; 4]] {
        &self.0
    }
}

/// Kind of an evaluation, by which it is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EvaluationKind {
    /// The flags of the environment, which are prepared and do not depend on an identity.
    Flags,
    /// All flags of an identity.
    Identities,
    /// One flag of a context.
    OfrepFlag,
    /// All flags of a context.
    OfrepFlags,
}

/// Counters of one environment by [`EvaluationKind`].
#[derive(Debug, Default)]
pub(crate) struct Evaluations([AtomicU64; 4]);

impl Evaluations {
    /// Values of the label `route`, in the order of [`Evaluations::counts`].
    pub(crate) const LABELS: [&str; 4] = ["flags", "identities", "ofrep_flag", "ofrep_flags"];

    /// Increments the counter of `kind`.
    pub(crate) fn count(&self, kind: EvaluationKind) {
        if let Some(counter) = self.0.get(kind as usize) {
            add_one(counter);
        }
    }

    /// The counters.
    pub(crate) fn counts(&self) -> &[AtomicU64] {
        &self.0
    }
}

/// Increments a counter. Only one thread answers, so no increment is lost, and an atomic addition would take longer.
fn add_one(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
}
