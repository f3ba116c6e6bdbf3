//! The blob: every run of bytes that a table refers to, each distinct one once.

use std::collections::HashMap;

use super::WriteError;
use crate::values::rows::Span;

pub(super) struct Blob {
    pub(super) bytes: Vec<u8>,
    known: HashMap<Box<[u8]>, Span>,
    /// The size of the object that it has to fit into.
    limit: usize,
}

impl Blob {
    /// An empty one, for an object of so many bytes.
    pub(super) fn new(limit: usize) -> Self {
        Self { bytes: Vec::new(), known: HashMap::new(), limit }
    }

    /// The place of these bytes, which may be shared with equal ones.
    pub(super) fn intern(&mut self, bytes: &[u8]) -> Result<Span, WriteError> {
        if let Some(span) = self.known.get(bytes) {
            return Ok(*span);
        }
        let span = self.append(bytes)?;
        self.known.insert(bytes.into(), span);
        Ok(span)
    }

    /// The place of these bytes, right behind those before.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<Span, WriteError> {
        // Refused here and not when everything is written: a long text that is in many objects would fill the memory before.
        within(self.bytes.len() + bytes.len(), self.limit)?;
        let span = Span { start: offset(self.bytes.len())?, length: offset(bytes.len())? };
        self.bytes.extend_from_slice(bytes);
        Ok(span)
    }
}

/// Refuses a core whose parts are already larger than the whole may be.
pub(super) fn within(bytes: usize, limit: usize) -> Result<(), WriteError> {
    if bytes > limit { Err(WriteError::CoreTooLarge { bytes, limit }) } else { Ok(()) }
}

/// A length or index as the format stores it.
pub(super) fn offset(value: usize) -> Result<u32, WriteError> {
    // Two below the largest are taken by ACCEPT and REJECT.
    let limit = u32::MAX as usize - 2;
    u32::try_from(value).ok().filter(|_| value <= limit).ok_or(WriteError::TooMany {
        what: "bytes or rows",
        count: value,
        limit,
    })
}

/// A value's length and whether the flag is enabled, in one word.
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
