//! Binary of the kubectl plugin: `kubectl remora`.

use std::process::ExitCode;

use clap::Parser;
use remora_operator::ask::{self, Arguments};

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // rustls does not choose a cryptography provider itself, so it is installed before the first connection.
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        return ExitCode::FAILURE;
    }
    ask::main(arguments)
}
