//! Sources of documents: Flagsmith over HTTP, objects of the cluster, and Flagsmith's streams of change
//! events and webhooks.
//!
//! | modules | what they do |
//! |---|---|
//! | [`fetch`] | fetches a document by HTTP or from an object, opens streams, and sends counts of used flags |
//! | [`realtime`] | follows the stream of changes of each environment that asks for it |
//! | [`receiver`] | verifies webhooks, and finds the environment that each is for |
//! | `back_off` | schedules of the next attempt, and waits after failures |
//! | [`trigger`] | carries the triggers for early reconciliations to the controller |

pub(crate) mod back_off;
pub mod fetch;
pub mod realtime;
pub mod receiver;
pub mod trigger;
