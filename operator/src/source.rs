//! Sources of documents: Flagsmith over HTTP, objects of the cluster, and Flagsmith's streams of change
//! events and webhooks.
pub mod fetch;
pub mod realtime;
pub mod receiver;
pub mod trigger;
