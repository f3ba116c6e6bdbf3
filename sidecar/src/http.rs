//! HTTP/1.1 on loopback: listeners, connections within limits of number, time and memory, bodies and answers.
//!
//! `connections` accepts a connection from `listen` and wraps it into a `watched` socket, which notes its `progress`.
//! The body of a request is `received` within a `budget`. An `answer` leaves as a `body`: a part of a mapped file, a
//! reused buffer, a constant, or portions that are produced while they are sent. Requests for a `shared_page` wait for
//! one rendering of it. Nothing here knows flags.

pub(crate) mod answer;
pub(crate) mod body;
pub(crate) mod budget;
pub(crate) mod connections;
pub(crate) mod cors;
pub(crate) mod entity_tag;
pub(crate) mod header_values;
pub(crate) mod host;
pub(crate) mod listen;
pub(crate) mod progress;
pub(crate) mod received;
pub(crate) mod shared_page;
mod watched;
