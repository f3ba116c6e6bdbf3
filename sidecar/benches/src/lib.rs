//! Measures the cost of Remora: `make bench` prints the table, and `tests/instructions.rs` checks the counts.
//!
//! A [`profile`] describes an environment. It is written as the document ([`document`], [`conditions`]) that Flagsmith
//! emits, and requested as Flagsmith's clients do ([`request`]). A server runs alone on one core ([`server`]), and the
//! [`load`] generator runs on another. Servers are compared in one run, turn by turn ([`turns`]), while the [`host`]
//! leaves the cores alone. The reference is a bare hyper server that returns as many bytes from memory, because no HTTP
//! server on hyper can be faster. The results are lines of a [`table`].

pub mod bare;
pub mod conditions;
pub mod document;
pub mod group;
pub mod host;
pub mod load;
pub mod operators;
pub mod population;
#[cfg(feature = "compile")]
pub mod prepared;
pub mod profile;
pub mod random;
pub mod request;
pub mod server;
pub mod snapshots;
pub mod table;
pub mod turns;
