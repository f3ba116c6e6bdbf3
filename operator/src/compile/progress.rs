//! Who hears what the compiler is at, so that one that does not end can be explained.

use std::fmt;

use crate::compile::document::quoted;

/// A listener for places in a document; the default hears nothing.
#[derive(Clone, Copy, Default)]
pub struct Progress<'a>(Option<&'a dyn Fn(&str)>);

impl<'a> Progress<'a> {
    /// Has each place told to `listener`, before the work on it begins.
    #[must_use]
    pub fn to(listener: &'a dyn Fn(&str)) -> Self {
        Self(Some(listener))
    }

    /// Tells a place.
    pub(crate) fn at(self, place: &str) {
        if let Some(listener) = self.0 {
            listener(place);
        }
    }

    /// Tells that it is a segment's turn.
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
