//! Serves HTTP/1.1 to callers that may be slow or hostile, with bounds on connections, bytes and time.
//!
//! ```text
//! accept ──> a slot (slots) ──> TLS handshake ──> head ──> a share of bytes (slots) ──> body ──> router ──> answer
//!                │                   time               time        │                      time               │
//!                └ full: the address with the most slots loses one  └ full: the address with the most bytes   │
//!                                                                     loses a body                            │
//!                                    too many unread bytes: the address with the most loses a connection      ┘
//! ```
//!
//! The webhook, the admin port and the receiver of Flagsmith's webhooks share this module. It does not offer HTTP/2,
//! whose windows, header frames and streams let one connection take a multiple of the memory. The API server speaks
//! HTTP/1.1 as well.
//!
//! The sidecar has a loop of its own (`sidecar/src/http/connections.rs`), whose documentation says why the two share
//! nothing but hyper.

mod activity;
mod answer;
mod bind;
mod connection;
mod limits;
mod serve;
mod slots;
mod transport;

pub use self::{bind::bind, connection::Useful, limits::Limits, serve::serve, transport::Transport};
