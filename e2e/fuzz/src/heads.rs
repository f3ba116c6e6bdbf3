//! Bytes of a connection: whatever the sidecar receives, it answers with HTTP, and the connection ends.
//!
//! The first byte of the input chooses the port. The other bytes are sent unchanged.

use crate::server::{Answer, Port, Then, exchange};

/// Asserts that the sidecar answers these bytes with HTTP and without a 500, and that the connection ends.
pub fn run(data: &[u8]) {
    let Some((&choice, request)) = data.split_first() else { return };
    let port = if choice & 1 == 0 { Port::Data } else { Port::Admin };
    let answer = exchange(port, request, Then::End);
    if !answer.is_empty() {
        let answer = Answer::read(&answer);
        assert!((100..600).contains(&answer.status) && answer.status != 500, "{answer:?}");
    }
}
