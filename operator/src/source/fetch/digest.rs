//! Digest of a document's content.

use memchr::memmem;
use ring::digest::{Context, SHA256};

/// Member that Flagsmith fills anew in every answer. Nothing depends on its value.
const RANDOM: &[u8] = b"\"identity_uuid\":";
/// Separator of pages. JSON is UTF-8, which does not contain this byte.
const SEPARATOR: [u8; 1] = [0xff];

/// SHA-256 digest of a document without the values of `identity_uuid`: an unchanged document has the same digest in
/// every answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentDigest([u8; 32]);

impl ContentDigest {
    /// Computes the digest of these pages. The pages are not parsed. The text that is left out is always the value of a
    /// member: within a JSON string, the quotes before and after the name would be escaped.
    pub(super) fn of(pages: &[Vec<u8>]) -> Self {
        let mut context = Context::new(&SHA256);
        for page in pages {
            let mut rest = page.as_slice();
            while let Some((before, after)) = split_after(rest) {
                context.update(before);
                rest = after.get(uuid_length(after)..).unwrap_or_default();
            }
            context.update(rest);
            context.update(&SEPARATOR);
        }
        let mut digest = [0; 32];
        for (to, from) in digest.iter_mut().zip(context.finish().as_ref()) {
            *to = *from;
        }
        Self(digest)
    }
}

fn split_after(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = memmem::find(text, RANDOM)?;
    text.split_at_checked(at + RANDOM.len())
}

/// Returns the length of a UUID in quotes, with the blanks before it, or 0 if the text begins with anything else.
fn uuid_length(text: &[u8]) -> usize {
    let blanks = text.iter().take_while(|byte| **byte == b' ').count();
    let quoted = text.get(blanks..).and_then(|text| text.strip_prefix(b"\"")).unwrap_or_default();
    let uuid = quoted.iter().take_while(|byte| byte.is_ascii_hexdigit() || **byte == b'-').count();
    if quoted.get(uuid) == Some(&b'"') { blanks + uuid + 2 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pages: &[&str]) -> ContentDigest {
        ContentDigest::of(&pages.iter().map(|page| page.as_bytes().to_vec()).collect::<Vec<_>>())
    }

    #[test]
    fn new_uuids_of_identities_do_not_change_digest() {
        let text = |uuid: &str| {
            format!(
                r#"{{"identity_overrides":[{{"identity_uuid":"{uuid}","a":1}},{{"a":2,"identity_uuid": "{uuid}"}}]}}"#
            )
        };
        let one = of(&[&text("7fb8f9ad-7a3c-4b87-a9a6-b4b0a6f0c2c1")]);
        assert_eq!(one, of(&[&text("00000000-7a3c-4b87-a9a6-b4b0a6f0c2c1")]));
        assert_eq!(one, of(&[&text("")]));
        assert_ne!(one, of(&[&text("7fb8f9ad-7a3c-4b87-a9a6-b4b0a6f0c2c1").replace("\"a\":2", "\"a\":3")]));
    }

    #[test]
    fn every_other_byte_counts() {
        let text = r#"{"a":"x","identity_uuid":null,"b":"\"identity_uuid\":\"00\""}"#;
        let first = of(&[text]);
        for at in 0..text.len() {
            let mut other = text.as_bytes().to_vec();
            other[at] ^= 1;
            assert_ne!(ContentDigest::of(&[other]), first, "byte {at}");
        }
        assert_ne!(of(&[r#"{"identity_uuid":"no uuid"}"#]), of(&[r#"{"identity_uuid":"nouuid"}"#]));
        assert_ne!(of(&["ab", "c"]), of(&["a", "bc"]));
        assert_ne!(of(&["a"]), of(&["a", ""]));
        for cut in ["{\"identity_uuid\":", "{\"identity_uuid\":\"", "{\"identity_uuid\":\"00"] {
            assert_ne!(of(&[cut]), of(&["{"]), "{cut}");
        }
    }
}
