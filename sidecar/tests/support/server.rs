//! A server in a thread of the test.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use remora_sidecar::{Options, Server};
use tokio::sync::oneshot;

use super::client;
use super::environment::{CLIENT, client_flags, written};
use super::volume::{Directory, Volume};

pub(crate) struct Running {
    pub(crate) data: SocketAddr,
    pub(crate) admin: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Starts a server over a directory, on free ports.
pub(crate) fn start(snapshots: &Path, change: impl FnOnce(&mut Options)) -> Running {
    let mut options = Options::new(snapshots.to_owned());
    options.listen.set_port(0);
    options.admin.set_port(0);
    change(&mut options);
    let (ready, started) = mpsc::channel();
    let (stop, stopped) = oneshot::channel::<()>();
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let server = Server::start(&options).await.unwrap();
            ready.send((server.data_address().unwrap(), server.admin_address().unwrap())).unwrap();
            server
                .run_until(async {
                    let _ = stopped.await;
                })
                .await;
        });
    });
    let (data, admin) = started.recv().unwrap();
    Running { data, admin, stop: Some(stop), thread: Some(thread) }
}

/// Starts a server that serves revision 1 of the small environment.
pub(crate) fn serving() -> (Directory, Running) {
    let (directory, _, running) = serving_volume();
    (directory, running)
}

/// Starts a server that serves revision 1 of the small environment, and returns the volume, too.
pub(crate) fn serving_volume() -> (Directory, Volume, Running) {
    let directory = Directory::new();
    let mut volume = directory.volume("shop");
    volume.publish_written(&written(1));
    let running = start(directory.path(), |_| {});
    (directory, volume, running)
}

/// Returns the metric of the reloads with this result.
pub(crate) fn reloads(result: &str) -> String {
    format!(r#"remora_sidecar_reloads_total{{environment="shop",result="{result}"}}"#)
}

/// Asserts that a client gets the flags of revision 1.
#[track_caller]
pub(crate) fn assert_serves_first_revision(data: SocketAddr) {
    assert_eq!(client::get(data, "/api/v1/flags/", &CLIENT).body, client_flags(1));
}

impl Running {
    /// Stops the server, and returns how long that took.
    pub(crate) fn stop(mut self) -> Duration {
        let began = Instant::now();
        self.stop.take().unwrap().send(()).unwrap();
        self.thread.take().unwrap().join().unwrap();
        began.elapsed()
    }

    /// Waits until the value of a metric fulfills a condition.
    pub(crate) fn await_metric(&self, line: &str, holds: impl Fn(f64) -> bool) {
        await_condition(line, || self.metric(line).is_some_and(&holds));
    }

    pub(crate) fn metric(&self, line: &str) -> Option<f64> {
        let page = client::get(self.admin, "/metrics", &[]).body;
        let value = page.lines().find_map(|candidate| candidate.strip_prefix(line)?.strip_prefix(' '))?;
        value.parse().ok()
    }
}

/// Waits until a condition holds. Panics after 30 s.
pub(crate) fn await_condition(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(30), "still not: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
