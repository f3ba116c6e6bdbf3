//! Parts of the environment's document, each of at most the size of a file.

use super::{WriteError, check, head, put};
use crate::format::{
    files::DOCUMENT_SLOTS,
    layout::{DOCUMENT_MAGIC, DOCUMENT_START, HEADER, Part},
    model::Compressed,
};
use crate::values::{
    hash::{Fingerprint, checksum},
    rows::Row,
};

/// Divides the document into the smallest number of files that hold it.
pub(super) fn divide(
    document: &Compressed,
    fingerprint: Fingerprint,
    limit: usize,
) -> Result<Vec<Vec<u8>>, WriteError> {
    let too_large = || WriteError::DocumentTooLarge { bytes: document.gzip.len(), slots: DOCUMENT_SLOTS, limit };
    let room = limit.checked_sub(DOCUMENT_START).filter(|room| *room > 0).ok_or_else(too_large)?;
    let chunks: Vec<&[u8]> = document.gzip.chunks(room).collect();
    if chunks.len() > DOCUMENT_SLOTS {
        return Err(too_large());
    }
    let name = checksum(&document.gzip);
    let (number, length) = (chunks.len() as u32, document.length); // at most as many as slots
    let part = |(index, chunk): (u32, &&[u8])| {
        let mut file = vec![0; DOCUMENT_START];
        let stored = document.gzip.len() as u64;
        put(&mut file, HEADER, &Part { index, number, name, length, stored }.encode());
        file.extend_from_slice(chunk);
        head(&mut file, DOCUMENT_MAGIC, fingerprint);
        check(&mut file);
        file
    };
    Ok((0..).zip(&chunks).map(part).collect())
}
