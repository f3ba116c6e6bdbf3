//! Estimates the memory that an object needs as a tree, from its JSON text and before the text is parsed.
//!
//! `{"a":1}` is seven bytes of JSON and an allocation of 700 bytes: a tree takes up to a hundred times as much memory
//! as its text. The estimate therefore counts the characters that make a tree grow.

/// Bytes of a JSON object: a node of its map has room for eleven members.
const OBJECT: usize = 704;
/// Bytes of each member in addition: its share of further nodes, and the allocation of its key.
const MEMBER: usize = 112;
/// Bytes of an item in a list, while the list doubles its capacity.
const ITEM: usize = 96;

/// Returns an upper bound in bytes for the tree that `serde_json` builds from this text.
pub(super) fn estimate(json: &[u8]) -> usize {
    let mut bytes = json.len();
    let (mut in_string, mut escaped) = (false, false);
    for byte in json {
        if in_string {
            in_string = escaped || *byte != b'"';
            escaped = !escaped && *byte == b'\\';
            continue;
        }
        bytes += match byte {
            b'"' => {
                in_string = true;
                0
            }
            b'{' => OBJECT,
            b':' => MEMBER,
            b'[' | b',' => ITEM,
            _ => 0,
        };
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_in_strings_count_as_text_only() {
        assert_eq!(estimate(br#""{[:,\"{[:,\\""#), 14);
        assert_eq!(estimate(br#"{"a":1}"#), 7 + OBJECT + MEMBER);
        assert_eq!(estimate(br#"[1,{}]"#), 6 + 2 * ITEM + OBJECT);
    }
}
