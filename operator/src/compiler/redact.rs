//! Removes the values that a source sent from error messages. Pure.
//!
//! Everybody who may read the FeatureEnvironment can read its status, and a server that was never meant to be a source
//! may have answered. The place and the kind of an error help; the value would leak data.
//!
//! The parser drops the value from messages that begin with `invalid`. This module also covers names of unknown
//! variants and fields, and every other quoted text.

use remora_compile::document;

/// Returns the message of the error without the values that it quotes.
pub(super) fn redacted(error: &document::Error) -> String {
    match error {
        document::Error::Malformed { place, line, column, problem } => {
            format!("the document is malformed at {place} (line {line}, column {column}): {}", unquoted(problem))
        }
        other => other.to_string(),
    }
}

/// Removes the text between the first and the last quotation mark, and names that serde quotes in another way.
fn unquoted(problem: &str) -> String {
    for (opening, closing) in [("\"", "\""), ("unknown variant `", "`, expected"), ("unknown field `", "`, expected")] {
        if let Some((before, rest)) = problem.split_once(opening) {
            let after = rest.rsplit_once(closing).map(|(_, after)| after);
            let closing = if after.is_some() { closing } else { "" };
            return format!("{before}{opening}…{closing}{}", after.unwrap_or_default());
        }
    }
    problem.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redacted_message_has_no_text_of_document() {
        for body in [
            r#"{"api_key": {"canary": 1}}"#,
            r#"{"project": "canary"}"#,
            r#"{"project": "ca\"nary\""}"#,
            r#""canary""#,
            "canary",
            "<html>canary</html>",
            r#"{"feature_states": [{"feature": {"id": "canary", "name": "canary"}}]}"#,
            r#"{"id": 1, "api_key": "k", "feature_states": [{"enabled": "canary"}]}"#,
        ] {
            let error = document::parse(body.as_bytes()).unwrap_err();
            let text = redacted(&error);
            assert!(!text.contains("canary") && !text.contains("nary"), "{text}");
        }
    }

    #[test]
    fn redacted_message_keeps_expected_type() {
        assert_eq!(unquoted(r#"invalid type: string "x", expected i64"#), r#"invalid type: string "…", expected i64"#);
        assert_eq!(unquoted("unknown variant `x`, expected `A`"), "unknown variant `…`, expected `A`");
        assert_eq!(unquoted("missing field `id`"), "missing field `id`");
    }
}
