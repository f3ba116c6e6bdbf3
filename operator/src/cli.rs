//! Command line of the operator.

use std::io::Write;

use clap::{Parser, Subcommand};
use remora_tools::terminal::{is_closed_pipe, write_line};

use crate::compiler;
use crate::run;

/// Feature flags on localhost for Kubernetes: the operator and its tools.
#[derive(Debug, Parser)]
#[command(name = "remora-operator", version, propagate_version = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Controller(Box<run::Controller>),
    Webhook(Box<run::Webhook>),
    CheckInjection(run::CheckInjection),
    /// Print the CustomResourceDefinitions as YAML.
    Crds,
    #[command(hide = true)]
    CompileProcess(compiler::Child),
    #[command(flatten)]
    Tool(remora_tools::Command),
}

impl Cli {
    /// Runs the subcommand that the command line names.
    ///
    /// # Errors
    /// If the subcommand fails.
    pub fn execute(self) -> anyhow::Result<()> {
        let mut out = std::io::stdout();
        let printed = match self.command {
            Command::Controller(controller) => return controller.run(),
            Command::Webhook(webhook) => return webhook.run(),
            Command::CompileProcess(child) => return child.run(),
            Command::CheckInjection(check) => check.run(&mut out),
            Command::Tool(tool) => tool.run(&mut out),
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
    let _ = write_line(&mut std::io::stderr(), format_args!("remora-operator: {error:#}"));
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// In a release build, two arguments with one id end every start of the command.
    #[test]
    fn arguments_of_all_commands_are_distinct() {
        Cli::command().debug_assert();
    }

    #[test]
    fn defaults_of_sidecars_and_own_log_are_set_apart() {
        let arguments =
            "remora-operator webhook --sidecar-image=i --sidecar-log-level=warn --log-level=debug --log-json";
        let Command::Webhook(webhook) = Cli::try_parse_from(arguments.split(' ')).unwrap().command else {
            panic!("another command")
        };
        assert_eq!((webhook.process.log_level.as_str(), webhook.process.log_json), ("debug", true));
    }
}
