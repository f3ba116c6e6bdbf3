//! Identifiers for anonymous identities, made as Flagsmith's API makes them: from the traits, so that an identity stays
//! in its percentage split between requests.

use super::python;
use crate::json::{Malformed, Reader};

/// Returns the identifier of an anonymous identity: the digest of its traits, or a random one if it has none. Traits
/// without a value do not change the digest, but an identity that has only such traits has a digest too.
pub(crate) fn anonymous(traits: &[u8]) -> String {
    let Some(mut pairs) = read_echo(traits).unwrap_or_default() else { return random() };
    pairs.sort_by(|one, other| one.0.cmp(&other.0));
    let mut hash = hmac_sha256::Hash::new();
    for (key, value) in &pairs {
        hash.update(key);
        hash.update(value);
    }
    hexadecimal(&hash.finalize())
}

/// Returns the names and values of the echo's traits that are not null, as Python's `str` writes them. `None` if the echo
/// has no trait at all.
fn read_echo(traits: &[u8]) -> Result<Option<Vec<(String, String)>>, Malformed> {
    let mut reader = Reader::new(traits)?;
    let mut pairs = Vec::new();
    let mut count = 0;
    let Some(mut items) = reader.enter_array() else { return Ok(None) };
    while reader.next_item(&mut items)? {
        count += 1;
        let mut pair = (String::new(), String::new());
        let mut null = false;
        let Some(mut members) = reader.enter_object() else { continue };
        while let Some(name) = reader.next_member(&mut members)? {
            let text = if name.is("trait_key") { &mut pair.0 } else { &mut pair.1 };
            match python::scalar(reader.value()?) {
                Some(scalar) => text.push_str(&scalar),
                None => null = true,
            }
        }
        if !null {
            pairs.push(pair);
        }
    }
    Ok((count > 0).then_some(pairs))
}

/// Returns thirty-two random digits in the form of a version 4 UUID.
fn random() -> String {
    let mut bytes = [0; 16];
    // This only fails on kernels without the system call. The identifier is then constant, but still valid.
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    if let Some(version) = bytes.get_mut(6) {
        *version = *version & 0x0f | 0x40;
    }
    if let Some(variant) = bytes.get_mut(8) {
        *variant = *variant & 0x3f | 0x80;
    }
    hexadecimal(&bytes)
}

fn hexadecimal(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anonymous_identifier_is_the_digest_of_the_traits() {
        let of = |text: &str| hexadecimal(&hmac_sha256::Hash::hash(text.as_bytes()));
        let traits = |text: &str| anonymous(text.as_bytes());
        assert_eq!(traits(r#"[{"trait_key":"plan","trait_value":"pro"}]"#), of("planpro"));
        assert_eq!(of("planpro"), "9746f9086f61e37ea956bac460df92fc8108e27b344f6b716dab539fcd89e75b");
        assert_eq!(
            traits(
                r#"[{"trait_key":"b","trait_value":true},{"trait_key":"a","trait_value":1e-7},
                    {"trait_key":"n","trait_value":null},{"trait_key":"c","trait_value":12}]"#
            ),
            of("a1e-07bTruec12")
        );
        assert_eq!(traits(r#"[{"trait_key":"n","trait_value":null}]"#), of(""));
    }

    #[test]
    fn anonymous_identifier_without_traits_is_random() {
        let one = anonymous(b"[]");
        assert_eq!(one.len(), 32);
        assert_ne!(one, anonymous(b"[]"));
        assert_eq!(one.as_bytes()[12], b'4');
        assert!(b"89ab".contains(&one.as_bytes()[16]), "{one}");
    }
}
