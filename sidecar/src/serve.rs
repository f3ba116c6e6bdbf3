//! A process's life: find the environments, listen, serve, and end when told.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::admin::Admin;
use crate::connections::{self, Connections};
use crate::cors::Cors;
use crate::data::{Data, Reach};
use crate::environment::State;
use crate::follow::{self, Follower};
use crate::listen::{self, Socket};
use crate::options::Options;
use crate::progress::Limits;
use crate::{log, map};

/// Number of connections that applications may have open at once, on the port and the socket together. With what each of
/// them buffers at most, here and in the kernel, they fit into the memory that a sidecar has by default.
const DATA_CONNECTIONS: usize = 256;
/// How long a request of an application may take to arrive, with its body.
const DATA_RECEIVE: Duration = Duration::from_secs(10);
/// Number of connections to the admin port. Kubelet and Prometheus need few.
const ADMIN_CONNECTIONS: usize = 32;
/// How long a request to the admin port may take to arrive. It is a head, and who waits for longer is no probe: kubelet
/// gives up after a second.
const ADMIN_RECEIVE: Duration = Duration::from_secs(2);

/// Why serving did not begin.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The directory of snapshots cannot be read.
    #[error("--snapshots {directory}: {cause}")]
    Directory {
        /// The directory.
        directory: PathBuf,
        /// What the system said.
        cause: std::io::Error,
    },
    /// The directory is one environment's.
    #[error("--snapshots {0} is itself an environment's volume: write the directory that it is in")]
    Volume(PathBuf),
    /// There is nothing to serve, and nothing to wait for.
    #[error(
        "there is no environment in {directory}: make one with `remora-operator compile --document FILE --output {directory}`, \
         or name those to wait for with --environment"
    )]
    NoEnvironment {
        /// The directory.
        directory: PathBuf,
    },
    /// A port cannot be had.
    #[error("cannot listen on {address} ({option}): {cause}; is another container of the pod there already?")]
    Listen {
        /// Which port.
        option: &'static str,
        /// The address.
        address: SocketAddr,
        /// What the system said.
        cause: std::io::Error,
    },
    /// A socket cannot be made.
    #[error("cannot listen on {path} (--listen-unix): {cause}; its directory has to be there, and to be writable")]
    Socket {
        /// Where.
        path: PathBuf,
        /// What the system said.
        cause: std::io::Error,
    },
    /// The system refused something that it should not.
    #[error("cannot {step}: {cause}")]
    System {
        /// What was to be done.
        step: &'static str,
        /// What the system said.
        cause: std::io::Error,
    },
}

/// A sidecar that listens.
pub struct Server {
    state: Arc<State>,
    data: TcpListener,
    socket: Option<Socket>,
    admin: TcpListener,
}

impl Server {
    /// Takes the ports, loads what is there, and follows it from then on.
    ///
    /// # Errors
    /// Where there is nothing to serve, or no port to serve on. A volume that is missing, empty or broken is
    /// none: it is waited for.
    pub async fn start(options: &Options) -> Result<Server, Failure> {
        let names = environments(&options.snapshots, &options.environments)?;
        let data = listen("--listen", options.listen)?;
        let admin = listen("--admin", options.admin)?;
        let bind = |path: &PathBuf| Socket::bind(path).map_err(|cause| Failure::Socket { path: path.clone(), cause });
        let socket = options.listen_unix.as_ref().map(bind).transpose()?;
        let state = Arc::new(State::new(names, options.patience, Cors::new(&options.cors_origins)));
        let mut follower = Follower::new(Arc::clone(&state), &options.snapshots);
        follower.look();
        follow::spawn(follower).map_err(|cause| Failure::System { step: "start a thread", cause })?;
        let server = Server { state, data, socket, admin };
        log::info!("flags on {}, health and metrics on {}", server.data_address()?, server.admin_address()?);
        Ok(server)
    }

    /// Where flags are answered.
    ///
    /// # Errors
    /// If the system does not say.
    pub fn data_address(&self) -> Result<SocketAddr, Failure> {
        address(&self.data)
    }

    /// Where health and metrics are.
    ///
    /// # Errors
    /// If the system does not say.
    pub fn admin_address(&self) -> Result<SocketAddr, Failure> {
        address(&self.admin)
    }

    /// Serves until the process is told to end, and then until the answers under way are sent.
    ///
    /// # Errors
    /// If signals cannot be received.
    pub async fn run(self) -> Result<(), Failure> {
        let fail = |cause| Failure::System { step: "receive signals", cause };
        let mut terminate = signal(SignalKind::terminate()).map_err(fail)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(fail)?;
        self.run_until(async {
            tokio::select! {
                _ = terminate.recv() => log::info!("told to end; the answers under way are sent first"),
                _ = interrupt.recv() => log::info!("interrupted; the answers under way are sent first"),
            }
        })
        .await;
        Ok(())
    }

    /// Serves until `end` is there, and then until the answers under way are sent.
    pub async fn run_until(self, end: impl Future<Output = ()>) {
        let Server { state, data, socket, admin } = self;
        let (stop, stopped) = watch::channel(false);
        let data_state = Arc::clone(&state);
        let admin_state = Arc::clone(&state);
        let answers = |progress| Data::new(Arc::clone(&data_state), progress, Reach::Port);
        let socket_answers = |progress| Data::new(Arc::clone(&data_state), progress, Reach::Socket);
        let connections = Connections::new(Limits::of(DATA_CONNECTIONS, DATA_RECEIVE), &state.in_flight);
        let data_port = connections::serve(data, Rc::clone(&connections), answers, stopped.clone());
        let socket_stopped = stopped.clone();
        let data_socket = async {
            if let Some(socket) = socket {
                connections::serve(socket, connections, socket_answers, socket_stopped).await;
            }
        };
        let admin_port = connections::serve(
            admin,
            Connections::new(Limits::of(ADMIN_CONNECTIONS, ADMIN_RECEIVE), &state.in_flight),
            move |progress| Admin::new(Arc::clone(&admin_state), progress),
            stopped,
        );
        let stopping = async {
            end.await;
            state.draining.store(true, Ordering::Relaxed);
            state.streams.end();
            // Both ports hold a receiver until they are through.
            let _ = stop.send(true);
        };
        tokio::join!(data_port, data_socket, admin_port, stopping);
    }
}

/// The environments to serve: those that are named, or else every sub-directory.
fn environments(directory: &Path, named: &[String]) -> Result<Vec<String>, Failure> {
    if map::is_volume(directory) {
        return Err(Failure::Volume(directory.to_owned()));
    }
    let mut names = named.to_vec();
    let fail = |cause| Failure::Directory { directory: directory.to_owned(), cause };
    match std::fs::read_dir(directory) {
        Ok(entries) => {
            for entry in entries {
                let entry = entry.map_err(fail)?;
                let name = entry.file_name().to_string_lossy().into_owned();
                if !name.starts_with('.') && entry.path().is_dir() {
                    names.push(name);
                }
            }
        }
        // With a list of names there is something to wait for.
        Err(_) if !named.is_empty() => {}
        Err(cause) => return Err(fail(cause)),
    }
    names.sort();
    names.dedup();
    if names.is_empty() { Err(Failure::NoEnvironment { directory: directory.to_owned() }) } else { Ok(names) }
}

fn listen(option: &'static str, address: SocketAddr) -> Result<TcpListener, Failure> {
    listen::bind(address).map_err(|cause| Failure::Listen { option, address, cause })
}

fn address(listener: &TcpListener) -> Result<SocketAddr, Failure> {
    listener.local_addr().map_err(|cause| Failure::System { step: "learn an address", cause })
}
