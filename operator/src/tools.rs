//! Commands that need no cluster: `compile`, `inspect`, `explain`, `diff`.

pub mod compile;
pub(crate) mod core;
pub mod diff;
pub mod directory;
pub mod explain;
pub mod inspect;
pub(crate) mod terminal;

use std::fmt::Display;

/// Returns a number with what it counts: `1 flag`, `2 flags`.
pub(crate) fn counted<N: Copy + Display + PartialEq + From<u8>>(count: N, noun: &str) -> String {
    let plural = if count == N::from(1) { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

/// Shortens a value to 60 characters for display in one line.
pub(crate) fn shortened(value: &str) -> String {
    const LONGEST: usize = 60;
    match value.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", value.get(..end).unwrap_or_default()),
        None => value.to_owned(),
    }
}
