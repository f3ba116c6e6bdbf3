//! An application that reads its flags from localhost before it does anything else.
//!
//! The application sends each request once, without a retry: if the sidecar does not serve when the application's first
//! line runs, the application fails, and the case that runs it fails too. It then exits (`once`, the work of a Job) or
//! serves its results (`serve`):
//!
//! | request | answer |
//! |---|---|
//! | `GET /first` | the answers to the first requests, and the time of the requests |
//! | `GET /watch` | the history of the flag's answer, requested every 50 ms |
//! | any `/ask?method=M&path=P` | localhost's answer to that request, with the body and the environment key of this one |
//! | `GET /kill?process=NAME` | kills a process of the pod, as a crash would |
//! | `GET /memory?process=NAME` | the memory lines of the process's `/proc/…/status` |
//!
//! At termination the application continues to send requests for a while, because a sidecar could stop too early then.
//! It fails if one of these requests fails.

mod ask;
mod first;
mod process;
mod serve;
mod watch;

use std::io::Write as _;

pub use ask::Reply;
pub use first::{First, Question};
pub use serve::Serve;
pub use watch::{Change, Failure, History};

/// Mode of the application.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum App {
    /// Send the first requests, print the answers, exit.
    Once(Question),
    /// Send the first requests, print the answers, then serve them and poll until termination.
    Serve(Serve),
}

/// Runs the application.
///
/// # Errors
///
/// Returns an error if a first request failed, or a request during termination.
pub async fn run(app: &App) -> anyhow::Result<()> {
    match app {
        App::Once(question) => first(question).await.map(drop),
        App::Serve(serve) => {
            let first = first(&serve.question).await?;
            serve.run(first).await
        }
    }
}

async fn first(question: &Question) -> anyhow::Result<First> {
    let first = First::ask(question).await?;
    writeln!(std::io::stdout(), "first answer after {} us: {}", first.ofrep.micros, first.ofrep.body)?;
    Ok(first)
}
