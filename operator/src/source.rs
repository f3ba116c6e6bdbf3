//! Where documents come from: Flagsmith over HTTP, objects of the cluster, and the streams that tell of changes.
pub mod fetch;
pub mod realtime;
pub mod wake;
