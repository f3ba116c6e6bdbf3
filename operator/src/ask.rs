//! `kubectl remora`: answers questions about published environments and about the installation.
//!
//! The plugin has only the rights of the caller's kubeconfig and uses only the API server. Each command has the same
//! three parts:
//!
//! ```text
//! reads (edge) ──> facts ──> answer (pure) ──> text or JSON
//! ```
//!
//! | modules | what they do |
//! |---|---|
//! | `arguments`, `completion` | the command line, and candidates for its last word |
//! | `failure`, `cluster` | requests with a time limit; a refused one names the missing right |
//! | `published` | reads the published revision or an earlier one back from its objects |
//! | `used` | asks running pods how often flags were used |
//! | `exposition` | parses metrics of pods |
//! | `answer` | an answer as text with aligned columns, or as JSON |
//! | `explain`, `flags`, `inspect`, `size`, `diff`, `history`, `pods`, `sign`, `edit`, `check` | one command each; `edit` has those that write |
//!
//! Exit codes: 0 if all is well, 1 if the command found something, 2 for a wrong command line, 3 if the cluster cannot
//! be reached or a right is missing.

mod answer;
mod arguments;
mod check;
mod cluster;
mod completion;
mod diff;
mod edit;
mod explain;
mod exposition;
mod failure;
mod flags;
mod history;
mod inspect;
mod pods;
mod published;
mod sign;
mod size;
mod used;

use std::{
    ffi::OsString,
    io::{self, Write},
    process::ExitCode,
};

use remora_tools::terminal::{is_closed_pipe, printable};

use self::{answer::CommandOutput, arguments::Command};
pub use self::{
    answer::OutputFormat,
    arguments::Arguments,
    check::CONTROLLER_RIGHTS,
    cluster::Cluster,
    completion::COMPLETE,
    failure::{Failure, Right},
};

/// Answers the question of the command line on standard output, and reports a failure on standard error.
pub fn main(arguments: Arguments) -> ExitCode {
    let mut out = std::io::stdout().lock();
    answered(
        runtime().map_err(Failure::from).and_then(|runtime| runtime.block_on(connect_and_run(arguments, &mut out))),
    )
}

/// Writes candidates for the last word of a command line to standard output.
pub fn complete(words: Vec<OsString>) -> ExitCode {
    let mut out = std::io::stdout().lock();
    answered(written(runtime().and_then(|runtime| runtime.block_on(completion::complete(words, &mut out))), 0))
}

/// Like [`complete`], for a test: writes the candidates from this cluster to `out`.
///
/// # Errors
/// If the candidates cannot be written.
pub async fn complete_from(cluster: &Cluster, words: Vec<OsString>, out: &mut impl Write) -> io::Result<()> {
    completion::candidates(words, async || Some(cluster.clone()), out).await
}

fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

fn answered(result: Result<u8, Failure>) -> ExitCode {
    // A failed write is ignored: a closed standard error leaves no other place to report to.
    let code = result.unwrap_or_else(|failure| {
        let _ = writeln!(std::io::stderr(), "kubectl-remora: {}", printable(&failure.to_string()));
        failure.exit_code()
    });
    ExitCode::from(code)
}

async fn connect_and_run(arguments: Arguments, out: &mut impl Write) -> Result<u8, Failure> {
    if let Command::Completion = arguments.command {
        return written(out.write_all(completion::PROGRAM.as_bytes()), 0);
    }
    let cluster = Cluster::connect(&arguments.connection).await?;
    run(arguments, &cluster, out).await
}

/// Runs the command against this cluster, and returns the exit code.
///
/// # Errors
/// If the command line asks for something that does not exist, the cluster cannot be reached, or a right is missing.
pub async fn run(arguments: Arguments, cluster: &Cluster, out: &mut impl Write) -> Result<u8, Failure> {
    let output_format = arguments.output_format();
    match arguments.command {
        Command::Check(asked) => output_format.print(&check::check(cluster, &asked).await?, out),
        Command::Explain(asked) => output_format.print(&explain::explain(cluster, &asked).await?, out),
        Command::Diff(asked) => output_format.print(&diff::diff(cluster, &asked).await?, out),
        Command::History { environment } => output_format.print(&history::history(cluster, &environment).await?, out),
        Command::Flags(asked) => output_format.print(&flags::flags(cluster, &asked).await?, out),
        Command::Inspect(asked) => output_format.print(&inspect::inspect(cluster, &asked).await?, out),
        Command::Size(asked) => output_format.print(&size::size(cluster, &asked).await?, out),
        Command::Pods { environment } => output_format.print(&pods::pods(cluster, &environment).await?, out),
        Command::Sign(asked) => output_format.print(&sign::sign(cluster, &asked).await?, out),
        Command::Pin { environment, revision } => {
            output_format.print(&edit::pin(cluster, &environment, &revision).await?, out)
        }
        Command::Unpin { environment } => output_format.print(&edit::unpin(cluster, &environment).await?, out),
        Command::Confirm { environment, revision } => {
            output_format.print(&edit::confirm(cluster, &environment, revision.as_deref()).await?, out)
        }
        Command::Refresh { environment, wait } => {
            output_format.print(&edit::refresh(cluster, &environment, wait.map(|wait| wait.get())).await?, out)
        }
        Command::Completion => written(out.write_all(completion::PROGRAM.as_bytes()), 0),
    }
}

impl OutputFormat {
    /// Prints an answer, and returns the exit code.
    fn print(&self, answer: &impl CommandOutput, out: &mut impl Write) -> Result<u8, Failure> {
        written(self.write(answer, out), answer.exit_code())
    }
}

/// Returns the exit code if the output is written, or nobody reads it any more.
fn written(result: io::Result<()>, code: u8) -> Result<u8, Failure> {
    match result {
        Err(error) if !is_closed_pipe(&error) => Err(error.into()),
        _ => Ok(code),
    }
}
