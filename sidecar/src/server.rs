//! The lifecycle of the process: finds the environments, listens, serves, and drains.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use crate::endpoints::admin::Admin;
use crate::endpoints::data::{Data, ListenerKind};
use crate::environments::follow::{self, Follower};
use crate::environments::state::{Settings, State};
use crate::http::connections::{self, Connections};
use crate::http::cors::Cors;
use crate::http::listen::{self, Socket};
use crate::http::progress::Limits;
use crate::options::Options;
use crate::{log, volume};

/// Number of connections that applications may have open at once, on the port and the socket together. With their
/// buffers, here and in the kernel, they fit into the default memory limit of a sidecar.
const DATA_CONNECTIONS: usize = 256;
/// Time for a request of an application to arrive, with its body.
const DATA_RECEIVE: Duration = Duration::from_secs(10);
/// Number of connections to the admin port. The startup probe, Prometheus and the controller need few.
const ADMIN_CONNECTIONS: usize = 32;
/// Time for a request to the admin port to arrive. Such a request is only a head.
const ADMIN_RECEIVE: Duration = Duration::from_secs(2);

/// Reason why the server did not start.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The directory of snapshots could not be read.
    #[error("--snapshots {directory}: {cause}")]
    Directory {
        /// Path of the directory.
        directory: PathBuf,
        /// Error of the system.
        cause: std::io::Error,
    },
    /// The directory is the volume of one environment.
    #[error("--snapshots {0} is the volume of one environment: name its parent directory")]
    Volume(PathBuf),
    /// The directory has no environment, and none is named.
    #[error(
        "--snapshots {directory} has no environment: create one with `remora-operator compile --document FILE --output {directory}`, \
         or name the environments to wait for with --environment"
    )]
    NoEnvironment {
        /// Path of the directory.
        directory: PathBuf,
    },
    /// The server cannot listen on a port.
    #[error("cannot listen on {address} ({option}): {cause}; check whether another container of the pod uses the port")]
    Listen {
        /// Option that sets the port.
        option: &'static str,
        /// Address of the port.
        address: SocketAddr,
        /// Error of the system.
        cause: std::io::Error,
    },
    /// The Unix socket cannot be created.
    #[error("cannot listen on {path} (--listen-unix): {cause}; its directory must exist and be writable")]
    Socket {
        /// Path of the socket.
        path: PathBuf,
        /// Error of the system.
        cause: std::io::Error,
    },
    /// A system call failed.
    #[error("cannot {step}: {cause}")]
    System {
        /// Step that failed.
        step: &'static str,
        /// Error of the system.
        cause: std::io::Error,
    },
}

/// The signals that end the process: SIGTERM and SIGINT. A signal that arrives before the server runs is not lost.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Receives the signals from now on. Until then, the first process of a container ignores them, because it has no
    /// handler for them. Must be called within a runtime.
    ///
    /// # Errors
    /// The process cannot receive signals.
    pub fn new() -> Result<Signals, Failure> {
        let fail = |cause| Failure::System { step: "receive signals", cause };
        let terminate = signal(SignalKind::terminate()).map_err(fail)?;
        let interrupt = signal(SignalKind::interrupt()).map_err(fail)?;
        Ok(Signals { terminate, interrupt })
    }
}

/// A sidecar that listens on its ports.
pub struct Server {
    state: Arc<State>,
    data: TcpListener,
    socket: Option<Socket>,
    admin: TcpListener,
}

impl Server {
    /// Binds the ports, loads the volumes, and starts to follow them.
    ///
    /// # Errors
    /// There is no environment to serve, or a port cannot be bound. A volume that is missing, empty or invalid is no
    /// error: the server waits for it.
    pub async fn start(options: &Options) -> Result<Server, Failure> {
        let names = environments(&options.snapshots, &options.environments)?;
        let data = listen("--listen", options.listen)?;
        let admin = listen("--admin", options.admin)?;
        let bind = |path: &PathBuf| Socket::bind(path).map_err(|cause| Failure::Socket { path: path.clone(), cause });
        let socket = options.listen_unix.as_ref().map(bind).transpose()?;
        if !options.overrides.is_empty() {
            let flags: Vec<&str> = options.overrides.iter().map(|own| own.flag.as_str()).collect();
            log::warning!("this process overrides flags, for tests: {flags:?}");
        }
        if let Some(file) = &options.override_key {
            log::warning!("requests may override flags by a header, for tests, signed with the key in {file:?}");
        }
        let settings = Settings {
            startup_timeout: options.startup_timeout,
            cors: Cors::new(&options.cors_origins),
            overrides: options.overrides.as_slice().into(),
            override_key: options.override_key.clone(),
        };
        let state = Arc::new(State::new(names, settings));
        let mut follower = Follower::new(Arc::clone(&state), &options.snapshots);
        follower.check();
        follow::spawn(follower).map_err(|cause| Failure::System { step: "start a thread", cause })?;
        let server = Server { state, data, socket, admin };
        log::info!("flags on {}, health and metrics on {}", server.data_address()?, server.admin_address()?);
        Ok(server)
    }

