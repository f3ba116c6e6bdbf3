//! Bytes that come from a connection: whatever they are, what comes back is HTTP, and the connection ends.
//!
//! The first byte chooses the port; the others are sent as they are.

use crate::server::{Answer, Port, Then, exchange};

/// Bytes of a connection are answered by HTTP, and the connection ends.
pub fn run(data: &[u8]) {
    let Some((&choice, request)) = data.split_first() else { return };
    let port = if choice & 1 == 0 { Port::Data } else { Port::Admin };
    let answer = exchange(port, request, Then::End);
    if !answer.is_empty() {
        let answer = Answer::read(&answer);
        assert!((100..600).contains(&answer.status) && answer.status != 500, "{answer:?}");
    }
}
