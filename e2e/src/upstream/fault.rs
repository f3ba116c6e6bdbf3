//! What can go wrong with an answer, on request.

use serde::{Deserialize, Serialize};

/// One way to fail. What is not named stays as it would have been.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum Fault {
    /// Another status with another body.
    Status {
        /// The status code.
        code: u16,
        /// The body; empty when absent.
        #[serde(default)]
        body: String,
        /// The `Retry-After` header, seconds or a date.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_after: Option<String>,
    },
    /// A 200 whose body is this text, with the right length.
    Body {
        /// The body.
        text: String,
    },
    /// A 200 whose body stops in the middle of the document, with the right length: broken JSON.
    BrokenJson,
    /// The right answer, later.
    Delay {
        /// How much later.
        millis: u64,
    },
    /// The announced length is the whole body's, and the connection closes after this many bytes of it.
    Truncate {
        /// How many bytes of the body are sent.
        bytes: usize,
    },
    /// The connection is reset after this many bytes of the body; 0: before the first byte of the answer.
    Reset {
        /// How many bytes of the body are sent.
        bytes: usize,
    },
    /// The announced length is off by this much, and the connection closes after the body.
    WrongLength {
        /// Added to the true length.
        by: i64,
    },
    /// The right answer, so many bytes at a time.
    Drip {
        /// Bytes in a piece.
        bytes: usize,
        /// Time between pieces.
        millis: u64,
    },
    /// A redirect to another address.
    Redirect {
        /// The `Location` header.
        to: String,
    },
}

/// A fault, and for how many requests it holds.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Scripted {
    /// What happens.
    pub fault: Fault,
    /// To how many requests; absent: until the faults are set anew.
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
    fn a_script_reads_as_one_would_write_it() {
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
