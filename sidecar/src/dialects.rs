//! The bodies of Flagsmith's endpoints and of OFREP, and the context that each puts into the snapshot's request state.
//!
//! Nothing here knows connections, headers or the environments of the process: a dialect takes bytes and a snapshot, and
//! returns a value or appends to a buffer.

pub(crate) mod analytics;
mod anonymous;
pub(crate) mod context_hash;
pub(crate) mod identities;
mod name;
pub(crate) mod ofrep;
mod python;
pub(crate) mod scratch;
pub(crate) mod validation;
pub(crate) mod values;
