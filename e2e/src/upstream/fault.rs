//! Faults that the stub applies to an answer on request.

use serde::{Deserialize, Serialize};

/// Kind of fault. Parts of the answer that a kind does not name stay unchanged.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum Fault {
    /// Another status with another body.
    Status {
        /// Status code.
        code: u16,
        /// Body; empty if absent.
        #[serde(default)]
        body: String,
        /// Value of the `Retry-After` header, in seconds or as a date.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_after: Option<String>,
    },
    /// A 200 whose body is this text, with the right length.
    Body {
        /// Body of the answer.
        text: String,
    },
    /// A 200 whose body stops in the middle of the document, with the right length: broken JSON.
    BrokenJson,
    /// The correct answer, delayed.
    Delay {
        /// Delay in milliseconds.
        millis: u64,
    },
    /// Announces the length of the whole body, and closes the connection after this many bytes of it.
    Truncate {
        /// Number of bytes of the body that are sent.
        bytes: usize,
    },
    /// Resets the connection after this many bytes of the body; 0: before the first byte of the answer.
    Reset {
        /// Number of bytes of the body that are sent.
        bytes: usize,
    },
    /// Announces a wrong length, and closes the connection after the body.
    WrongLength {
        /// Number that is added to the true length.
        by: i64,
    },
    /// The correct answer, in small pieces.
    Drip {
        /// Size of a piece in bytes.
        bytes: usize,
        /// Time between two pieces in milliseconds.
        millis: u64,
    },
    /// A redirect to another address.
    Redirect {
        /// Value of the `Location` header.
        to: String,
    },
}

/// Fault, and the number of requests that it applies to.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Scripted {
    /// Kind of fault.
    pub fault: Fault,
    /// Number of requests. Absent: all requests until the faults are replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<u32>,
}

impl From<Fault> for Scripted {
    fn from(fault: Fault) -> Self {
        Self { fault, times: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn script_is_read_in_documented_form() {
        let script: Vec<Scripted> = serde_json::from_str(
            r#"[{"fault":{"kind":"status","code":429,"retryAfter":"3"},"times":2},{"fault":{"kind":"brokenJson"}},{"fault":{"kind":"reset","bytes":0}}]"#,
        )
        .unwrap();
        assert_eq!(
            script,
            [
                Scripted {
                    fault: Fault::Status { code: 429, body: String::new(), retry_after: Some("3".into()) },
                    times: Some(2)
                },
                Fault::BrokenJson.into(),
                Fault::Reset { bytes: 0 }.into(),
            ]
        );
    }
}
