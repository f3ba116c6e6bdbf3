//! SHA-256 digests as text.

use std::fmt::Write;

/// Returns the SHA-256 digest in hexadecimal.
pub fn digest(bytes: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    digest.as_ref().iter().fold(String::with_capacity(64), |mut hex, byte| {
        // Writing to a string cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_is_sha_256() {
        assert!(digest(b"").starts_with("e3b0c44298fc1c14"));
    }
}
