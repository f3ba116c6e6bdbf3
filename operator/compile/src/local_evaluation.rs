//! Compresses the original document for SDKs in local evaluation, once, so that sidecars need not.

use std::io::{self, Write};

use flate2::{Compression, GzBuilder, write::GzEncoder};
use remora_snapshot::model::Compressed;

use super::Error;
use super::finding::Finding;
use super::review::listed;
use crate::{document::Original, prune::Pruned};

/// Compresses the served part of the document. Best compression, because it is written once and read often.
///
/// # Errors
/// The original cannot be parsed again or written.
pub(super) fn compress(original: &Original, pruned: &Pruned) -> Result<Compressed, Error> {
    let failed = |error: &dyn std::fmt::Display| Error::Document(error.to_string());
    let gzip = GzBuilder::new().write(Vec::new(), Compression::best()); // without name and time: reproducible bytes
    let mut out = CountingWriter { gzip: io::BufWriter::with_capacity(64 * 1024, gzip), length: 0 };
    let overridden = !pruned.document.identity_overrides.is_empty();
    original.write(&pruned.served().collect(), overridden, &mut out).map_err(|error| failed(&error))?;
    let encoder = out.gzip.into_inner().map_err(|error| failed(error.error()))?;
    let gzip = encoder.finish().map_err(|error| failed(&error))?;
    Ok(Compressed { gzip, length: out.length })
}

/// Returns a finding if conditions read features that the sidecar knows and SDKs in local evaluation do not.
pub(super) fn hidden_features(pruned: &Pruned) -> Option<Finding> {
    let mut names: Vec<&str> = pruned.unserved.iter().map(String::as_str).collect();
    names.sort_unstable();
    (!names.is_empty()).then(|| {
        Finding::new(
            "environment document",
            &format!(
                "conditions read features that are pruned ({}): SDKs in local evaluation do not have them, and may answer otherwise than the sidecar; serve those features, too",
                listed(&names)
            ),
        )
    })
}

/// Counts the bytes before compression.
struct CountingWriter {
    gzip: io::BufWriter<GzEncoder<Vec<u8>>>,
    length: u64,
}

impl Write for CountingWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.gzip.write(bytes)?;
        self.length += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.gzip.flush()
    }
}
