//! Compresses the original document for SDKs in local evaluation, once, so that sidecars need not.

use std::io::{self, Write};

use flate2::{Compression, GzBuilder, write::GzEncoder};
use jiff::{Timestamp, civil::DateTime, tz::TimeZone};
use remora_snapshot::model::Compressed;

use super::Error;
use super::finding::Finding;
use super::review::listed;
use crate::{document::Original, prune::Pruned};

/// Compresses the served part of the document. Best compression, because it is written once and read often. The time in
/// the gzip header is the document's own, so equal documents have equal bytes.
///
/// # Errors
/// The original cannot be parsed again or written.
pub(super) fn compress(original: &Original, pruned: &Pruned) -> Result<Compressed, Error> {
    let failed = |error: &dyn std::fmt::Display| Error::Document(error.to_string());
    let time = pruned.document.updated_at().and_then(whole_second).unwrap_or_default();
    let gzip = GzBuilder::new().mtime(time).write(Vec::new(), Compression::best());
    let mut out = CountingWriter { gzip: io::BufWriter::with_capacity(64 * 1024, gzip), length: 0 };
    let overridden = !pruned.document.identity_overrides.is_empty();
    original.write(&pruned.served().collect(), overridden, &mut out).map_err(|error| failed(&error))?;
    let encoder = out.gzip.into_inner().map_err(|error| failed(error.error()))?;
    let gzip = encoder.finish().map_err(|error| failed(&error))?;
    Ok(Compressed { gzip, length: out.length })
}

/// Returns the seconds since 1970 of a document's `updated_at`, rounded up. A time without an offset is in UTC, as SDKs
/// read it. `None` for texts that are no time, and for times that gzip cannot store.
fn whole_second(updated_at: &str) -> Option<u32> {
    let in_utc = || updated_at.parse::<DateTime>().ok()?.to_zoned(TimeZone::UTC).ok().map(|zoned| zoned.timestamp());
    let time = updated_at.parse::<Timestamp>().ok().or_else(in_utc)?;
    u32::try_from(time.as_second() + i64::from(time.subsec_nanosecond() > 0)).ok()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_a_document_is_rounded_up_to_a_second() {
        for (updated_at, second) in [
            ("2026-11-21T00:18:32.135012+00:00", Some(1_795_220_313)),
            ("2026-11-21T00:18:32+00:00", Some(1_795_220_312)),
            ("2026-11-21T01:18:32.000001+01:00", Some(1_795_220_313)),
            ("2026-11-21T00:18:32Z", Some(1_795_220_312)),
            ("2026-11-21T00:18:32.5", Some(1_795_220_313)),
            ("1969-12-31T23:59:58Z", None),
            ("2106-02-07T06:28:16Z", None),
            ("now", None),
            ("", None),
        ] {
            assert_eq!(whole_second(updated_at), second, "{updated_at}");
        }
    }
}
