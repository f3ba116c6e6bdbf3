//! The format: layout of the files, and the reader that validates them. The crate's documentation is the specification.
pub(crate) mod document;
pub(crate) mod error;
#[cfg(test)]
mod example;
pub mod files;
mod header;
pub(crate) mod layout;
pub mod model;
pub(crate) mod overrides;
pub(crate) mod pointer;
pub(crate) mod read;
pub(crate) mod revision;
pub(crate) mod view;
