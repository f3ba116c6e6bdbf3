//! The writer: turns the model into the bytes of each file. The same model gives the same bytes.

mod answers;
mod blob;
mod code;
mod combined_dfa;
mod core;
mod document;
mod experiments;
mod free_rows;
mod index;
mod override_runs;
mod overrides;
mod pointer;
mod predicates;
mod ranks;
mod slot_predicates;
mod sweep;

pub use pointer::pointer;

use crate::ReadError;
use crate::RequestState;
use crate::Revision;
use crate::Role;
use crate::Snapshot;
use crate::format::{
    files::{self, MAX_CORE_BYTES, MAX_CORE_PARTS},
    layout::{CHECKED_FROM, FORMAT_MAJOR, FORMAT_MINOR, HEADER},
    model::{Environment, EnvironmentFlags},
};
use crate::render::flagsmith::write_item;
use crate::values::hash::{Fingerprint, checksum};

/// One file of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// Name of the file ([`files`]).
    pub name: String,
    /// Content of the file.
    pub bytes: Vec<u8>,
}

/// A written snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// Revision: the name of the content of all files.
    pub revision: Revision,
    /// The core, then overrides files and parts of the document, if any.
    pub files: Vec<File>,
}

/// Reason why an environment cannot be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// More of something than the format can count.
    #[error("{count} {what}; a snapshot holds at most {limit}")]
    TooMany {
        /// Description of the counted items.
        what: &'static str,
        /// Number of items.
        count: usize,
        /// Maximum number of items.
        limit: usize,
    },
    /// Flags, segments and values alone exceed all parts of a core together.
    #[error(
        "flags, segments and values take {bytes} bytes or more, and {MAX_CORE_PARTS} objects hold {limit}: \
         leave features out with spec.prune.features, or shorten values and IN lists"
    )]
    CoreTooLarge {
        /// Size of the tables written so far, in bytes.
        bytes: usize,
        /// Maximum size of a core, in bytes.
        limit: usize,
    },
    /// The document exceeds all document slots together.
    #[error(
        "the document takes {bytes} bytes when it is compressed, and {slots} objects of {limit} bytes hold less: \
         leave features or identity overrides out with spec.prune, or set spec.serve.environmentDocument to false"
    )]
    DocumentTooLarge {
        /// Size of the compressed document in bytes.
        bytes: usize,
        /// Number of objects.
        slots: usize,
        /// Maximum size of an object, in bytes.
        limit: usize,
    },
    /// The identity overrides exceed all overrides slots together.
    #[error(
        "{count} identity overrides take {bytes} bytes, and {slots} objects of {limit} bytes hold less: drop them with spec.prune.identityOverrides, or use segments"
    )]
    OverridesTooLarge {
        /// Number of identity overrides.
        count: usize,
        /// Size of the identity overrides in bytes.
        bytes: usize,
        /// Number of objects.
        slots: usize,
        /// Maximum size of an object, in bytes.
        limit: usize,
    },
    /// The written snapshot does not read back, which is a fault of this crate.
    #[error("the written snapshot does not read back: {0}")]
    Unreadable(#[from] ReadError),
}

