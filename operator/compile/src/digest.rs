//! SHA-256 digests as text.

use std::fmt::{self, Write};

use serde::{Deserialize, Serialize};

/// Length of the text of a digest.
pub const LENGTH: usize = 64;

/// SHA-256 digest in hexadecimal.
///
/// A digest that is deserialized may be any text: compare its length with [`LENGTH`] before memory depends on it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Digest(String);

impl Digest {
    /// Computes the digest of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
        Self(digest.as_ref().iter().fold(String::with_capacity(LENGTH), |mut hex, byte| {
            // Writing to a string cannot fail.
            let _ = write!(hex, "{byte:02x}");
            hex
        }))
    }

    /// Returns the digest as a string.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the first digits of the digest: enough to distinguish the objects of one cluster.
    #[must_use]
    pub fn short(&self) -> &str {
        self.0.get(..16).unwrap_or(&self.0)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_is_sha_256() {
        assert!(Digest::of(b"").as_str().starts_with("e3b0c44298fc1c14"));
        assert_eq!(Digest::of(b"").as_str().len(), LENGTH);
    }
}
