//! `remora-operator compile`: compiles a document file to a directory that a sidecar can serve.

mod choices;

use std::io::{Read, Write};
use std::path::PathBuf;

use anyhow::Context;
use remora_compile::{
    BooleanFlags, DisabledFlags, EnvironmentFlags, ObjectFlags, Ofrep, Options,
    document::{self, Original},
    name::environment_name,
    prune::{Rules, Selection, prune},
};

use self::choices::{BOOLEAN_FLAGS, DISABLED_FLAGS, ENVIRONMENT_FLAGS, OBJECT_FLAGS, choice};
use crate::{counted, directory, terminal::write_line};

/// Compile a Flagsmith environment document to a directory that a sidecar can serve.
#[derive(Debug, clap::Args)]
pub struct Compile {
    /// File with the document as Flagsmith's `environment-document/` endpoint returns it, or `-` for standard input.
    #[arg(long, value_name = "FILE")]
    document: PathBuf,
    /// Directory for the snapshot. A sidecar serves it with `--snapshots DIR`.
    #[arg(long, value_name = "DIR")]
    output: PathBuf,
    /// Name of the environment.
    #[arg(long, default_value = "default", value_parser = environment_name)]
    name: String,
    /// Server-side key (`ser.…`) of the environment (repeatable). Requests with such a key get server-only features.
    /// The client-side key is in the document. Default: no server-side key.
    #[arg(long, value_name = "KEY")]
    environment_key: Vec<String>,
    /// Segment overrides that apply to a request without an identity.
    #[arg(long, value_parser = choice(&ENVIRONMENT_FLAGS), default_value = "plain")]
    environment_flags: EnvironmentFlags,
    /// OFREP value of a flag whose value is a boolean.
    #[arg(long, value_parser = choice(&BOOLEAN_FLAGS), default_value = "value")]
    ofrep_boolean_flags: BooleanFlags,
    /// OFREP value of a disabled flag that has a value.
    #[arg(long, value_parser = choice(&DISABLED_FLAGS), default_value = "code-default")]
    ofrep_disabled_flags: DisabledFlags,
    /// OFREP value of a flag whose value is a string that holds a JSON object.
    #[arg(long, value_parser = choice(&OBJECT_FLAGS), default_value = "text")]
    ofrep_object_flags: ObjectFlags,
    /// Serve the document itself at `environment-document/`, to requests with a server-side key. Default: no.
    #[arg(long, requires = "environment_key")]
    environment_document: bool,
    /// Glob for the names of features to serve (repeatable). Default: all features.
    #[arg(long, value_name = "GLOB")]
    include: Vec<String>,
    /// Glob for the names of features not to serve (repeatable). Default: none.
    #[arg(long, value_name = "GLOB")]
    exclude: Vec<String>,
}

impl Compile {
    /// Compiles the document, writes the snapshot, and writes a summary and the findings to `out`.
    ///
    /// # Errors
    /// If the document is malformed or does not fit into a snapshot (the error names the place), or if a file cannot be
    /// read or written.
    pub fn run(&self, out: &mut impl Write) -> anyhow::Result<()> {
        let bytes = self.read()?;
        let document = document::parse(&bytes).with_context(|| self.source())?;
        let selection = Selection { include: &self.include, exclude: &self.exclude, ..Selection::default() };
        let pruned = prune(document, &Rules::compile(&selection)?);
        let keys: Vec<&str> = self.environment_key.iter().map(String::as_str).collect();
        let original = self.environment_document.then(|| Original::new(bytes));
        let options = Options {
            environment: &self.name,
            server_keys: &keys,
            environment_flags: self.environment_flags,
            ofrep: Ofrep {
                boolean_flags: self.ofrep_boolean_flags,
                disabled_flags: self.ofrep_disabled_flags,
                object_flags: self.ofrep_object_flags,
            },
            document: original.as_ref(),
            ..Options::default()
        };
        let compiled = remora_compile::compile(&pruned, &options).with_context(|| self.source())?;
        let volume = directory::write(&self.output, &self.name, &compiled)?;
        let summary = compiled.summary;
        writeln!(
            out,
            "{}: revision {}, {}, {}, {}, {} bytes",
            volume.display(),
            compiled.revision,
            counted(summary.features, "feature"),
            counted(summary.segments, "segment"),
            counted(summary.identity_overrides, "identity override"),
            summary.bytes
        )?;
        for finding in &compiled.findings {
            write_line(out, format_args!("note: {finding}"))?;
        }
        Ok(())
    }

    fn source(&self) -> String {
        if self.is_standard_input() { "standard input".to_owned() } else { self.document.display().to_string() }
    }

    fn is_standard_input(&self) -> bool {
        self.document.as_os_str() == "-"
    }

    fn read(&self) -> anyhow::Result<Vec<u8>> {
        if self.is_standard_input() {
            let mut bytes = Vec::new();
            std::io::stdin().read_to_end(&mut bytes).context("cannot read standard input")?;
            return Ok(bytes);
        }
        std::fs::read(&self.document).with_context(|| format!("cannot read {}", self.document.display()))
    }
}
