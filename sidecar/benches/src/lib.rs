//! What Remora costs, measured: `make bench` prints the table, `tests/instructions.rs` holds the counts.
//!
//! Environments are [`profile`]s, written as the documents ([`document`], [`conditions`]) that Flagsmith emits, and asked
//! as its clients ask ([`request`]). A server runs alone on one core ([`server`]), the [`load`] generator on another, and
//! what is compared is compared in one run, turn by turn ([`turns`]), as far as the [`host`] lets us, with a bare hyper
//! server that returns as many bytes from memory: whoever uses HTTP is not faster. What comes out are lines of a
//! [`table`].

pub mod bare;
pub mod conditions;
pub mod document;
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
