//! Client: a program in another language that sends requests to a sidecar as planned and prints the answers.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::net::TcpSocket;
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;

use crate::sidecar::{PATIENCE, Sidecar};

/// Prefix of a line with answers: some SDKs print lines of their own.
const MARK: &str = "answers ";

/// Returns the directory with the packages of a language; installs them if necessary.
async fn installed(language: &str) -> PathBuf {
    let install = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/install.sh");
    let output = Command::new(install).arg(language).stderr(Stdio::inherit()).output().await.unwrap();
    assert!(output.status.success(), "the clients in {language} could not be installed: see above");
    PathBuf::from(String::from_utf8(output.stdout).unwrap().trim())
}

/// Returns an address that is reserved but has no listener.
fn nobody() -> (TcpSocket, String) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = format!("http://{}", socket.local_addr().unwrap());
    (socket, address)
}

/// Client that has printed its first answers.
pub(crate) struct Client {
    path: String,
    child: Child,
    printed: Lines<BufReader<ChildStdout>>,
    complaints: JoinHandle<String>,
    /// Standard input; open while the client must run.
    stdin: ChildStdin,
    /// First answers of the client.
    pub(crate) answers: Value,
}

impl Client {
    /// Runs `clients/LANGUAGE/NAME`, with a sidecar configured as by injection, or without one.
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
            "java" => {
                let (libraries, _) = name.split_once('/').expect("a folder with what is needed beside it");
                let mut java = Command::new("java");
                java.arg("-cp").arg(home.join(libraries).join("*")).arg(script);
                java
            }
            "go" => Command::new(home.join(name)),
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
        let printed = BufReader::new(child.stdout.take().unwrap()).lines();
        let path = path.to_owned();
        let mut client = Client { path, child, printed, complaints, stdin, answers: Value::Null };
        client.answers = client.next_answers().await;
        client
    }

    /// Makes a client that supports it send its requests again, and returns the answers.
    pub(crate) async fn again(&mut self) -> Value {
        self.stdin.write_all(b"\n").await.unwrap();
        self.next_answers().await
    }

    /// Waits for the client's next answers.
    pub(crate) async fn next_answers(&mut self) -> Value {
        let Client { path, printed, complaints, .. } = self;
        let answers = async {
            while let Some(line) = printed.next_line().await.unwrap() {
                if let Some(answers) = line.strip_prefix(MARK) {
                    return Some(serde_json::from_str(answers).unwrap());
                }
            }
            None
        };
        let answers = tokio::time::timeout(PATIENCE, answers).await;
        match answers.unwrap_or_else(|_| panic!("{path} gave no answers within {PATIENCE:?}")) {
            Some(answers) => answers,
            None => panic!("{path} failed:\n{}", complaints.await.unwrap()),
        }
    }

    /// Lets the client exit, and returns its first answers.
    pub(crate) async fn finish(self) -> Value {
        let Client { mut child, mut printed, stdin, answers, .. } = self;
        drop(stdin);
        // The client may continue to print until it exits.
        tokio::spawn(async move { while let Ok(Some(_)) = printed.next_line().await {} });
        let status = tokio::time::timeout(PATIENCE, child.wait()).await.expect("a client ends when it has answered");
        assert!(status.unwrap().success(), "it ends well");
        answers
    }
}
