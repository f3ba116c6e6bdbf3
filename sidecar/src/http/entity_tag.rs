//! Entity tags in the headers of requests.

/// True if an `If-None-Match` header names `tag`: in a list, weak or strong, and also without quotes, as in the
/// protocol's own examples.
pub(crate) fn matches_tag(header: &[u8], tag: &str) -> bool {
    let tag = bare(tag);
    std::str::from_utf8(header).is_ok_and(|header| header.split(',').any(|entry| bare(entry) == tag))
}

fn bare(tag: &str) -> &str {
    tag.trim().trim_start_matches("W/").trim_matches('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entity_tag_is_recognized_weak_strong_bare_and_in_a_list() {
        let tag = "\"abc-12\"";
        for header in ["\"abc-12\"", "abc-12", "W/\"abc-12\"", "\"x\", \"abc-12\"", " W/\"y\" ,abc-12 "] {
            assert!(matches_tag(header.as_bytes(), tag), "{header}");
        }
        for header in ["", "*", "\"abc-1\"", "abc-123", "\"abc\", \"12\""] {
            assert!(!matches_tag(header.as_bytes(), tag), "{header}");
        }
        assert!(!matches_tag(b"\xff", tag));
    }
}
