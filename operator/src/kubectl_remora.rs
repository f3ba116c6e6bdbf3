//! Binary of the kubectl plugin: `kubectl remora`.

use std::process::ExitCode;

use clap::Parser;
use remora_operator::ask::{self, Arguments};

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    let completes = words.next().is_some_and(|first| first == ask::COMPLETE);
    let arguments = if completes { None } else { Some(Arguments::parse()) };
    // rustls does not choose a cryptography provider itself, so it is installed before the first connection.
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        return ExitCode::FAILURE;
    }
    match arguments {
        Some(arguments) => ask::main(arguments),
        None => ask::complete(words.collect()),
    }
}
