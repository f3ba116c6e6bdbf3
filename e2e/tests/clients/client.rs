//! A client: a program in its own language that asks a sidecar what it is told to, and prints what it got.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpSocket;
use tokio::process::{Child, ChildStdin, Command};

use crate::sidecar::{PATIENCE, Sidecar};

/// What a line with answers begins with: some SDKs print lines of their own.
const MARK: &str = "answers ";

/// Where the packages of a language are, installed now if need be.
async fn installed(language: &str) -> PathBuf {
    let install = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/install.sh");
    let output = Command::new(install).arg(language).stderr(Stdio::inherit()).output().await.unwrap();
    assert!(output.status.success(), "the clients in {language} could not be installed: see above");
    PathBuf::from(String::from_utf8(output.stdout).unwrap().trim())
}

/// An address that is taken, and at which nobody listens.
fn nobody() -> (TcpSocket, String) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = format!("http://{}", socket.local_addr().unwrap());
    (socket, address)
}

/// A client that has printed its answers.
pub(crate) struct Client {
    child: Child,
    /// Open for as long as the client shall stay.
    _stdin: ChildStdin,
    /// What it printed.
    pub(crate) answers: Value,
}

impl Client {
    /// Runs `clients/LANGUAGE/NAME`, beside a sidecar as injection has it, or without one.
    pub(crate) async fn run(path: &str, sidecar: Option<&Sidecar>, mut plan: Value) -> Client {
        let (language, name) = path.split_once('/').expect("a language and a name");
        let home = installed(language).await;
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients").join(path);
        let mut command = match language {
            "python" => {
                let mut python = Command::new(home.join("bin/python"));
                python.arg("-B").arg(script);
                python
            }
            "node" => {
                let mut node = Command::new("node");
                node.env("NODE_PATH", home.join("node_modules")).arg(script);
                node
            }
            _ => Command::new(home.join("debug").join(name)),
        };
        for (variable, _) in std::env::vars().filter(|(name, _)| name.to_ascii_lowercase().ends_with("_proxy")) {
            command.env_remove(variable);
        }
        if let Some(sidecar) = sidecar {
            command.env("FLAGSMITH_API_URL", format!("{}/api/v1/", sidecar.data));
            command.env("OFREP_ENDPOINT", &sidecar.data);
        }
        let (_socket, address) = nobody();
        plan["nobody"] = address.into();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{path}: {error}"));
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(format!("{plan}\n").as_bytes()).await.unwrap();

        let mut complaints = BufReader::new(child.stderr.take().unwrap()).lines();
        let complaints = tokio::spawn(async move {
            let mut all = String::new();
            while let Ok(Some(line)) = complaints.next_line().await {
                all = all + &line + "\n";
            }
            all
        });
        let mut printed = BufReader::new(child.stdout.take().unwrap()).lines();
        let answers = async {
            while let Some(line) = printed.next_line().await.unwrap() {
                if let Some(answers) = line.strip_prefix(MARK) {
                    return Some(serde_json::from_str(answers).unwrap());
                }
            }
            None
        };
        let answers = tokio::time::timeout(PATIENCE, answers).await;
        let answers = answers.unwrap_or_else(|_| panic!("{path} gave no answers within {PATIENCE:?}"));
        let Some(answers) = answers else { panic!("{path} failed:\n{}", complaints.await.unwrap()) };
        // It may go on printing, until it ends.
        tokio::spawn(async move { while let Ok(Some(_)) = printed.next_line().await {} });
        Client { child, _stdin: stdin, answers }
    }

    /// Lets it end, and tells what it printed.
    pub(crate) async fn finish(self) -> Value {
        let Client { mut child, _stdin: stdin, answers } = self;
        drop(stdin);
        let status = tokio::time::timeout(PATIENCE, child.wait()).await.expect("a client ends when it has answered");
        assert!(status.unwrap().success(), "it ends well");
        answers
    }
}
