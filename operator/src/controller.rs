//! Keeps the published snapshot of each FeatureEnvironment in step with its spec, and reports the result.
pub mod leader;
pub mod metrics;
pub mod receiver;
pub mod reconcile;
pub mod report;
