//! Derives the status, and Events for its changes, from the outcome of the steps. Pure.
//!
//! No field of the status changes with a poll that found nothing new.

mod conditions;
mod events;
mod facts;
mod next;
#[cfg(test)]
mod tests;
mod unused;

pub(super) use self::events::events_between;
pub use self::{
    conditions::{ACCEPTED, FETCHED, PUBLISHED, READY, STALE},
    facts::{Contents, Facts, Failure, FetchOutcome, Pin, Publication, TaskStates, WorkOutcome},
    next::next_status,
};
