//! The environment's document: compressed bytes in one file, or in several parts.

use std::ops::Range;
use std::time::Duration;

use siphasher::sip128::{Hasher128, SipHasher13};

use crate::ReadError;
use crate::format::{
    files,
    header::read_header,
    layout::{DOCUMENT_MAGIC, DOCUMENT_START, HEADER, Part},
};
use crate::values::{hash::Fingerprint, rows::Row};

/// Length in bytes of a gzip header without optional fields.
const GZIP_HEADER: usize = 10;
/// Length in bytes of a gzip trailer: a checksum and a length.
const GZIP_TRAILER: usize = 8;

/// The document of an environment. Everything is validated except the compressed content.
#[derive(Debug, Clone)]
pub struct Document<B> {
    parts: Vec<B>,
    about: Part,
}

impl<B: AsRef<[u8]>> Document<B> {
    /// Returns the number of files of the document whose first file this is.
    ///
    /// # Errors
    /// The bytes are not a valid part of a document, or not its first part.
    pub fn count(first: &[u8]) -> Result<usize, ReadError> {
        let (_, part) = read_part(first)?;
        if part.index != 0 {
            return Err(malformed(0, "it is not the first part, as its name says"));
        }
        Ok(part.number as usize)
    }

    /// Combines the parts of a document. They must belong to one document and to the core's environment, in order.
    pub(crate) fn read(parts: Vec<B>, fingerprint: Fingerprint) -> Result<Self, ReadError> {
        let mut about = None;
        let mut stored = 0;
        let mut hasher = SipHasher13::new();
        for (index, bytes) in parts.iter().enumerate() {
            let (environment, part) = read_part(bytes.as_ref())?;
            if environment != fingerprint {
                return Err(ReadError::OtherEnvironment);
            }
            let first = *about.get_or_insert(part);
            if part.name != first.name || part.number as usize != parts.len() {
                return Err(ReadError::OtherDocument(index));
            }
            if part.index as usize != index {
                return Err(malformed(index, "it is another part than its name says"));
            }
            let chunk = chunk(bytes.as_ref());
            std::hash::Hasher::write(&mut hasher, chunk);
            stored += chunk.len() as u64;
        }
        let about = about.ok_or_else(|| malformed(0, "no part was given"))?;
        if stored != about.stored || hasher.finish128().as_bytes() != about.name {
            return Err(malformed(0, "length or name of the joined parts differs from the header"));
        }
        let document = Self { parts, about };
        document.check_frame()?;
        Ok(document)
    }

    /// Checks the gzip frame around the compressed bytes: the fixed header without optional fields, and the length.
    fn check_frame(&self) -> Result<(), ReadError> {
        // A file boundary may cut through either end.
        let bytes = || self.parts.iter().flat_map(|part| chunk(part.as_ref()));
        let length = (self.about.length as u32).to_be_bytes(); // gzip stores the lower 32 bits; reversed here
        let header = bytes().take(4).eq(&[0x1f, 0x8b, 8, 0]);
        let trailer = bytes().rev().take(4).eq(&length);
        if header && trailer && self.about.stored >= (GZIP_HEADER + GZIP_TRAILER) as u64 {
            Ok(())
        } else {
            Err(malformed(0, "it is not compressed as documents are"))
        }
    }

    /// Length of the uncompressed document in bytes.
    pub fn length(&self) -> u64 {
        self.about.length
    }

    /// Length of the stored gzip stream in bytes.
    pub fn stored(&self) -> u64 {
        self.about.stored
    }

    /// Time of the document's last change since 1970, as its source states it, rounded up to whole seconds. `None` if it
    /// is not known.
    pub fn updated_at(&self) -> Option<Duration> {
        // A file boundary may cut through the header.
        let bytes = self.parts.iter().flat_map(|part| chunk(part.as_ref()));
        let second =
            bytes.skip(4).take(4).zip([0, 8, 16, 24]).fold(0, |time, (byte, bits)| time | u64::from(*byte) << bits);
        (second > 0).then(|| Duration::from_secs(second))
    }

    /// Name of the content: equal documents have equal names.
    pub fn name(&self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.about.name;
        u64::from_be_bytes([a, b, c, d, e, f, g, h])
    }

    /// The files that contain the document.
    pub fn files(&self) -> &[B] {
        &self.parts
    }

    /// Returns the range of the gzip stream within a file. The ranges of all files, in order, are the whole stream.
    pub fn range(&self, file: usize) -> Option<Range<usize>> {
        Some(DOCUMENT_START..self.parts.get(file)?.as_ref().len())
    }

    /// Returns the deflate stream within a file: the same bytes without the gzip header and trailer.
    pub fn deflated(&self, file: usize) -> Option<&[u8]> {
        let bytes = self.parts.get(file)?.as_ref();
        let before: u64 = self.parts.iter().take(file).map(|part| chunk(part.as_ref()).len() as u64).sum();
        let all = chunk(bytes);
        let start = (GZIP_HEADER as u64).saturating_sub(before).min(all.len() as u64);
        let end = (self.about.stored - GZIP_TRAILER as u64).saturating_sub(before).min(all.len() as u64);
        Some(all.get(start as usize..end as usize).unwrap_or_default())
    }
}

/// Returns the bytes of the gzip stream in one file.
fn chunk(file: &[u8]) -> &[u8] {
    file.get(DOCUMENT_START..).unwrap_or_default()
}

fn read_part(bytes: &[u8]) -> Result<(Fingerprint, Part), ReadError> {
    let header = read_header(bytes, DOCUMENT_MAGIC, "REMORA<SUB>D", DOCUMENT_START)?;
    let row = bytes.get(HEADER..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; 40]);
    let part = Part::decode(&row);
    if part.index >= part.number || part.number as usize > files::DOCUMENT_SLOTS {
        return Err(malformed(part.index as usize, "its number is not below the number of parts"));
    }
    Ok((header.fingerprint, part))
}

fn malformed(index: usize, problem: &'static str) -> ReadError {
    ReadError::Malformed { part: "part of the document", index, problem }
}
