//! Signatures of webhooks: HMAC-SHA256 of the body in hexadecimal, in the header `X-Flagsmith-Signature`.

use std::fmt;

use ring::hmac;

/// Length of a signature in bytes.
const LENGTH: usize = 32;
/// Shortest secret in bytes. Anybody who reaches the receiver may guess shorter ones.
const SECRET_MIN: usize = 16;
/// Longest secret in bytes.
const SECRET_MAX: usize = 1024;

/// Secret that signs webhooks. Its `Debug` output omits the secret.
#[derive(Clone, PartialEq, Eq)]
pub struct SigningSecret(Vec<u8>);

impl SigningSecret {
    /// Reads the secret from a Secret's value and removes white space around it. `None` unless it has 16 to 1,024
    /// bytes.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let secret = bytes.trim_ascii();
        (SECRET_MIN..=SECRET_MAX).contains(&secret.len()).then(|| Self(secret.to_owned()))
    }

    /// Returns true if `signature` is the signature of `body`. The time does not depend on where the two differ.
    pub(super) fn signs(&self, body: &[u8], signature: &[u8; LENGTH]) -> bool {
        hmac::verify(&hmac::Key::new(hmac::HMAC_SHA256, &self.0), body, signature).is_ok()
    }
}

impl fmt::Debug for SigningSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningSecret(..)")
    }
}

/// Parses a signature: 64 hexadecimal digits.
pub(super) fn parse(text: &str) -> Option<[u8; LENGTH]> {
    if text.len() != 2 * LENGTH {
        return None;
    }
    let mut signature = [0; LENGTH];
    for (byte, digits) in signature.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        let digit = |digit: u8| char::from(digit).to_digit(16);
        let (high, low) = (digit(*digits.first()?)?, digit(*digits.get(1)?)?);
        *byte = u8::try_from(high * 16 + low).ok()?;
    }
    Some(signature)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signature_is_hmac_sha_256_of_body() {
        // RFC 4231, test case 4.
        let secret = SigningSecret::new(&(1..=25).collect::<Vec<u8>>()).unwrap();
        let expected = "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b";
        assert!(secret.signs(&[0xcd; 50], &parse(expected).unwrap()));
        assert!(!secret.signs(&[0xcd; 49], &parse(expected).unwrap()));
        let capital = parse(&expected.to_uppercase());
        assert_eq!(capital, parse(expected));
    }

    #[test]
    fn malformed_signature_is_refused() {
        let long = "0".repeat(66);
        for text in ["", "00", "sha256=00", long.as_str(), &"g".repeat(64), &"é".repeat(32)] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn short_secret_is_refused_and_none_is_printed() {
        assert_eq!(SigningSecret::new(b"fifteen-letters"), None);
        assert_eq!(SigningSecret::new(&[b'x'; 1025]), None);
        let secret = SigningSecret::new(b"canary-canary-canary\n").unwrap();
        assert_eq!(secret, SigningSecret::new(b"canary-canary-canary").unwrap());
        assert!(!format!("{secret:?}").contains("canary"));
    }
}
