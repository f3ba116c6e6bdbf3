//! Values as Python and Flagsmith define them: numbers, versions, hashes, percentages, JSON strings.
//! Also durations, because the operator and the sidecar share no other crate.

pub mod duration;
pub(crate) mod hash;
pub mod json;
pub(crate) mod md5;
pub(crate) mod number;
pub(crate) mod percentage;
pub(crate) mod rows;
pub mod semver;

/// Returns Python's `str` of a boolean.
#[must_use]
pub fn python_bool(value: bool) -> &'static str {
    if value { "True" } else { "False" }
}
