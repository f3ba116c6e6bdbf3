//! The commands of `remora-operator` that need no cluster, as a program of their own. It builds a quarter of the crates:
//! this repository runs it in `make taste` and in tests. Users have `remora-operator`, which messages and documents name.

use std::process::ExitCode;

use clap::Parser;
use remora_tools::{
    Command,
    terminal::{is_closed_pipe, write_line},
};

/// Compile, print and compare snapshots of Remora, without a cluster.
#[derive(Debug, Parser)]
#[command(name = "remora-tools", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    match Cli::parse().command.run(&mut std::io::stdout()) {
        Err(error) if !error.downcast_ref().is_some_and(is_closed_pipe) => {
            // A failed write is ignored: a closed standard error leaves no other place to report to.
            let _ = write_line(&mut std::io::stderr(), format_args!("remora-tools: {error:#}"));
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}
