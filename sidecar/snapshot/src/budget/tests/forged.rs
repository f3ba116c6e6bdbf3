//! Forged snapshots: the tests write their tables, and this module writes a valid header and checksum.

use crate::Snapshot;
use crate::format::{
    files::MAX_CORE_BYTES,
    header::stated_core,
    layout::{CHECKED_FROM, CORE_START, HEADER, SECTIONS, Section},
    model::{Context, Environment, Feature},
    view::section_entry,
};
use crate::values::{
    hash::{Fingerprint, checksum},
    rows::{Row, Span},
};
use crate::write;

/// A core file, section by section.
pub(super) struct Core {
    header: Vec<u8>,
    sections: Vec<Vec<u8>>,
}

impl Core {
    /// Creates an environment with `count` features and without segments.
    pub(super) fn with_features(count: usize) -> Self {
        let default = Context { enabled: true, value: "null".to_owned(), split: None };
        let feature = |number: usize| Feature {
            id: number as i64,
            name: format!("f{number}"),
            kind: "STANDARD".to_owned(),
            served: true,
            server_only: false,
            default: default.clone(),
        };
        let features = (0..count).map(feature).collect();
        let environment = Environment { client_key: "key".to_owned(), features, ..Environment::default() };
        let bytes = write(&environment, usize::MAX).unwrap().files.swap_remove(0).bytes;
        let section = |number| section_entry(&bytes, HEADER, number).of(&bytes).to_vec();
        Self { header: bytes[..HEADER].to_vec(), sections: (0..SECTIONS).map(section).collect() }
    }

    /// Replaces the rows of a table.
    pub(super) fn put<R: Row<N>, const N: usize>(&mut self, section: Section, rows: &[R]) {
        self.sections[section as usize] = rows.iter().flat_map(R::encode).collect();
    }

    /// Returns the rows of a table.
    pub(super) fn rows<R: Row<N>, const N: usize>(&self, section: Section) -> Vec<R> {
        self.sections[section as usize].as_chunks().0.iter().map(R::decode).collect()
    }

    /// Appends bytes to the blob.
    pub(super) fn text(&mut self, text: &[u8]) -> Span {
        self.append(Section::Blob, text)
    }

    /// Appends bytes to a section.
    pub(super) fn append(&mut self, section: Section, bytes: &[u8]) -> Span {
        let all = &mut self.sections[section as usize];
        let span = Span { start: all.len() as u32, length: bytes.len() as u32 };
        all.extend_from_slice(bytes);
        span
    }

    /// Returns the bytes of the file.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut file = self.header.clone();
        let mut at = CORE_START as u32;
        for section in &self.sections {
            let length = section.len() as u32;
            file.extend([at.to_le_bytes(), length.to_le_bytes()].concat());
            at += length;
        }
        self.sections.iter().for_each(|section| file.extend_from_slice(section));
        let length = file.len() as u64;
        file[16..24].copy_from_slice(&length.to_le_bytes());
        let sum = checksum(&file[CHECKED_FROM..]);
        file[24..40].copy_from_slice(&sum);
        file
    }

    /// Reads the snapshot, which must not be larger than a core can be.
    pub(super) fn read(&self) -> Snapshot<Vec<u8>> {
        let bytes = self.bytes();
        assert!(bytes.len() <= MAX_CORE_BYTES, "{} bytes", bytes.len());
        Snapshot::read(bytes).unwrap()
    }

    /// Returns the snapshot without validating it, as if validation had a fault.
    pub(super) fn unvalidated(&self) -> Snapshot<Vec<u8>> {
        let bytes = self.bytes();
        assert!(bytes.len() <= MAX_CORE_BYTES, "{} bytes", bytes.len());
        let header = stated_core(&bytes).unwrap();
        Snapshot::of_header(bytes, &header)
    }

    /// Returns the fingerprint, the key of the snapshot's keyed hashes.
    pub(super) fn fingerprint(&self) -> Fingerprint {
        Fingerprint(self.header[48..].try_into().unwrap())
    }
}
