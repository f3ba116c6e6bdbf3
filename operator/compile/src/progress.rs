//! Progress reports of the compiler, which show where a compilation that does not end is stuck.

use std::fmt;

use crate::document::quoted;

/// A listener for the compiler's current place in the document. The default ignores reports.
#[derive(Clone, Copy, Default)]
pub struct Progress<'a>(Option<&'a dyn Fn(&str)>);

impl<'a> Progress<'a> {
    /// Creates a progress that reports each place to `listener` before the work on it begins.
    #[must_use]
    pub fn to(listener: &'a dyn Fn(&str)) -> Self {
        Self(Some(listener))
    }

    /// Reports a place.
    pub fn at(self, place: &str) {
        if let Some(listener) = self.0 {
            listener(place);
        }
    }

    /// Reports that the work on a segment begins.
    pub(crate) fn at_segment(self, name: &str, id: i64) {
        if let Some(listener) = self.0 {
            listener(&format!("segment {} ({id})", quoted(name)));
        }
    }
}

impl fmt::Debug for Progress<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Progress")
    }
}
