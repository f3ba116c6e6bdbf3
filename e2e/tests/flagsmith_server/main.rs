//! Sends the same requests to a Flagsmith server and to a sidecar, and compares the answers.
//!
//! The test makes a project by the server's REST API, asks the server for flags and identities, compiles the server's
//! document, and asks a sidecar the same. With `REMORA_FLAGSMITH_URL` and `REMORA_FLAGSMITH_TOKEN`, as `make
//! test-flagsmith` requires, the server is a real one. Without them, a stand-in takes the requests, builds the document
//! from them, and has the sidecar answer: that checks the requests and the comparison, and no answer of Flagsmith.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test that panics has failed, as it should"
)]

mod admin;
mod answers;
mod project;
mod sidecar;
mod stand_in;

use admin::Admin;
use answers::{Question, compare};
use project::Project;
use sidecar::Sidecar;
use stand_in::StandIn;

/// A server to compare with.
struct Server {
    url: String,
    token: String,
    stand_in: Option<StandIn>,
}

impl Server {
    async fn start() -> Server {
        match (std::env::var("REMORA_FLAGSMITH_URL"), std::env::var("REMORA_FLAGSMITH_TOKEN")) {
            (Ok(url), Ok(token)) => Server { url, token, stand_in: None },
            _ => Server::stand_in().await,
        }
    }

    async fn stand_in() -> Server {
        let stand_in = StandIn::start().await;
        Server { url: stand_in.url.clone(), token: "prefix.secret".to_owned(), stand_in: Some(stand_in) }
    }

    /// Makes the project, asks both, deletes the project, and returns the differences.
    async fn differences(&self) -> Vec<String> {
        let admin = Admin::new(&self.url, &self.token);
        let project = Project::create(&admin).await;
        let document = admin.document(&project.server_key).await;
        let sidecar = Sidecar::start(&document, &project.server_key).await;
        if let Some(stand_in) = &self.stand_in {
            stand_in.answer_by(&sidecar.url);
        }
        let mut differences = Vec::new();
        for question in Question::all(&project) {
            let theirs = question.ask(&admin.http, &admin.url).await;
            let ours = question.ask(&admin.http, &sidecar.url).await;
            differences.extend(compare(&question, &theirs, &ours));
        }
        project.delete(&admin).await;
        differences
    }
}

#[tokio::test]
async fn sidecar_answers_as_flagsmith_server() {
    let server = Server::start().await;
    let differences = server.differences().await;
    assert!(differences.is_empty(), "{} differ:\n{}", differences.len(), differences.join("\n"));
    let what = if server.stand_in.is_some() { "the stand-in" } else { &server.url };
    println!("{} questions: {what} and the sidecar give the same answers", Question::COUNT);
}

#[tokio::test]
async fn different_answer_of_server_is_found() {
    let server = Server::stand_in().await;
    server.stand_in.as_ref().unwrap().lie_about("checkout");
    let differences = server.differences().await;
    assert_eq!(differences.len(), Question::COUNT, "{differences:#?}");
    assert!(differences.iter().all(|difference| difference.contains("checkout")), "{differences:#?}");
}
