//! Remora's operator: one binary for the control plane and for the tools around it.

use std::process::ExitCode;

use clap::Parser;
use remora_operator::cli::Cli;

fn main() -> ExitCode {
    // Chosen before anything can open a connection: rustls refuses to guess.
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        return ExitCode::FAILURE;
    }
    match Cli::parse().execute() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            remora_operator::cli::complain(&error);
            ExitCode::FAILURE
        }
    }
}
