//! Commands that need no cluster: `compile`, `inspect`, `explain`, `diff`.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod compile;
pub mod diff;
pub mod directory;
pub mod explain;
pub mod inspect;
pub mod parts;
pub mod terminal;

use std::{fmt::Display, io::Write};

use self::{compile::Compile, diff::Diff, explain::Explain, inspect::Inspect};

/// Commands for snapshots in directories.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    #[allow(missing_docs, reason = "the description of `Compile` is the help text")]
    Compile(Compile),
    #[allow(missing_docs, reason = "the description of `Inspect` is the help text")]
    Inspect(Inspect),
    #[allow(missing_docs, reason = "the description of `Explain` is the help text")]
    Explain(Explain),
    #[allow(missing_docs, reason = "the description of `Diff` is the help text")]
    Diff(Diff),
}

impl Command {
    /// Runs the command and writes its answer to `out`.
    ///
    /// # Errors
    /// If the command fails.
    pub fn run(&self, out: &mut impl Write) -> anyhow::Result<()> {
        match self {
            Self::Compile(compile) => compile.run(out),
            Self::Inspect(inspect) => inspect.run(out),
            Self::Explain(explain) => explain.run(out),
            Self::Diff(diff) => diff.run(out),
        }
    }
}

/// Returns a number with what it counts: `1 flag`, `2 flags`.
pub fn counted<N: Copy + Display + PartialEq + From<u8>>(count: N, noun: &str) -> String {
    let plural = if count == N::from(1) { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

/// Shortens a value to 60 characters for display in one line.
pub fn shortened(value: &str) -> String {
    const LONGEST: usize = 60;
    match value.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", value.get(..end).unwrap_or_default()),
        None => value.to_owned(),
    }
}
