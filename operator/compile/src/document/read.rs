//! Parses a document and locates its errors.

use super::Document;
use super::quote::printable;

/// Maximum number of characters shown of a member's path.
const LONGEST_PLACE: usize = 200;

/// Maximum number of characters shown of a problem.
const LONGEST_PROBLEM: usize = 300;

/// Reason why bytes are not a document, or pages do not form one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The bytes are not JSON, or do not have the shape of a document.
    #[error("the document is malformed at {place} (line {line}, column {column}): {problem}")]
    Malformed {
        /// Path of the member, as `project.segments[3].rules[0].type`.
        place: String,
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// Problem: what the parser expected, without the value that it found.
        problem: String,
    },
    /// A page belongs to another environment than the first page.
    #[error(
        "a page of the document belongs to another environment than the first page: check that the source returns one environment"
    )]
    OtherEnvironment,
    /// The environment changed while its pages were fetched.
    #[error("the environment changed between two pages of its document: fetch it again from the first page")]
    ChangedBetweenPages,
}

/// Parses a document.
///
/// # Errors
/// [`Error::Malformed`], with the place and the problem.
pub fn parse(bytes: &[u8]) -> Result<Document, Error> {
    serde_json::from_slice(bytes).map_err(|error| locate(bytes, &error))
}

/// Parses the bytes again with a slower parser that reports the path of the malformed member.
fn locate(bytes: &[u8], error: &serde_json::Error) -> Error {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let place = match serde_path_to_error::deserialize::<_, Document>(&mut deserializer) {
        Err(located) => located.path().to_string(),
        Ok(_) => ".".to_owned(), // the error is in the text after the document
    };
    Error::Malformed {
        // The path contains names of members as the document spells them, and they may be any text.
        place: if place == "." { "its top".to_owned() } else { printable(&place, LONGEST_PLACE) },
        line: error.line(),
        column: error.column(),
        problem: printable(&without_content(without_position(&error.to_string())), LONGEST_PROBLEM),
    }
}

/// Removes the position from a message of serde_json, because [`Error`] shows it separately.
fn without_position(message: &str) -> &str {
    message.rsplit_once(" at line ").map_or(message, |(problem, _)| problem)
}

/// Removes the document's value from a message, because the status shows the message to people who may not see the
/// document.
fn without_content(problem: &str) -> String {
    let Some((found, expected)) = problem.strip_prefix("invalid ").and_then(|rest| rest.rsplit_once(", expected "))
    else {
        return problem.to_owned();
    };
    let kind = found.split(['"', '`']).next().unwrap_or_default().trim_end();
    format!("invalid {kind}, expected {expected}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(json: &str) -> String {
        parse(json.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn malformed_document_is_refused_with_its_place() {
        let wrong_value = r#"{"api_key":"k","project":{},"feature_states":[{"feature":{"id":1,"name":"a"},"enabled":true,"feature_state_value":[1]}]}"#;
        assert!(problem(wrong_value).contains("feature_states[0].feature_state_value"), "{}", problem(wrong_value));
        let wrong_rule = r#"{"api_key":"k","project":{"segments":[{"id":1,"name":"s","rules":[{"conditions":[]}]}]},"feature_states":[]}"#;
        assert!(
            problem(wrong_rule).contains("project.segments[0].rules[0]")
                && problem(wrong_rule).contains("missing field `type`"),
            "{}",
            problem(wrong_rule)
        );
        assert!(problem("<html>").contains("line 1, column 1"));
        assert!(problem("").contains("EOF"));
        assert!(problem(r#"{"api_key":"\ud800"}"#).contains("api_key"), "{}", problem(r#"{"api_key":"\ud800"}"#));
    }

    #[test]
    fn error_message_contains_no_text_of_document() {
        for value in ["\"canary\"", "\"can\\\"ary, expected canary\"", "4242.5", "[\"canary\"]", "{\"canary\":1}"] {
            for document in [
                format!(r#"{{"api_key":"k","id":{value}}}"#),
                format!(r#"{{"api_key":"k","project":{value}}}"#),
                format!(
                    r#"{{"api_key":"k","project":{{"segments":[{{"id":1,"name":"s","feature_states":[{{"feature":{{"id":1,"name":"f"}},"enabled":{value}}}]}}]}}}}"#
                ),
                format!(
                    r#"{{"api_key":"k","project":{{}},"feature_states":[{{"feature":{{"id":1,"name":"f"}},"enabled":true,"feature_segment":{{"priority":{value}}}}}]}}"#
                ),
            ] {
                if let Err(error) = parse(document.as_bytes()) {
                    assert!(!error.to_string().contains("canary") && !error.to_string().contains("4242"), "{error}");
                }
            }
        }
    }

    #[test]
    fn member_names_in_messages_are_escaped_and_cut() {
        let name = format!("{}\n\u{1b}[31m", "x".repeat(10_000)).replace('\n', "\\n").replace('\u{1b}', "\\u001b");
        for document in [
            r#"{"api_key":"k","a\n\u001b[31mb":{"c":!}}"#.to_owned(),
            format!(r#"{{"api_key":"k","{name}":{{"c":!}}}}"#),
            format!(r#"{{"api_key":"k","project":{{"{name}":[!]}}}}"#),
        ] {
            let told = problem(&document);
            assert!(!told.contains(['\n', '\u{1b}']) && told.len() < 1_000, "{told}");
        }
    }

    #[test]
    fn document_nested_too_deeply_is_refused() {
        let deep = format!(
            r#"{{"api_key":"k","feature_states":[],"project":{}1{}}}"#,
            "[".repeat(100_000),
            "]".repeat(100_000)
        );
        assert!(problem(&deep).contains("project"));
        let unknown = format!(r#"{{"unknown":{}1{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
        assert!(parse(unknown.as_bytes()).is_err());
    }

    #[test]
    fn pages_of_different_environment_or_time_are_refused() {
        let page = |key: &str, at: &str, who: &str| {
            parse(format!(r#"{{"api_key":"{key}","updated_at":"{at}","project":{{}},"feature_states":[],"identity_overrides":[{{"identifier":"{who}"}}]}}"#).as_bytes()).unwrap()
        };
        let mut first = page("k", "1", "a");
        first.append_page(page("k", "1", "b")).unwrap();
        assert_eq!(first.append_page(page("k", "2", "c")), Err(Error::ChangedBetweenPages));
        assert_eq!(first.append_page(page("x", "1", "c")), Err(Error::OtherEnvironment));
        let who: Vec<&str> = first.identity_overrides.iter().map(|identity| identity.identifier.as_str()).collect();
        assert_eq!(who, ["a", "b"]);
    }
}
