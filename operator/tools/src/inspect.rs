//! The content of a snapshot: `remora-operator inspect` prints it from files, `kubectl remora inspect` from the cluster.

use std::io::Write;
use std::path::PathBuf;

use remora_snapshot::{Description, FORMAT_MAJOR, FORMAT_MINOR, FeatureDescription, Snapshot};
use serde::Serialize;

use crate::{counted, directory, shortened, terminal::write_line};

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
        let document = directory::read_document(&self.directory, self.environment.as_deref(), &snapshot)?;
        let mut content = Content::of(&snapshot);
        content.document =
            document.map(|document| DocumentSize { bytes: document.length(), compressed_bytes: document.stored() });
        content.lines().into_iter().try_for_each(|line| write_line(out, line))?;
        Ok(())
    }
}

/// Content of a snapshot.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Content {
    environment: String,
    revision: String,
    format: String,
    bytes: usize,
    identity_overrides: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    document: Option<DocumentSize>,
    regular_expressions: RegularExpressions,
    features: Vec<Feature>,
    segments: Vec<Segment>,
    notes: Vec<String>,
}

/// Sizes of Flagsmith's document.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct DocumentSize {
    bytes: u64,
    compressed_bytes: u64,
}

/// Number of regular expressions by how they are evaluated.
#[derive(Debug, Serialize)]
struct RegularExpressions {
    automata: usize,
    backtracking: usize,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Feature {
    name: String,
    enabled: bool,
    /// Value as JSON.
    value: String,
    variants: usize,
    segment_overrides: usize,
    server_only: bool,
    is_served: bool,
}

#[derive(Debug, Serialize)]
struct Segment {
    id: u32,
    name: String,
    /// Number of features that the segment overrides.
    features: u32,
}

impl From<FeatureDescription<'_>> for Feature {
    fn from(feature: FeatureDescription<'_>) -> Self {
        Self {
            name: feature.name.to_owned(),
            enabled: feature.enabled,
            value: feature.value.into_owned(),
            variants: feature.variants.len(),
            segment_overrides: feature.overrides.len(),
            server_only: feature.server_only,
            is_served: !feature.unserved,
        }
    }
}

impl Feature {
    fn line(&self) -> String {
        let state = if self.enabled { "on" } else { "off" };
        let mut line = format!("  {:<40} {state:<4} {}", self.name, shortened(&self.value));
        let counts = [(self.variants, "variant"), (self.segment_overrides, "segment override")];
        for (count, what) in counts.into_iter().filter(|(count, _)| *count > 0) {
            line += &format!(", {}", counted(count, what));
        }
        let properties = [(self.server_only, "server keys only"), (!self.is_served, "not served: read by conditions")];
        for (_, what) in properties.into_iter().filter(|(applies, _)| *applies) {
            line += &format!(", {what}");
        }
        line
    }
}

impl Content {
    /// Describes a snapshot.
    pub fn of(snapshot: &Snapshot<Vec<u8>>) -> Self {
        let Description { features, segments, automata, backtracking, notes } = snapshot.describe();
        let segments = segments.into_iter();
        Self {
            environment: snapshot.environment().to_owned(),
            revision: snapshot.revision().to_string(),
            format: format!("{FORMAT_MAJOR}.{FORMAT_MINOR}"),
            bytes: snapshot.bytes(),
            identity_overrides: snapshot.identity_overrides(),
            document: None,
            regular_expressions: RegularExpressions { automata, backtracking },
            features: features.into_iter().map(Feature::from).collect(),
            segments: segments
                .map(|segment| Segment { id: segment.id, name: segment.name.to_owned(), features: segment.overrides })
                .collect(),
            notes: notes.into_iter().map(str::to_owned).collect(),
        }
    }

    /// Returns the content as text.
    pub fn lines(&self) -> Vec<String> {
        let RegularExpressions { automata, backtracking } = self.regular_expressions;
        let mut lines = vec![
            format!("environment         {}", self.environment),
            format!("revision            {}", self.revision),
            format!("format              {}", self.format),
            format!("bytes               {}", self.bytes),
            format!("identity overrides  {}", self.identity_overrides),
        ];
        lines.extend(self.document.iter().map(|DocumentSize { bytes, compressed_bytes }| {
            format!("document            {bytes} bytes, {compressed_bytes} compressed")
        }));
        lines.push(format!("regular expressions {automata} as automata, {backtracking} by backtracking"));
        lines.extend([String::new(), counted(self.features.len(), "feature")]);
        lines.extend(self.features.iter().map(Feature::line));
        lines.extend([String::new(), counted(self.segments.len(), "segment") + " that can change an answer"]);
        lines.extend(
            self.segments
                .iter()
                .map(|Segment { id, name, features }| format!("  {name:<40} {} ({id})", counted(*features, "feature"))),
        );
        for note in &self.notes {
            lines.extend([String::new(), format!("note: {note}")]);
        }
        lines
    }
}
