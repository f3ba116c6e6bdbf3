//! Rendering: answers as bytes, in Flagsmith's dialect and as OFREP.

pub(crate) mod flagsmith;
pub(crate) mod ofrep;
