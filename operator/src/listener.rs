//! Serves HTTP/1.1 to callers that may be slow or hostile, with bounds on connections, bytes and time.
//!
//! ```text
//! accept ──> a place (places) ──> TLS handshake ──> head ──> a share of bytes (places) ──> body ──> router
//!                │                    time               time        │                       time
//!                └ full: the address with the most places loses one  └ full: the greediest slow body is given up
//! ```
//!
//! The webhook and the admin port share it. HTTP/2 is not offered: its windows, header frames and streams are memory that
//! one connection can take many times over, and the API server speaks HTTP/1.1 as well.

mod activity;
mod connection;
mod limits;
mod places;
mod serve;
mod transport;

pub use self::{connection::Useful, limits::Limits, serve::serve, transport::Transport};
