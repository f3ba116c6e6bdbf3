//! Segment matching: the index over the values that conditions compare with, and the conditions themselves.
pub(crate) mod condition;
pub(crate) mod index;
