//! The revision: the name of a snapshot's content.

use std::fmt;

/// Name of a snapshot's content: equal content has an equal revision. Displayed as twelve hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Revision(pub(crate) u64);

impl Revision {
    pub(crate) fn of(sum: [u8; 16]) -> Self {
        let [a, b, c, d, e, f, ..] = sum;
        Self(u64::from_be_bytes([0, 0, a, b, c, d, e, f]))
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:012x}", self.0)
    }
}
