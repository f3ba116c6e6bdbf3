//! `remora-operator compile`: a document file to a directory that a sidecar can serve.

use std::io::{Read, Write};
use std::path::PathBuf;

use anyhow::Context;

use crate::api::names::EnvironmentName;
use crate::compile::{
    self, Mode, Options,
    document::{self, Original},
    prune::{Rules, prune},
};
use crate::tools::directory;

/// Compiles a Flagsmith environment document to a directory that a sidecar can serve.
#[derive(Debug, clap::Args)]
pub struct Compile {
    /// The document, as Flagsmith's environment-document/ endpoint answers it; - for standard input.
    #[arg(long, value_name = "FILE")]
    document: PathBuf,
    /// The directory that a sidecar then serves by --snapshots.
    #[arg(long, value_name = "DIR")]
    output: PathBuf,
    /// What to call the environment.
    #[arg(long, default_value = "default")]
    name: EnvironmentName,
    /// A server key (ser.…): requests with it see server-only features. The document's own key is the client key.
    #[arg(long, value_name = "KEY")]
    environment_key: Vec<String>,
    /// What the answer without an identity applies.
    #[arg(long, value_enum, default_value = "plain")]
    environment_flags: EnvironmentFlags,
    /// To OpenFeature, what a flag answers whose value is a boolean.
    #[arg(long, value_enum, default_value = "value")]
    ofrep_boolean_flags: BooleanFlags,
    /// To OpenFeature, what a disabled flag answers that has a value.
    #[arg(long, value_enum, default_value = "code-default")]
    ofrep_disabled_flags: DisabledFlags,
    /// To OpenFeature, what a flag answers whose value is a text that is a JSON object.
    #[arg(long, value_enum, default_value = "text")]
    ofrep_object_flags: ObjectFlags,
    /// Serve the document itself, too: environment-document/, to requests with a server key.
    #[arg(long, requires = "environment_key")]
    environment_document: bool,
    /// Serve only features whose names match this glob; may be repeated.
    #[arg(long, value_name = "GLOB")]
    include: Vec<String>,
    /// Do not serve features whose names match this glob; may be repeated.
    #[arg(long, value_name = "GLOB")]
    exclude: Vec<String>,
}

/// As `spec.serve.environmentFlags`.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum EnvironmentFlags {
    /// No segments, as Flagsmith's API.
    Plain,
    /// Segments that need no identity.
    IdentityFree,
    /// All segments, as Flagsmith's edge proxy.
    AllSegments,
}

/// As `spec.serve.ofrep.booleanFlags`.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum BooleanFlags {
    /// Its value.
    Value,
    /// Whether it is enabled.
    Enabled,
}

/// As `spec.serve.ofrep.disabledFlags`.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum DisabledFlags {
    /// No value: the application's own default counts.
    CodeDefault,
    /// Its value all the same.
    Value,
}

/// As `spec.serve.ofrep.objectFlags`.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum ObjectFlags {
    /// The text.
    Text,
    /// The object.
    Object,
}

impl Compile {
    /// Does it, and says what came of it.
    ///
    /// # Errors
    /// If the document is malformed or does not fit, with the place; if a file cannot be read or written.
    pub fn run(&self, out: &mut impl Write) -> anyhow::Result<()> {
        let bytes = self.read()?;
        let document = document::parse(&bytes).with_context(|| self.source())?;
        let rules = Rules::new(&self.include, &self.exclude, false, false)?;
        let pruned = prune(document, &rules);
        let keys: Vec<&str> = self.environment_key.iter().map(String::as_str).collect();
        let environment_flags = match self.environment_flags {
            EnvironmentFlags::Plain => Mode::Plain,
            EnvironmentFlags::IdentityFree => Mode::IdentityFree,
            EnvironmentFlags::AllSegments => Mode::AllSegments,
        };
        let original = self.environment_document.then(|| Original::new(bytes));
        let options = Options {
            environment: self.name.as_str(),
            server_keys: &keys,
            environment_flags,
            ofrep: compile::Ofrep {
                boolean_flags: match self.ofrep_boolean_flags {
                    BooleanFlags::Value => compile::BooleanFlags::Value,
                    BooleanFlags::Enabled => compile::BooleanFlags::Enabled,
                },
                disabled_flags: match self.ofrep_disabled_flags {
                    DisabledFlags::CodeDefault => compile::DisabledFlags::CodeDefault,
                    DisabledFlags::Value => compile::DisabledFlags::Value,
                },
                object_flags: match self.ofrep_object_flags {
                    ObjectFlags::Text => compile::ObjectFlags::Text,
                    ObjectFlags::Object => compile::ObjectFlags::Object,
                },
            },
            document: original.as_ref(),
            ..Options::default()
        };
        let compiled = compile::compile(&pruned, &options).with_context(|| self.source())?;
        let volume = directory::write(&self.output, self.name.as_str(), &compiled)?;
        let summary = compiled.summary;
        writeln!(
            out,
            "{}: revision {}, {} features, {} segments, {} identity overrides, {} bytes",
            volume.display(),
            compiled.revision,
            summary.features,
            summary.segments,
            summary.identity_overrides,
            summary.bytes
        )?;
        for finding in &compiled.findings {
            writeln!(out, "note: {finding}")?;
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
