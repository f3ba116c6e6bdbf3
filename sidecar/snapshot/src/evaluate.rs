//! Evaluation: decides which override of each flag wins.
pub(crate) mod choose;
pub(crate) mod evaluation;
pub(crate) mod resolve;
pub(crate) mod role;
pub(crate) mod subject;
