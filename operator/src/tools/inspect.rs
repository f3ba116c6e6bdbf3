//! `remora-operator inspect`: prints the contents of a snapshot.

use std::io::Write;
use std::path::PathBuf;

use crate::tools::directory;

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
        writeln!(out, "environment         {}", snapshot.environment())?;
        writeln!(out, "revision            {}", snapshot.revision())?;
        writeln!(out, "format              {}.{}", remora_snapshot::FORMAT_MAJOR, remora_snapshot::FORMAT_MINOR)?;
        writeln!(out, "bytes               {}", snapshot.bytes())?;
        writeln!(out, "identity overrides  {}", snapshot.identity_overrides())?;
        if let Some(document) = directory::read_document(&self.directory, self.environment.as_deref(), &snapshot)? {
            writeln!(out, "document            {} bytes, {} compressed", document.length(), document.stored())?;
        }
        writeln!(
            out,
            "regular expressions {} as automata, {} by backtracking",
            description.automata, description.backtracking
        )?;
        writeln!(out, "\n{} features", description.features.len())?;
        for feature in &description.features {
            let state = if feature.enabled { "on" } else { "off" };
            write!(out, "  {:<40} {state:<4} {}", feature.name, super::shortened(&feature.value))?;
            let counts = [(feature.variants.len(), "variants"), (feature.overrides.len(), "segment overrides")];
            for (count, what) in counts {
                if count > 0 {
                    write!(out, ", {count} {what}")?;
                }
            }
            writeln!(
                out,
                "{}{}",
                if feature.server_only { ", server keys only" } else { "" },
                if feature.unserved { ", not served: read by conditions" } else { "" }
            )?;
        }
        writeln!(out, "\n{} segments that can change an answer", description.segments.len())?;
        for segment in &description.segments {
            writeln!(out, "  {:<40} {} features ({})", segment.name, segment.overrides, segment.id)?;
        }
        for note in &description.notes {
            writeln!(out, "\nnote: {note}")?;
        }
        Ok(())
    }
}