    /// Returns the address of the data port.
    ///
    /// # Errors
    /// The system does not return the address.
    pub fn data_address(&self) -> Result<SocketAddr, Failure> {
        address(&self.data)
    }

    /// Returns the address of the admin port.
    ///
    /// # Errors
    /// The system does not return the address.
    pub fn admin_address(&self) -> Result<SocketAddr, Failure> {
        address(&self.admin)
    }

    /// Serves until the process gets one of the signals, and then until the answers in progress are sent.
    pub async fn run(self, signals: Signals) {
        let Signals { mut terminate, mut interrupt } = signals;
        self.run_until(async {
            tokio::select! {
                _ = terminate.recv() => log::info!("received SIGTERM: ending after the answers under way are sent"),
                _ = interrupt.recv() => log::info!("received SIGINT: ending after the answers under way are sent"),
            }
        })
        .await;
    }

    /// Serves until `end` completes, and then until the answers in progress are sent.
    pub async fn run_until(self, end: impl Future<Output = ()>) {
        let Server { state, data, socket, admin } = self;
        let (stop, stopped) = watch::channel(false);
        let data_state = Arc::clone(&state);
        let admin_state = Arc::clone(&state);
        let answers = |progress| Data::new(Arc::clone(&data_state), progress, ListenerKind::Port);
        let socket_answers = |progress| Data::new(Arc::clone(&data_state), progress, ListenerKind::Socket);
        // All clients of the port and the socket are in the pod, and each can connect from any loopback address, so
        // addresses do not tell them apart.
        let connections = Connections::new(Limits::of(DATA_CONNECTIONS, DATA_RECEIVE), &state.in_flight);
        let data_port = connections::serve(data, Rc::clone(&connections), answers, stopped.clone());
        let socket_stopped = stopped.clone();
        let data_socket = async {
            if let Some(socket) = socket {
                connections::serve(socket, connections, socket_answers, socket_stopped).await;
            }
        };
        // Probes, Prometheus and the controller reach a pod by its address, so any Host is right for such a port.
        let is_local = admin.local_addr().is_ok_and(|address| address.ip().to_canonical().is_loopback());
        let admin_limits = Limits { by_address: true, ..Limits::of(ADMIN_CONNECTIONS, ADMIN_RECEIVE) };
        let admin_port = connections::serve(
            admin,
            Connections::new(admin_limits, &state.admin_in_flight),
            move |progress| Admin::new(Arc::clone(&admin_state), progress, is_local),
            stopped,
        );
        let stopping = async {
            end.await;
            state.draining.store(true, Ordering::Relaxed);
            state.streams.end();
            // Each listener holds a receiver until it has drained.
            let _ = stop.send(true);
        };
        tokio::join!(data_port, data_socket, admin_port, stopping);
    }
}

/// Lists the environments to serve: every sub-directory, and those that are named.
fn environments(directory: &Path, named: &[String]) -> Result<Vec<String>, Failure> {
    if volume::is_volume(directory) {
        return Err(Failure::Volume(directory.to_owned()));
    }
    let mut names = named.to_vec();
    let fail = |cause| Failure::Directory { directory: directory.to_owned(), cause };
    match std::fs::read_dir(directory) {
        Ok(entries) => {
            for entry in entries {
                let entry = entry.map_err(fail)?;
                if !entry.path().is_dir() {
                    continue;
                }
                match entry.file_name().into_string() {
                    Ok(name) if name.starts_with('.') => {}
                    Ok(name) => names.push(name),
                    Err(name) => log::warning!(
                        "the name of directory {name:?} is not UTF-8: it is skipped; rename it to that of its FeatureEnvironment"
                    ),
                }
            }
        }
        // Named environments may appear later, together with the directory.
        Err(cause) if cause.kind() == ErrorKind::NotFound && !named.is_empty() => {}
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
    listener.local_addr().map_err(|cause| Failure::System { step: "read the address of a listener", cause })
}
