//! Binary of Remora's operator: the control plane and its command-line tools.

use std::process::ExitCode;

use clap::Parser;
use remora_operator::cli::Cli;

fn main() -> ExitCode {
    // rustls does not choose a cryptography provider itself, so it is installed before the first connection.
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        return ExitCode::FAILURE;
    }
    match Cli::parse().execute() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            remora_operator::cli::report_error(&error);
            ExitCode::FAILURE
        }
    }
}
