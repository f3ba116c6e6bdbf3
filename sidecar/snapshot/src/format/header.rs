//! The header that every file begins with.

use crate::{
    ReadError, Revision,
    format::layout::{CHECKED_FROM, CORE_MAGIC, FORMAT_MAJOR, HEADER, SUPPORTED_FEATURES},
    values::{
        hash::{Fingerprint, checksum},
        rows::Span,
    },
};

/// The header fields that a reader keeps after validation.
pub(crate) struct Header {
    /// Length of the file in bytes.
    pub(crate) length: u64,
    pub(crate) revision: Revision,
    pub(crate) fingerprint: Fingerprint,
}

/// Validates the header of a file of at least `least` bytes: length and checksum are those of the file.
pub(crate) fn read_header(
    bytes: &[u8],
    magic: [u8; 8],
    expected: &'static str,
    least: usize,
) -> Result<Header, ReadError> {
    let (header, sum) = stated_header(bytes, magic, expected)?;
    let stated = header.length;
    if stated != bytes.len() as u64 || u32::try_from(stated).is_err() {
        return Err(ReadError::WrongLength { stated, actual: bytes.len() });
    }
    if bytes.len() < least {
        return Err(ReadError::TooShort(bytes.len()));
    }
    if sum != checksum(bytes.get(CHECKED_FROM..).unwrap_or_default()) {
        return Err(ReadError::WrongChecksum);
    }
    Ok(header)
}

/// The magic of a core as text.
pub(crate) const CORE_MAGIC_TEXT: &str = "REMORA<SUB>C";

/// Returns the header of a core, whose rest may be missing, without its checksum.
pub(crate) fn stated_core(bytes: &[u8]) -> Result<Header, ReadError> {
    stated_header(bytes, CORE_MAGIC, CORE_MAGIC_TEXT).map(|(header, _)| header)
}

/// Reads what the header at the start of a file states, and the checksum in it. The rest of the file may be missing.
pub(crate) fn stated_header(
    bytes: &[u8],
    magic: [u8; 8],
    expected: &'static str,
) -> Result<(Header, [u8; 16]), ReadError> {
    let short = || ReadError::TooShort(bytes.len());
    let found = bytes.first_chunk::<8>().ok_or_else(short)?;
    if *found != magic {
        return Err(ReadError::WrongMagic { expected });
    }
    let header = bytes.first_chunk::<HEADER>().ok_or_else(short)?;
    let [
        _,
        _,
        _,
        _,
        _,
        _,
        _,
        _,
        major_low,
        major_high,
        _,
        _,
        r0,
        r1,
        r2,
        r3,
        l0,
        l1,
        l2,
        l3,
        l4,
        l5,
        l6,
        l7,
        rest @ ..,
    ] = *header;
    let major = u16::from_le_bytes([major_low, major_high]);
    if major != FORMAT_MAJOR {
        return Err(ReadError::UnknownMajor(major));
    }
    let required = u32::from_le_bytes([r0, r1, r2, r3]);
    if required & !SUPPORTED_FEATURES != 0 {
        return Err(ReadError::UnknownFeatures(required));
    }
    let length = u64::from_le_bytes([l0, l1, l2, l3, l4, l5, l6, l7]);
    let sum = rest.first_chunk::<16>().copied().unwrap_or_default();
    let revision = rest.get(16..24).and_then(|bytes| bytes.first_chunk::<8>()).copied().unwrap_or_default();
    let fingerprint = rest.last_chunk::<16>().copied().unwrap_or_default();
    let revision = Revision(u64::from_le_bytes(revision));
    Ok((Header { length, revision, fingerprint: Fingerprint(fingerprint) }, sum))
}

/// Returns the bytes of a section, which must lie within the file.
pub(crate) fn span_of(bytes: &[u8], span: Span, index: usize) -> Result<&[u8], ReadError> {
    if span.within(bytes) {
        Ok(span.of(bytes))
    } else {
        Err(malformed("section", index, "it lies outside of the file"))
    }
}

pub(crate) fn malformed(part: &'static str, index: usize, problem: &'static str) -> ReadError {
    ReadError::Malformed { part, index, problem }
}
