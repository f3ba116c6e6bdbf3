//! Rendering: answers as bytes, in Flagsmith's dialect and as OFREP.
pub(crate) mod answer;
pub(crate) mod ofrep;