/// Writes an environment into files of at most `limit` bytes each. Only the core may be larger, up to
/// [`files::MAX_CORE_BYTES`]: it is to be published in parts ([`files::parts`]) then. It contains the identity overrides
/// if both together have at most `limit` bytes.
///
/// # Errors
/// Something exceeds the format or `limit`; see [`WriteError`].
pub fn write(environment: &Environment, limit: usize) -> Result<Written, WriteError> {
    let fingerprint = Fingerprint::of(&environment.client_key);
    let core_limit = limit.max(MAX_CORE_BYTES);
    let mut tables = core::Tables::of(environment, fingerprint, core_limit)?;
    let plain = answers::plain(environment);
    let answers = match environment.environment_flags {
        EnvironmentFlags::Plain => plain.clone(),
        EnvironmentFlags::IdentityFree | EnvironmentFlags::AllSegments => evaluated(&tables, environment, &plain)?,
    };

    // An empty file is embedded as well, so that leftover files of an earlier revision do not count.
    let overrides = overrides::AllOverrides::of(&environment.identity_overrides, fingerprint);
    let mut core = match overrides.may_fit(limit) {
        true => tables.lay_out(environment, &answers, &plain, &overrides.whole()?)?,
        false => Vec::new(),
    };
    let mut shards = Vec::new();
    if core.is_empty() || core.len() > limit && !environment.identity_overrides.is_empty() {
        let (bits, files) = overrides.divided(limit)?;
        tables.record_division(bits);
        core = tables.lay_out(environment, &answers, &plain, &[])?;
        shards = files;
    }
    if core.len() > core_limit {
        return Err(WriteError::CoreTooLarge { bytes: core.len(), limit: core_limit });
    }

    let parts = match &environment.document {
        Some(document) => document::divide(document, fingerprint, limit)?,
        None => Vec::new(),
    };

    let revision = seal(&mut core, shards.iter().chain(&parts));
    let mut written = vec![File { name: files::CORE.to_owned(), bytes: core }];
    written.extend(shards.into_iter().enumerate().map(|(slot, bytes)| File { name: files::overrides(slot), bytes }));
    written.extend(parts.into_iter().enumerate().map(|(slot, bytes)| File { name: files::document(slot), bytes }));
    Ok(Written { revision, files: written })
}

/// Computes the answers without an identity by evaluation. They are constant, and the evaluator itself computes them.
fn evaluated(
    tables: &core::Tables,
    environment: &Environment,
    plain: &answers::Answers,
) -> Result<answers::Answers, WriteError> {
    let mut bytes = tables.lay_out(environment, plain, plain, &[])?;
    seal(&mut bytes, []);
    let snapshot = Snapshot::read(bytes)?;
    let mut request = RequestState::default();
    // One evaluation for all features: a segment that overrides thousands of them is evaluated once.
    let decisions = snapshot.decide(&mut request);
    let items = |role| {
        let count = environment.features.len() as u32; // at most u16::MAX
        (0..count)
            .map(|feature| {
                let mut out = Vec::new();
                let digest = write_item(decisions.view(), decisions.outcome(feature), role, &mut out);
                (out, digest)
            })
            .collect::<Vec<_>>()
    };
    Ok(answers::Answers { client: answers::join(items(Role::Client)), server: answers::join(items(Role::Server)) })
}

/// Writes the header of a file, whose first [`HEADER`] bytes are still empty, except for its revision and checksum.
fn head(bytes: &mut [u8], magic: [u8; 8], fingerprint: Fingerprint) {
    let length = bytes.len() as u64;
    let fields: [(usize, &[u8]); 5] = [
        (0, &magic),
        (8, &FORMAT_MAJOR.to_le_bytes()),
        (10, &FORMAT_MINOR.to_le_bytes()),
        (16, &length.to_le_bytes()),
        (HEADER - 16, &fingerprint.0),
    ];
    for (at, field) in fields {
        put(bytes, at, field);
    }
}

fn put(bytes: &mut [u8], at: usize, field: &[u8]) {
    if let Some(place) = bytes.get_mut(at..at + field.len()) {
        place.copy_from_slice(field);
    }
}

/// Writes the core's revision, which covers the other files, and its checksum.
fn seal<'a>(core: &mut [u8], others: impl IntoIterator<Item = &'a Vec<u8>>) -> Revision {
    let mut content = checksum(core.get(CHECKED_FROM..).unwrap_or_default()).to_vec();
    for file in others {
        content.extend_from_slice(file.get(CHECKED_FROM - 16..CHECKED_FROM).unwrap_or_default());
    }
    let revision = Revision::of(checksum(&content));
    put(core, CHECKED_FROM, &revision.0.to_le_bytes());
    check(core);
    revision
}

/// Writes the checksum of a file.
fn check(bytes: &mut [u8]) {
    let sum = checksum(bytes.get(CHECKED_FROM..).unwrap_or_default());
    put(bytes, CHECKED_FROM - 16, &sum);
}
