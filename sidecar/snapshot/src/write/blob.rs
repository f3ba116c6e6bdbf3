//! The blob: every byte range that a table refers to. Interned ranges are stored once.

use std::collections::HashMap;

use super::WriteError;
use crate::values::rows::Span;

pub(super) struct Blob {
    pub(super) bytes: Vec<u8>,
    known: HashMap<Box<[u8]>, Span>,
    /// Maximum size of the object in bytes.
    limit: usize,
}

impl Blob {
    /// Creates an empty blob for an object of at most `limit` bytes.
    pub(super) fn new(limit: usize) -> Self {
        Self { bytes: Vec::new(), known: HashMap::new(), limit }
    }

    /// Returns the span of these bytes. Equal bytes may share a span.
    pub(super) fn intern(&mut self, bytes: &[u8]) -> Result<Span, WriteError> {
        if let Some(span) = self.known.get(bytes) {
            return Ok(*span);
        }
        let span = self.append(bytes)?;
        self.known.insert(bytes.into(), span);
        Ok(span)
    }

    /// Appends these bytes directly after the previous ones, and returns their span.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<Span, WriteError> {
        // Refused here and not at the end: a long text in many objects would otherwise fill the memory first.
        within(self.bytes.len() + bytes.len(), self.limit)?;
        let span = Span { start: offset(self.bytes.len())?, length: offset(bytes.len())? };
        self.bytes.extend_from_slice(bytes);
        Ok(span)
    }
}

/// Refuses a core whose parts are already larger than the limit.
pub(super) fn within(bytes: usize, limit: usize) -> Result<(), WriteError> {
    if bytes > limit { Err(WriteError::CoreTooLarge { bytes, limit }) } else { Ok(()) }
}

/// Returns a length or index as the format stores it.
pub(super) fn offset(value: usize) -> Result<u32, WriteError> {
    // ACCEPT and REJECT are the two largest values.
    let limit = u32::MAX as usize - 2;
    u32::try_from(value).ok().filter(|_| value <= limit).ok_or(WriteError::TooMany {
        what: "bytes or rows",
        count: value,
        limit,
    })
}

/// Encodes a value's length and the state of the flag in one word.
pub(super) fn value_length(length: u32, enabled: bool) -> Result<u32, WriteError> {
    use crate::format::layout::{ENABLED, LENGTH_MASK};
    if length > LENGTH_MASK {
        return Err(WriteError::TooMany {
            what: "bytes in one value",
            count: length as usize,
            limit: LENGTH_MASK as usize,
        });
    }
    Ok(length | if enabled { ENABLED } else { 0 })
}
