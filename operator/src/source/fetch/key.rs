//! Server-side environment key: a credential, which no output shows.

use std::fmt;

use reqwest::header::HeaderValue;

/// Server-side environment key. Its `Debug` output omits the key.
#[derive(Clone, PartialEq, Eq)]
pub struct EnvironmentKey {
    text: String,
    /// The text as a header value that is marked sensitive, so that no log prints it.
    header: HeaderValue,
}

impl EnvironmentKey {
    /// Reads the key from a Secret's value and removes white space around it. `None` if the value cannot be a
    /// server-side key.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let key = std::str::from_utf8(bytes).ok()?.trim();
        let plain = key.bytes().all(|byte| byte.is_ascii_graphic());
        if !(key.starts_with("ser.") && key.len() > 4 && key.len() <= 256 && plain) {
            return None;
        }
        let mut header = HeaderValue::from_str(key).ok()?;
        header.set_sensitive(true);
        Some(Self { text: key.to_owned(), header })
    }

    /// Returns the key as text, for the compiler, which stores a hash of it.
    pub fn expose(&self) -> &str {
        &self.text
    }

    /// Returns the key as a header value that is marked sensitive.
    pub(super) fn header(&self) -> HeaderValue {
        self.header.clone()
    }
}

impl fmt::Debug for EnvironmentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EnvironmentKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::EnvironmentKey;

    #[test]
    fn only_server_side_key_is_accepted() {
        assert_eq!(EnvironmentKey::new(b"ser.abc\n").unwrap().expose(), "ser.abc");
        for bad in ["", "ser.", "abc", "ser.a b", "ser.a\nb", "ser.\u{e9}"] {
            assert!(EnvironmentKey::new(bad.as_bytes()).is_none(), "{bad}");
        }
        assert!(EnvironmentKey::new(&[0xff]).is_none());
    }

    #[test]
    fn debug_output_of_key_hides_it() {
        assert!(!format!("{:?}", EnvironmentKey::new(b"ser.canary").unwrap()).contains("canary"));
    }
}
