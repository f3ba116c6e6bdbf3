//! The `remora-sidecar` program; see `--help`.

use std::io::Write as _;
use std::process::ExitCode;

use remora_sidecar::{
    Command, Failure, HELP, Options, Server, Signals, UsageError, parse, probe, report, set_json, set_level,
};

/// Exit code for an invalid command line (`EX_USAGE`).
const USAGE: u8 = 64;

fn main() -> ExitCode {
    let arguments = std::env::args_os().skip(1).map(|argument| argument.into_string().map_err(UsageError::NotUtf8));
    match arguments.collect::<Result<Vec<_>, _>>().and_then(parse) {
        Ok(Command::Serve(options)) => match serve(&options) {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => {
                report(&failure);
                ExitCode::FAILURE
            }
        },
        Ok(Command::Probe(admin)) => match probe(admin) {
            Ok(()) => ExitCode::SUCCESS,
            Err(not_yet) => {
                // kubelet copies this line into an Event.
                let _ = writeln!(std::io::stderr(), "{not_yet}");
                ExitCode::FAILURE
            }
        },
        Ok(Command::Help) => print(HELP),
        Ok(Command::Version) => print(concat!("remora-sidecar ", env!("CARGO_PKG_VERSION"), "\n")),
        Err(error) => {
            // If standard error is closed, the error cannot be reported anywhere.
            let _ = writeln!(std::io::stderr(), "remora-sidecar: {error}");
            ExitCode::from(USAGE)
        }
    }
}

fn serve(options: &Options) -> Result<(), Failure> {
    set_level(options.level);
    set_json(options.log_json);
    // One thread is enough: a request takes microseconds, and the pod's cores belong to the application.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map_err(|cause| Failure::System { step: "start the runtime", cause })?;
    runtime.block_on(async {
        // The start loads all volumes, which may take long.
        let signals = Signals::new()?;
        Server::start(options).await?.run(signals).await;
        Ok::<(), Failure>(())
    })
}

fn print(text: &str) -> ExitCode {
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
