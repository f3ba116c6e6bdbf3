//! Parser of server-sent events, limited to what Flagsmith uses. Pure: the input is bytes in pieces of any size, the
//! output is events.

use jiff::Timestamp;
use serde::Deserialize;

/// Maximum length of a line in bytes. Flagsmith's lines have about 50.
const LINE_MAX: usize = 4 << 10;
/// Maximum size of one event's data in bytes.
const DATA_MAX: usize = 16 << 10;
/// Name of the event that reports a change of the environment.
const UPDATED: &str = "environment_updated";

/// Event: the environment changed upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// Time of the change. `None` if the event has no time in a known format.
    pub updated_at: Option<Timestamp>,
}

/// Error: a line or an event's data exceeds its maximum size.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLong;

/// Incremental parser of one stream.
#[derive(Debug, Default)]
pub(super) struct Parser {
    line: Vec<u8>,
    /// True if the last line ended with a carriage return: a line feed after it belongs to the same line end.
    returned: bool,
    name: String,
    data: String,
}

impl Parser {
    /// Parses the next bytes of the stream and appends complete events to `changes`.
    ///
    /// # Errors
    /// A line is longer than [`LINE_MAX`], or an event has more data than [`DATA_MAX`].
    pub(super) fn read(&mut self, bytes: &[u8], changes: &mut impl Extend<Change>) -> Result<(), TooLong> {
        for byte in bytes {
            match byte {
                b'\n' if self.returned => self.returned = false,
                b'\n' | b'\r' => {
                    self.returned = *byte == b'\r';
                    let line = std::mem::take(&mut self.line);
                    changes.extend(self.end_line(&line)?);
                }
                _ if self.line.len() >= LINE_MAX => return Err(TooLong),
                _ => {
                    self.returned = false;
                    self.line.push(*byte);
                }
            }
        }
        Ok(())
    }

    /// Handles a complete line. An empty line ends an event.
    fn end_line(&mut self, line: &[u8]) -> Result<Option<Change>, TooLong> {
        let line = String::from_utf8_lossy(line);
        if line.is_empty() {
            let (name, data) = (std::mem::take(&mut self.name), std::mem::take(&mut self.data));
            return Ok((name == UPDATED).then(|| Change { updated_at: updated_at(&data) }));
        }
        let (field, value) = line.split_once(':').unwrap_or((&line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.name),
            "data" if self.data.len() + value.len() > DATA_MAX => return Err(TooLong),
            "data" => {
                self.data.push_str(value);
                self.data.push('\n');
            }
            // Comments keep the connection alive, and Flagsmith does not use other fields.
            _ => {}
        }
        Ok(None)
    }
}

#[derive(Deserialize)]
struct Data {
    updated_at: Time,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Time {
    Number(f64),
    Text(String),
}

/// Parses the time of a change. Flagsmith sends seconds since 1970, and its documentation shows milliseconds.
fn updated_at(data: &str) -> Option<Timestamp> {
    /// Smallest number that counts as milliseconds. It means the year 5138 in seconds, and 1973 in milliseconds.
    const MILLISECONDS: f64 = 1e11;
    let seconds = match serde_json::from_str::<Data>(data).ok()?.updated_at {
        Time::Text(text) => return text.parse().ok(),
        Time::Number(number) if number.abs() >= MILLISECONDS => number / 1e3,
        Time::Number(number) => number,
    };
    // The cast saturates, and `Timestamp` rejects what is out of its range.
    Timestamp::from_microsecond((seconds * 1e6).round() as i64).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Vec<Change> {
        let mut changes = Vec::new();
        Parser::default().read(text.as_bytes(), &mut changes).unwrap();
        changes
    }

    fn at(text: &str) -> Change {
        Change { updated_at: Some(text.parse().unwrap()) }
    }

    #[test]
    fn event_of_change_is_parsed_with_its_time() {
        let stream = ": connected\n\nevent: environment_updated\ndata: {\"updated_at\": 1763683284.25}\n\n: ping\n\n";
        assert_eq!(read(stream), [at("2025-11-21T00:01:24.25Z")]);
    }

    #[test]
    fn event_times_of_all_notations_are_parsed() {
        for time in ["1763683284.25", "1763683284250", "\"2025-11-21T00:01:24.250000+00:00\""] {
            let stream = format!("event:environment_updated\r\ndata:{{\"updated_at\":\r\ndata:{time}}}\r\n\r\n");
            assert_eq!(read(&stream), [at("2025-11-21T00:01:24.25Z")], "{time}");
        }
        for time in ["null", "1e300", "\"soon\"", "[]", ""] {
            let stream = format!("event: environment_updated\ndata: {{\"updated_at\": {time}}}\n\n");
            assert_eq!(read(&stream), [Change { updated_at: None }], "{time}");
        }
    }

    #[test]
    fn other_or_incomplete_event_is_ignored() {
        for stream in
            ["event: message\ndata: x\n\n", "data: {\"updated_at\": 1}\n\n", "event: environment_updated\n", "\n\n"]
        {
            assert_eq!(read(stream), [], "{stream:?}");
        }
    }

    #[test]
    fn event_beyond_size_limit_is_dropped() {
        let mut none = Vec::new();
        assert_eq!(Parser::default().read(&[b'x'; LINE_MAX + 1], &mut none), Err(TooLong));
        let line = format!("data: {}\n", "x".repeat(1000));
        assert_eq!(Parser::default().read(line.repeat(17).as_bytes(), &mut none), Err(TooLong));
        assert!(none.is_empty());
    }

    proptest! {
        #[test]
        fn parsed_events_do_not_depend_on_chunk_boundaries(text in "(event: environment_updated|data: \\{\"updated_at\": 5\\}|[\r\n :a]|\r\n){0,20}", cut in 0usize..200) {
            let whole = read(&text);
            let mut pieces = Vec::new();
            let mut parser = Parser::default();
            let (head, tail) = text.as_bytes().split_at(cut.min(text.len()));
            parser.read(head, &mut pieces).unwrap();
            parser.read(tail, &mut pieces).unwrap();
            prop_assert_eq!(whole, pieces);
        }

        #[test]
        fn arbitrary_bytes_are_parsed_without_panic(bytes: Vec<u8>) {
            let _ = Parser::default().read(&bytes, &mut Vec::new());
        }
    }
}
