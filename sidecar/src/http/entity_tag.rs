//! Entity tags in the headers of requests.

/// True if an `If-None-Match` header names `tag`: in a list, weak or strong, and also without quotes, as in the
/// protocol's own examples.
pub(crate) fn names_tag(header: &[u8], tag: &str) -> bool {
    let bare = |text: &str| text.trim().trim_start_matches("W/").trim_matches('"').to_owned();
    let tag = bare(tag);
    std::str::from_utf8(header).is_ok_and(|header| header.split(',').any(|entry| bare(entry) == tag))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_recognised_in_every_form() {
        let tag = "\"abc-12\"";
        for header in ["\"abc-12\"", "abc-12", "W/\"abc-12\"", "\"x\", \"abc-12\"", " W/\"y\" ,abc-12 "] {
            assert!(names_tag(header.as_bytes(), tag), "{header}");
        }
        for header in ["", "*", "\"abc-1\"", "abc-123", "\"abc\", \"12\""] {
            assert!(!names_tag(header.as_bytes(), tag), "{header}");
        }
        assert!(!names_tag(b"\xff", tag));
    }
}
