//! `remora-operator inspect`: prints the contents of a snapshot.

use std::io::Write;
use std::path::PathBuf;

use crate::tools::{directory, terminal::write_line};

/// Print the contents of a snapshot: features, segments, sizes and notes.
#[derive(Debug, clap::Args)]
pub struct Inspect {
    /// Directory that `remora-operator compile` wrote, or a mounted snapshot volume.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Environment to read. Required if the directory holds several environments.
    #[arg(long, value_name = "NAME")]
    environment: Option<String>,
}

impl Inspect {
    /// Writes the description of the snapshot to `out`.
    ///
    /// # Errors
    /// If the directory holds no snapshot, several and no environment is named, or a malformed one.
    pub fn run(&self, out: &mut impl Write) -> anyhow::Result<()> {
        let snapshot = directory::read(&self.directory, self.environment.as_deref())?;
        let description = snapshot.describe();
        write_line(out, format_args!("environment         {}", snapshot.environment()))?;
        write_line(out, format_args!("revision            {}", snapshot.revision()))?;
        write_line(
            out,
            format_args!("format              {}.{}", remora_snapshot::FORMAT_MAJOR, remora_snapshot::FORMAT_MINOR),
        )?;
        write_line(out, format_args!("bytes               {}", snapshot.bytes()))?;
        write_line(out, format_args!("identity overrides  {}", snapshot.identity_overrides()))?;
        if let Some(document) = directory::read_document(&self.directory, self.environment.as_deref(), &snapshot)? {
            write_line(
                out,
                format_args!("document            {} bytes, {} compressed", document.length(), document.stored()),
            )?;
        }
        write_line(
            out,
            format_args!(
                "regular expressions {} as automata, {} by backtracking",
                description.automata, description.backtracking
            ),
        )?;
        writeln!(out)?;
        write_line(out, format_args!("{} features", description.features.len()))?;
        for feature in &description.features {
            let state = if feature.enabled { "on" } else { "off" };
            let mut line = format!("  {:<40} {state:<4} {}", feature.name, super::shortened(&feature.value));
            let counts = [(feature.variants.len(), "variants"), (feature.overrides.len(), "segment overrides")];
            for (count, what) in counts.into_iter().filter(|(count, _)| *count > 0) {
                line += &format!(", {count} {what}");
            }
            let properties =
                [(feature.server_only, "server keys only"), (feature.unserved, "not served: read by conditions")];
            for (_, what) in properties.into_iter().filter(|(applies, _)| *applies) {
                line += &format!(", {what}");
            }
            write_line(out, line)?;
        }
        writeln!(out)?;
        write_line(out, format_args!("{} segments that can change an answer", description.segments.len()))?;
        for segment in &description.segments {
            write_line(out, format_args!("  {:<40} {} features ({})", segment.name, segment.overrides, segment.id))?;
        }
        for note in &description.notes {
            writeln!(out)?;
            write_line(out, format_args!("note: {note}"))?;
        }
        Ok(())
    }
}
