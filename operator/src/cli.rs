//! Command line of the operator.

use std::io::Write;

use clap::{Parser, Subcommand};

use crate::compiler;
use crate::run;
use crate::tools::compile::Compile;
use crate::tools::diff::Diff;
use crate::tools::explain::Explain;
use crate::tools::inspect::Inspect;
use crate::tools::terminal::is_closed_pipe;

/// Feature flags on localhost for Kubernetes: the operator and its tools.
#[derive(Debug, Parser)]
#[command(name = "remora-operator", version, propagate_version = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(Box<run::Arguments>),
    CheckInjection(run::CheckInjection),
    /// Print the CustomResourceDefinitions as YAML.
    Crds,
    Compile(Compile),
    #[command(hide = true)]
    CompileProcess(compiler::Child),
    Inspect(Inspect),
    Explain(Explain),
    Diff(Diff),
}

impl Cli {
    /// Runs the subcommand that the command line names.
    ///
    /// # Errors
    /// If the subcommand fails.
    pub fn execute(self) -> anyhow::Result<()> {
        let mut out = std::io::stdout();
        let printed = match self.command {
            Command::Run(arguments) => return run::run(*arguments),
            Command::CompileProcess(child) => return child.run(),
            Command::CheckInjection(check) => check.run(&mut out),
            Command::Compile(compile) => compile.run(&mut out),
            Command::Inspect(inspect) => inspect.run(&mut out),
            Command::Explain(explain) => explain.run(&mut out),
            Command::Diff(diff) => diff.run(&mut out),
            Command::Crds => print_crds(&mut out),
        };
        match printed {
            Err(error) if error.downcast_ref().is_some_and(is_closed_pipe) => Ok(()),
            printed => printed,
        }
    }
}

fn print_crds(out: &mut impl Write) -> anyhow::Result<()> {
    Ok(out.write_all(crate::api::crds()?.as_bytes())?)
}

/// Writes the error that ends the process to standard error.
pub fn report_error(error: &anyhow::Error) {
    // A failed write is ignored: a closed standard error leaves no other place to report to.
    let _ = writeln!(std::io::stderr(), "remora-operator: {error:#}");
}
