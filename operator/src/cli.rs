//! Command line of the operator.

use std::io::Write;

use clap::{Parser, Subcommand};

use crate::compiler;
use crate::run;
use crate::tools::compile::Compile;
use crate::tools::diff::Diff;
use crate::tools::explain::Explain;
use crate::tools::inspect::Inspect;

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
        match self.command {
            Command::Run(arguments) => run::run(*arguments),
            Command::CheckInjection(check) => check.run(&mut std::io::stdout()),
            Command::Compile(compile) => compile.run(&mut std::io::stdout()),
            Command::CompileProcess(child) => child.run(),
            Command::Inspect(inspect) => inspect.run(&mut std::io::stdout()),
            Command::Explain(explain) => explain.run(&mut std::io::stdout()),
            Command::Diff(diff) => diff.run(&mut std::io::stdout()),
            Command::Crds => Ok(std::io::stdout().write_all(crate::api::crds()?.as_bytes())?),
        }
    }
}

/// Writes the error that ends the process to standard error.
pub fn report_error(error: &anyhow::Error) {
    // A failed write is ignored: a closed standard error leaves no other place to report to.
    let _ = writeln!(std::io::stderr(), "remora-operator: {error:#}");
}
