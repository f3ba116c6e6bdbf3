//! A sidecar in this process, which the targets call over sockets, as clients do.

use std::cell::OnceCell;
use std::convert::Infallible;
use std::future::pending;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use remora_sidecar::{Level, Options, Server, set_level};
use remora_tools::directory;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::{Builder, Runtime};
use tokio::task::LocalSet;
use tokio::time::timeout;

use crate::environment;

/// Time limit for the answer and for the end of the connection. Only a hang reaches it.
const PATIENCE: Duration = Duration::from_secs(60);
/// Name of the served environment.
pub(crate) const ENVIRONMENT: &str = "fuzz";
/// Key that signs overrides of flags.
pub(crate) const OVERRIDE_KEY: &[u8] = b"a key for signed overrides of flags";
/// Origin whose pages may read answers.
pub(crate) const ORIGIN: &str = "http://localhost:3000";

/// Behaviour of the client after it has sent its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// The client waits until the sidecar closes the connection.
    Wait,
    /// The client closes its sending side. hyper may then close the connection before it answers.
    End,
}

/// Destination of the bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Port {
    /// The flags, over the Unix domain socket.
    Data,
    /// Health and metrics.
    Admin,
}

/// Directory of this thread, which is removed with this value.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Directory {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("remora-fuzz-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Directory(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Sidecar that serves `environment.json`. It runs on the thread of its caller.
struct Sidecar {
    /// Both are leaked on purpose. Thread-local values are dropped at the end of the thread, when other values that
    /// these need no longer exist.
    runtime: &'static Runtime,
    tasks: &'static LocalSet,
    directory: Directory,
    admin: SocketAddr,
}

impl Sidecar {
    fn start() -> Sidecar {
        let directory = Directory::new();
        let snapshots = directory.0.join("snapshots");
        directory::write(&snapshots, ENVIRONMENT, &environment::compiled(usize::MAX)).unwrap();
        set_level(Level::Error);
        let mut options = Options::new(snapshots);
        options.listen.set_port(0);
        options.admin.set_port(0);
        options.listen_unix = Some(directory.0.join("socket"));
        options.cors_origins = vec![ORIGIN.to_owned()];
        let key = directory.0.join("key");
        std::fs::write(&key, OVERRIDE_KEY).unwrap();
        options.override_key = Some(key);
        let runtime: &'static Runtime =
            Box::leak(Box::new(Builder::new_current_thread().enable_all().build().unwrap()));
        let server = runtime.block_on(Server::start(&options)).unwrap();
        let admin = server.admin_address().unwrap();
        let tasks: &'static LocalSet = Box::leak(Box::default());
        tasks.spawn_local(server.run_until(pending()));
        Sidecar { runtime, tasks, directory, admin }
    }

    async fn exchange(&self, port: Port, request: &[u8], then: Then) -> Vec<u8> {
        match port {
            Port::Data => {
                answered(UnixStream::connect(self.directory.0.join("socket")).await.unwrap(), request, then).await
            }
            Port::Admin => {
                let stream = TcpStream::connect(self.admin).await.unwrap();
                // Otherwise the closed connections would use up all ports within seconds.
                stream.set_zero_linger().unwrap();
                answered(stream, request, then).await
            }
        }
    }
}

/// Sends bytes, and returns all received bytes. Ends when the sidecar closes the connection or starts a stream of
/// events, which would go on.
async fn answered(stream: impl AsyncRead + AsyncWrite, request: &[u8], then: Then) -> Vec<u8> {
    let (mut reading, mut writing) = split(stream);
    let mut answer = Vec::new();
    let sending = async {
        // The sidecar may have closed the connection already.
        let _ = writing.write_all(request).await;
        if then == Then::End {
            let _ = writing.shutdown().await;
        }
        pending::<Infallible>().await
    };
    let receiving =
        async { while reading.read_buf(&mut answer).await.is_ok_and(|read| read > 0) && !is_stream(&answer) {} };
    tokio::select! {
        never = sending => match never {},
        () = receiving => {}
    }
    answer
}

/// True if the answer contains the whole head of a stream of events.
fn is_stream(answer: &[u8]) -> bool {
    let kind = b"content-type: text/event-stream";
    let at = answer.windows(kind.len()).position(|window| window == kind);
    at.is_some_and(|at| answer[at..].windows(4).any(|four| four == b"\r\n\r\n"))
}

/// Sends bytes to this thread's sidecar, and returns all received bytes. Panics if the connection does not end.
pub(crate) fn exchange(port: Port, request: &[u8], then: Then) -> Vec<u8> {
    thread_local! {
        static SIDECAR: OnceCell<Sidecar> = const { OnceCell::new() };
    }
    SIDECAR.with(|sidecar| {
        let sidecar = sidecar.get_or_init(Sidecar::start);
        let exchange = sidecar.exchange(port, request, then);
        sidecar
            .tasks
            .block_on(sidecar.runtime, async { timeout(PATIENCE, exchange).await })
            .expect("the connection does not end")
    })
}

/// Status, headers and body of an answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// Parses the first answer in these bytes. Panics if there is no valid answer.
    pub(crate) fn read(bytes: &[u8]) -> Answer {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").expect("an answer has no end of its head");
        let head = std::str::from_utf8(&bytes[..end]).expect("the head of an answer is not text").to_owned();
        let status = head.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..5)?.parse().ok());
        let status = status.unwrap_or_else(|| panic!("an answer begins with {head:?}"));
        let mut answer = Answer { status, head, body: bytes[end + 4..].to_vec() };
        if let Some(length) = answer.header("content-length") {
            answer.body.truncate(length.parse().expect("a content-length is no number"));
        }
        answer
    }

    /// Returns the value of the header with this name.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head
            .lines()
            .filter_map(|line| line.split_once(": "))
            .find(|(own, _)| own.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }
}
