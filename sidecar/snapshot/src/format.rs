//! The format: how a snapshot lies in its files, and the reader that checks it. The crate's documentation is the specification.
pub(crate) mod document;
pub(crate) mod error;
pub mod files;
mod header;
pub(crate) mod layout;
pub mod model;
pub(crate) mod overrides;
pub(crate) mod read;
pub(crate) mod revision;
pub(crate) mod view;
