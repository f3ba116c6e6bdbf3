//! The two programs that run beside Remora in a test cluster, in one image: the upstream stub and the application.

use clap::{Parser, Subcommand};
use remora_e2e::app::{self, App};
use remora_e2e::upstream::{Options, Upstream};
use tokio::signal::unix::{SignalKind, signal};

/// Programs that run beside Remora in a test cluster.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    program: Program,
}

#[derive(Subcommand)]
enum Program {
    /// Serve environment documents as Flagsmith's API does, and fail on request.
    Upstream(Options),
    /// Read flags from localhost, as an application would.
    #[command(subcommand)]
    App(App),
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    match Arguments::parse().program {
        Program::Upstream(options) => {
            let upstream = Upstream::start(&options).await?;
            // The first process of a container receives SIGTERM only if it installs a handler.
            let mut told = signal(SignalKind::terminate())?;
            tokio::select! {
                ended = upstream.run() => ended,
                _ = told.recv() => Ok(()),
            }
        }
        Program::App(app) => app::run(&app).await,
    }
}
