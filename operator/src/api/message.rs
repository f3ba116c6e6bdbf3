//! Lengths of texts in conditions and Events.

/// Largest message of a condition in bytes.
pub(crate) const CONDITION_MAX: usize = 4096;
/// Largest note of an Event that the API server accepts, in bytes.
pub(crate) const NOTE_MAX: usize = 1024;

/// Cuts `text` to at most `limit` bytes, at a character boundary.
pub(crate) fn truncated(mut text: String, limit: usize) -> String {
    if text.len() > limit {
        let end = (0..=limit.saturating_sub('…'.len_utf8())).rev().find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or_default());
        text.push('…');
    }
    text
}

#[test]
fn truncated_text_ends_at_character_boundary() {
    assert_eq!(truncated("äöü".to_owned(), 6), "äöü");
    assert_eq!(truncated("äöüx".to_owned(), 6), "ä…");
    assert!(truncated("ä".repeat(3000), NOTE_MAX).len() <= NOTE_MAX);
}
