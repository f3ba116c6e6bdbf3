//! Counters of answers and of evaluations.

use std::sync::atomic::{AtomicU64, Ordering};

use http::StatusCode;

use crate::routes::Route;

label! {
    /// Route of an answer, by which it is counted.
    RouteLabel {
        Assignment = "assignment",
        Flags = "flags",
        Identities = "identities",
        Analytics = "analytics",
        Realtime = "realtime",
        Health = "health",
        Liveness = "liveness",
        OfrepFlag = "ofrep_flag",
        OfrepFlags = "ofrep_flags",
        OfrepStream = "ofrep_stream",
        Unknown = "unknown",
        Document = "environment_document",
    }
}

impl RouteLabel {
    fn of(route: Route<'_>) -> RouteLabel {
        match route {
            Route::Assignment => RouteLabel::Assignment,
            Route::Flags => RouteLabel::Flags,
            Route::Identities => RouteLabel::Identities,
            Route::Analytics => RouteLabel::Analytics,
            Route::Realtime(_) => RouteLabel::Realtime,
            Route::Health => RouteLabel::Health,
            Route::Liveness => RouteLabel::Liveness,
            Route::OfrepFlag(_) => RouteLabel::OfrepFlag,
            Route::OfrepFlags => RouteLabel::OfrepFlags,
            Route::OfrepStream => RouteLabel::OfrepStream,
            Route::Unknown => RouteLabel::Unknown,
            Route::Document => RouteLabel::Document,
        }
    }
}

label! {
    /// Class of a status, by which an answer is counted.
    StatusClass {
        Success = "2xx",
        Redirection = "3xx",
        ClientError = "4xx",
        ServerError = "5xx",
    }
}

impl StatusClass {
    fn of(status: StatusCode) -> StatusClass {
        match status.as_u16() / 100 {
            3 => StatusClass::Redirection,
            4 => StatusClass::ClientError,
            5 => StatusClass::ServerError,
            _ => StatusClass::Success, // the sidecar sends no other classes
        }
    }
}

/// Counters of one route, by class of status.
type ByClass = [AtomicU64; StatusClass::ALL.len()];

/// Counters of answers, by route and class of status.
#[derive(Debug, Default)]
pub(crate) struct Requests([ByClass; RouteLabel::ALL.len()]);

impl Requests {
    /// Counts an answer.
    pub(crate) fn count(&self, route: Route<'_>, status: StatusCode) {
        let row = self.0.get(RouteLabel::of(route) as usize);
        if let Some(counter) = row.and_then(|row: &ByClass| row.get(StatusClass::of(status) as usize)) {
            add_one(counter);
        }
    }

    /// Iterates over the routes, the classes of status, and the counts.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (RouteLabel, StatusClass, u64)> {
        RouteLabel::ALL.iter().zip(&self.0).flat_map(|(route, row)| {
            let classes = StatusClass::ALL.iter().zip(row);
            classes.map(|(class, counter)| (*route, *class, counter.load(Ordering::Relaxed)))
        })
    }
}

label! {
    /// Kind of an evaluation, by which it is counted.
    EvaluationKind {
        /// The flags of the environment, which are prepared and do not depend on an identity.
        Flags = "flags",
        /// All flags of an identity.
        Identities = "identities",
        /// One flag of a context.
        OfrepFlag = "ofrep_flag",
        /// All flags of a context.
        OfrepFlags = "ofrep_flags",
    }
}

/// Counters of one environment by [`EvaluationKind`].
#[derive(Debug, Default)]
pub(crate) struct Evaluations([AtomicU64; EvaluationKind::ALL.len()]);

impl Evaluations {
    /// Increments the counter of `kind`. Called once the answer has status 200.
    pub(crate) fn count(&self, kind: EvaluationKind) {
        if let Some(counter) = self.0.get(kind as usize) {
            add_one(counter);
        }
    }

    /// Iterates over the kinds and their counts.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (EvaluationKind, u64)> {
        EvaluationKind::ALL.iter().zip(&self.0).map(|(kind, counter)| (*kind, counter.load(Ordering::Relaxed)))
    }
}

/// Increments a counter. Only one thread answers, so no increment is lost, and an atomic addition would take longer.
fn add_one(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_is_counted_under_labels_of_its_route_and_status() {
        let requests = Requests::default();
        requests.count(Route::OfrepFlag("x"), StatusCode::NOT_FOUND);
        requests.count(Route::Document, StatusCode::NOT_MODIFIED);
        let counted: Vec<_> = requests
            .rows()
            .filter(|(_, _, count)| *count > 0)
            .map(|(route, class, count)| (route.label(), class.label(), count))
            .collect();
        assert_eq!(counted, [("ofrep_flag", "4xx", 1), ("environment_document", "3xx", 1)]);
    }

    #[test]
    fn evaluation_is_counted_under_label_of_its_kind() {
        for kind in EvaluationKind::ALL {
            let evaluations = Evaluations::default();
            evaluations.count(*kind);
            assert!(evaluations.rows().all(|(other, count)| count == u64::from(other == *kind)), "{kind:?}");
        }
    }
}
