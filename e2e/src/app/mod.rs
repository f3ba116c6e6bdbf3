//! An application that reads its flags from localhost before it does anything else.
//!
//! It asks once, without a retry: if the sidecar is not there when an application's first line runs, it fails, and so does the
//! case that runs it. Then it ends (`once`: a Job's work) or serves what it learned (`serve`):
//!
//! | request | answer |
//! |---|---|
//! | `GET /first` | the answers to the first requests, and when they were asked |
//! | `GET /watch` | the history of the flag's answer, asked every 50 ms |
//! | any `/ask?method=M&path=P` | what localhost answers to that request, with the body and the environment key of this one |
//! | `GET /kill?process=NAME` | ends a process of the pod, as a crash would |
//! | `GET /memory?process=NAME` | the memory lines of its `/proc/…/status` |
//!
//! At termination it goes on asking for a while, for that is when a sidecar may be gone too early, and fails if one request did.

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

/// What the application does with its flags.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum App {
    /// Ask once, print the answers, end.
    Once(Question),
    /// Ask once, print the answers, then serve them and more until the end.
    Serve(Serve),
}

/// Runs the application.
///
/// # Errors
///
/// When a request failed: the first, or one that was made at the end.
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
