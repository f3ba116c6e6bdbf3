//! Keeps what is published in step with what each FeatureEnvironment asks for, and reports on it.
pub mod leader;
pub mod metrics;
pub mod reconcile;
pub mod report;
