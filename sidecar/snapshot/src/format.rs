//! The format: layout of the files, and access to their rows. The crate's documentation is the specification.
pub(crate) mod document;
pub(crate) mod error;
#[cfg(test)]
mod example;
pub mod files;
pub(crate) mod flag_object;
pub(crate) mod header;
pub(crate) mod layout;
pub mod model;
pub(crate) mod overrides;
pub(crate) mod pointer;
pub(crate) mod revision;
pub(crate) mod view;
