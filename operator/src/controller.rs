//! Keeps the published snapshot of each FeatureEnvironment in step with its spec, and reports the result.
//!
//! | modules | what they do |
//! |---|---|
//! | [`reconcile`] | runs the steps for one FeatureEnvironment, and the watches and the schedule that start them |
//! | [`status`] | derives the status and its Events from the outcome of the steps: pure |
//! | [`metrics`] | counts steps and describes environments for Prometheus |
//! | [`leader`] | holds the lease, without which this process writes nothing |

pub mod leader;
pub mod metrics;
pub mod reconcile;
pub mod status;
