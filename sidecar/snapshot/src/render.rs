//! Answers as bytes: Flagsmith's dialect and OFREP.
pub(crate) mod answer;
pub(crate) mod cohort;
pub(crate) mod finish;
pub(crate) mod ofrep;
